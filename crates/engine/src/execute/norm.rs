//! Norms in the pieces between which ranks reduce row statistics.

use quadrille_spec::{Norm, Normalization};
use quadrille_step::{BlockKind, ValueId, kind, normalization};
use quadrille_tensor as kernels;

use crate::{EngineError, RankEngine, Real};

type Swept = Result<usize, EngineError>;

impl<T: Real> RankEngine<'_, T> {
    pub(super) fn row_sums(&mut self, op: &kind::RowSums) -> Swept {
        self.write(op.output, |rank, out| {
            let ((rows, cols), x) = (rank.dims(op.input), rank.read(op.input)?);
            kernels::norm_row_sums(&rank.pool, rows, cols, x, out);
            Ok(x.len())
        })
    }

    pub(super) fn centered_squares(&mut self, op: &kind::CenteredSquares) -> Swept {
        self.write(op.output, |rank, squares| {
            let ((rows, cols), width) = (rank.dims(op.input), rank.value(op.input).cols);
            let (x, sums) = (rank.read(op.input)?, rank.read(op.sums)?);
            kernels::norm_centered_squares(&rank.pool, rows, cols, width, x, sums, squares);
            Ok(x.len())
        })
    }

    pub(super) fn row_squares(&mut self, op: &kind::RowSquares) -> Swept {
        self.write(op.output, |rank, squares| {
            let ((rows, cols), x) = (rank.dims(op.input), rank.read(op.input)?);
            kernels::rms_norm_squares(&rank.pool, rows, cols, x, squares);
            Ok(x.len())
        })
    }

    pub(super) fn norm(&mut self, op: &kind::Norm) -> Swept {
        let kind::Norm { of, input, sums, squares, gamma, beta, output } = *op;
        self.write(output, |rank, y| {
            let ((rows, cols), width) = (rank.dims(input), rank.value(input).cols);
            let (x, squares, rule) = (rank.read(input)?, rank.read(squares)?, rank.normalization(of));
            let (eps, vectors) = (rule.epsilon, rank.read_some(sums)?.zip(rank.read_some(beta)?));
            factors(rule, rank.read(gamma)?, |gamma| match vectors {
                Some((sums, beta)) => {
                    kernels::norm_forward(&rank.pool, rows, cols, width, eps, x, sums, squares, gamma, beta, y);
                }
                None => kernels::rms_norm_forward(&rank.pool, rows, cols, width, eps, x, squares, gamma, y),
            });
            Ok(x.len())
        })
    }

    pub(super) fn norm_backward_sums(&mut self, op: &kind::NormBackwardSums) -> Swept {
        self.write(op.output, |rank, out| {
            rank.write(op.gamma_gradient, |rank, dgamma| match op.beta_gradient {
                Some(beta) => rank.write(beta, |rank, dbeta| rank.norm_sums(op, out, dgamma, Some(dbeta))),
                None => rank.norm_sums(op, out, dgamma, None),
            })
        })
    }

    #[rustfmt::skip]
    fn norm_sums(
        &self, op: &kind::NormBackwardSums, out: &mut [T], dgamma: &mut [T], dbeta: Option<&mut [T]>,
    ) -> Swept {
        let kind::NormBackwardSums { of, input, sums, squares, gamma, gradient, write, .. } = *op;
        let ((rows, cols), width, pool) = (self.dims(input), self.value(input).cols, &self.pool);
        let (x, dy, gamma, squares) =
            (self.read(input)?, self.read(gradient)?, self.read(gamma)?, self.read(squares)?);
        let (rule, add) = (self.normalization(of), self.accumulates(write));
        let (eps, vectors) = (rule.epsilon, self.read_some(sums)?.zip(dbeta));
        factors(rule, gamma, |gamma| match vectors {
            Some((sums, dbeta)) => kernels::norm_backward_sums(
                pool, rows, cols, width, eps, x, sums, squares, gamma, dy, out, dgamma, dbeta, add,
            ),
            None => kernels::rms_norm_backward_sums(
                pool, rows, cols, width, eps, x, squares, gamma, dy, out, dgamma, add,
            ),
        });
        Ok(x.len())
    }

    #[rustfmt::skip]
    pub(super) fn norm_backward(&mut self, op: &kind::NormBackward) -> Swept {
        let kind::NormBackward { of, input, sums, squares, gamma, gradient, reduced, output, write } = *op;
        self.write(output, |rank, dx| {
            let ((rows, cols), width, pool) = (rank.dims(input), rank.value(input).cols, &rank.pool);
            let (x, dy, gamma) = (rank.read(input)?, rank.read(gradient)?, rank.read(gamma)?);
            let (squares, reduced) = (rank.read(squares)?, rank.read(reduced)?);
            let (rule, add) = (rank.normalization(of), rank.accumulates(write));
            let (eps, sums) = (rule.epsilon, rank.read_some(sums)?);
            factors(rule, gamma, |gamma| match sums {
                Some(sums) => kernels::norm_backward(
                    pool, rows, cols, width, eps, x, sums, squares, gamma, dy, reduced, dx, add,
                ),
                None => kernels::rms_norm_backward(
                    pool, rows, cols, width, eps, x, squares, gamma, dy, reduced, dx, add,
                ),
            });
            Ok(x.len())
        })
    }

    fn normalization(&self, of: Option<BlockKind>) -> Normalization {
        normalization(&self.program.model, of)
    }

    pub(super) fn head_norm(&mut self, op: &kind::HeadNorm) -> Swept {
        let kind::HeadNorm { block, keys, input, gamma, beta, output } = *op;
        let in_place = self.storage(input) == self.storage(output);
        self.write(output, |rank, qkv| {
            if !in_place {
                kernels::copy(&rank.pool, qkv, rank.read(input)?);
            }
            let (norm, rule) = rank.heads_normed(block, keys, output);
            let beta = rank.read_some(beta)?;
            Ok(factors(rule, rank.read(gamma)?, |gamma| kernels::head_norm_forward(&rank.pool, norm, gamma, beta, qkv)))
        })
    }

    pub(super) fn head_norm_backward(&mut self, op: &kind::HeadNormBackward) -> Swept {
        self.write(op.output, |rank, dqkv| {
            rank.write(op.gamma_gradient, |rank, dgamma| match op.beta_gradient {
                Some(beta) => rank.write(beta, |rank, dbeta| rank.head_gradients(op, dqkv, dgamma, Some(dbeta))),
                None => rank.head_gradients(op, dqkv, dgamma, None),
            })
        })
    }

    #[rustfmt::skip]
    fn head_gradients(
        &self, op: &kind::HeadNormBackward, dqkv: &mut [T], dgamma: &mut [T], dbeta: Option<&mut [T]>,
    ) -> Swept {
        let kind::HeadNormBackward { block, keys, input, gamma, write, .. } = *op;
        let ((norm, rule), x, gamma) = (self.heads_normed(block, keys, input), self.read(input)?, self.read(gamma)?);
        let add = self.accumulates(write);
        Ok(factors(rule, gamma, |gamma| {
            kernels::head_norm_backward(&self.pool, norm, x, gamma, dqkv, dgamma, dbeta, add)
        }))
    }

    /// The norm of a block's queries, or keys, of which `qkv` has this rank's.
    fn heads_normed(&self, block: BlockKind, keys: bool, qkv: ValueId) -> (kernels::HeadNorm, Normalization) {
        let described = block.of(&self.program.model);
        let rule = described.attention.qk_norm.unwrap_or(described.norm);
        let [groups, heads, head_dim] = self.key_groups(block, self.dims(qkv).1);
        let centered = rule.kind == Norm::Layer;
        (kernels::HeadNorm { groups, heads, head_dim, keys, centered, eps: rule.epsilon }, rule)
    }
}

/// Calls `with` what a norm multiplies columns with: its gammas, or, where they are stored as distances, 1 and those.
fn factors<T: Real, R>(rule: Normalization, gamma: &[T], with: impl FnOnce(&[T]) -> R) -> R {
    if !rule.offset {
        return with(gamma);
    }
    T::with_scratch(gamma.len(), |factors| {
        factors.iter_mut().zip(gamma).for_each(|(factor, gamma)| *factor = T::ONE + *gamma);
        with(factors)
    })
}
