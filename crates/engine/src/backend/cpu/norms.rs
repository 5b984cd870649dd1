//! The processor's kernels of norms.

use quadrille_tensor as kernels;
use quadrille_tensor::{Element, HeadNorm, NormShape, Shape, Stored};

use super::Cpu;
use crate::Values;
use crate::backend::memory::{Numbers, NumbersMut};
use crate::backend::{Done, Gamma, NormInput, NormKernels, Statistics, Swept};

/// Calls `with` what a norm multiplies columns with.
fn factors<S: Values, R>(gamma: Gamma<Numbers<'_, S>>, with: impl FnOnce(&[S::Real]) -> R) -> R {
    let stored = gamma.stored.real();
    if !gamma.offset {
        return with(stored);
    }
    <S::Real as Stored>::with_scratch(stored.len(), |factors| {
        factors.iter_mut().zip(stored).for_each(|(factor, gamma)| *factor = S::Real::ONE + *gamma);
        with(factors)
    })
}

/// The sums and beta, or the gradient of beta, that a layer norm has.
fn centered<S: Values, V>(statistics: Statistics<Numbers<'_, S>>, vector: Option<V>) -> Option<(&[S::Real], V)> {
    statistics.sums.map(Numbers::real).zip(vector)
}

for_each_element! {
impl NormKernels for Cpu<S> {
    fn norm_row_sums(&self, shape: Shape, x: Numbers<'_, S>, sums: &mut NumbersMut<'_, S>) -> Done {
        kernels::norm_row_sums(&self.pool, shape, x.stored(), sums.real());
        Ok(())
    }

    fn norm_centered_squares(
        &self,
        shape: NormShape,
        x: Numbers<'_, S>,
        sums: Numbers<'_, S>,
        squares: &mut NumbersMut<'_, S>,
    ) -> Done {
        kernels::norm_centered_squares(&self.pool, shape, x.stored(), sums.real(), squares.real());
        Ok(())
    }

    fn rms_norm_squares(&self, shape: Shape, x: Numbers<'_, S>, squares: &mut NumbersMut<'_, S>) -> Done {
        kernels::rms_norm_squares(&self.pool, shape, x.stored(), squares.real());
        Ok(())
    }

    fn norm_forward(
        &self,
        shape: NormShape,
        norm: NormInput<Numbers<'_, S>>,
        beta: Option<Numbers<'_, S>>,
        y: &mut NumbersMut<'_, S>,
    ) -> Done {
        let NormInput { x, statistics, gamma } = norm;
        let pool = &self.pool;
        let squares = statistics.squares.real();
        factors(gamma, |gamma| match centered(statistics, beta) {
            Some((sums, beta)) => {
                kernels::norm_forward(pool, shape, x.stored(), sums, squares, gamma, beta.real(), y.stored())
            }
            None => kernels::rms_norm_forward(pool, shape, x.stored(), squares, gamma, y.stored()),
        });
        Ok(())
    }

    fn norm_backward_sums(
        &self,
        shape: NormShape,
        norm: NormInput<Numbers<'_, S>>,
        dy: Numbers<'_, S>,
        out: &mut NumbersMut<'_, S>,
        dgamma: &mut NumbersMut<'_, S>,
        dbeta: Option<&mut NumbersMut<'_, S>>,
        accumulate: bool,
    ) -> Done {
        let NormInput { x, statistics, gamma } = norm;
        let pool = &self.pool;
        let squares = statistics.squares.real();
        factors(gamma, |gamma| match centered(statistics, dbeta) {
            Some((sums, dbeta)) => {
                kernels::norm_backward_sums(
                    pool,
                    shape,
                    x.stored(),
                    sums,
                    squares,
                    gamma,
                    dy.stored(),
                    out.real(),
                    dgamma.real(),
                    dbeta.real(),
                    accumulate,
                );
            }
            None => kernels::rms_norm_backward_sums(
                pool,
                shape,
                x.stored(),
                squares,
                gamma,
                dy.stored(),
                out.real(),
                dgamma.real(),
                accumulate,
            ),
        });
        Ok(())
    }

    fn norm_backward(
        &self,
        shape: NormShape,
        norm: NormInput<Numbers<'_, S>>,
        dy: Numbers<'_, S>,
        reduced: Numbers<'_, S>,
        dx: &mut NumbersMut<'_, S>,
        accumulate: bool,
    ) -> Done {
        let NormInput { x, statistics, gamma } = norm;
        let pool = &self.pool;
        let squares = statistics.squares.real();
        factors(gamma, |gamma| match statistics.sums.map(Numbers::real) {
            Some(sums) => kernels::norm_backward(
                pool,
                shape,
                x.stored(),
                sums,
                squares,
                gamma,
                dy.stored(),
                reduced.real(),
                dx.stored(),
                accumulate,
            ),
            None => kernels::rms_norm_backward(
                pool,
                shape,
                x.stored(),
                squares,
                gamma,
                dy.stored(),
                reduced.real(),
                dx.stored(),
                accumulate,
            ),
        });
        Ok(())
    }

    fn head_norm_forward(
        &self,
        norm: HeadNorm,
        gamma: Gamma<Numbers<'_, S>>,
        beta: Option<Numbers<'_, S>>,
        x: &mut NumbersMut<'_, S>,
    ) -> Swept {
        Ok(factors(gamma, |gamma| {
            kernels::head_norm_forward(&self.pool, norm, gamma, beta.map(Numbers::real), x.stored())
        }))
    }

    fn head_norm_backward(
        &self,
        norm: HeadNorm,
        x: Numbers<'_, S>,
        gamma: Gamma<Numbers<'_, S>>,
        dy: &mut NumbersMut<'_, S>,
        dgamma: &mut NumbersMut<'_, S>,
        dbeta: Option<&mut NumbersMut<'_, S>>,
        accumulate: bool,
    ) -> Swept {
        let dbeta = dbeta.map(NumbersMut::real);
        Ok(factors(gamma, |gamma| {
            kernels::head_norm_backward(
                &self.pool,
                norm,
                x.stored(),
                gamma,
                dy.stored(),
                dgamma.real(),
                dbeta,
                accumulate,
            )
        }))
    }
}
}
