//! A device's kernels of norms.

use quadrille_engine::{Gamma, NormInput, NormKernels, Values, View};
use quadrille_tensor::{HeadNorm, NormShape, Shape};

use super::{Done, R, Swept, W};
use crate::array::Number;
use crate::backend::Cuda;
use crate::backend::convert::{gamma, read, statistics, written};
use crate::ops::{column_scratch, head_norm_scratch};

impl<S: Values + Number> NormKernels for Cuda<S>
where
    S::Real: Number,
{
    fn norm_row_sums(&self, shape: Shape, x: R<'_>, sums: &mut W<'_>) -> Done {
        Ok(self.queue(0)?.norm_row_sums(shape, x.array, sums.array)?)
    }

    fn norm_centered_squares(&self, shape: NormShape, x: R<'_>, sums: R<'_>, squares: &mut W<'_>) -> Done {
        Ok(self.queue(0)?.norm_centered_squares(shape, x.array, sums.array, squares.array)?)
    }

    fn rms_norm_squares(&self, shape: Shape, x: R<'_>, squares: &mut W<'_>) -> Done {
        Ok(self.queue(0)?.rms_norm_squares(shape, x.array, squares.array)?)
    }

    fn norm_forward(&self, shape: NormShape, norm: NormInput<R<'_>>, beta: Option<R<'_>>, y: &mut W<'_>) -> Done {
        let NormInput { x, statistics: of, gamma: by } = norm;
        Ok(self.queue(0)?.norm_forward(shape, x.array, statistics(of), gamma(by), read(beta), y.array)?)
    }

    fn norm_backward_sums(
        &self,
        shape: NormShape,
        norm: NormInput<R<'_>>,
        dy: R<'_>,
        out: &mut W<'_>,
        dgamma: &mut W<'_>,
        dbeta: Option<&mut W<'_>>,
        accumulate: bool,
    ) -> Done {
        let NormInput { x, statistics: of, gamma: by } = norm;
        let queue = self.queue(column_scratch(2 * shape.cols, x.array.element))?;
        let of = statistics(of);
        let by = gamma(by);
        let dbeta = written(dbeta);
        Ok(queue.norm_backward_sums(shape, x.array, of, by, dy.array, out.array, dgamma.array, dbeta, accumulate)?)
    }

    fn norm_backward(
        &self,
        shape: NormShape,
        norm: NormInput<R<'_>>,
        dy: R<'_>,
        reduced: R<'_>,
        dx: &mut W<'_>,
        accumulate: bool,
    ) -> Done {
        let NormInput { x, statistics: of, gamma: by } = norm;
        let of = statistics(of);
        let by = gamma(by);
        Ok(self.queue(0)?.norm_backward(shape, x.array, of, by, dy.array, reduced.array, dx.array, accumulate)?)
    }

    fn head_norm_forward(&self, norm: HeadNorm, by: Gamma<R<'_>>, beta: Option<R<'_>>, x: &mut W<'_>) -> Swept {
        self.queue(0)?.head_norm_forward(norm, gamma(by), read(beta), x.array)?;
        Ok(norm.elements(x.array.len / norm.cols().max(1)))
    }

    fn head_norm_backward(
        &self,
        norm: HeadNorm,
        x: R<'_>,
        by: Gamma<R<'_>>,
        dy: &mut W<'_>,
        dgamma: &mut W<'_>,
        dbeta: Option<&mut W<'_>>,
        accumulate: bool,
    ) -> Swept {
        let rows = x.elements() / norm.cols().max(1);
        let queue = self.queue(head_norm_scratch(norm, rows, x.array.element))?;
        queue.head_norm_backward(norm, x.array, gamma(by), dy.array, dgamma.array, written(dbeta), accumulate)?;
        Ok(norm.elements(rows))
    }
}
