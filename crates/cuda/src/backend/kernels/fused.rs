//! A device's fused kernels.

use std::ops::Range;

use quadrille_engine::{FusedKernels, Gamma, NormInput, ParameterUpdate, Values};
use quadrille_tensor::{NormShape, ProductShape};

use super::{Done, R, W};
use crate::array::Number;
use crate::backend::Cuda;
use crate::backend::convert::{gamma, read, statistics, update, written};
use crate::ops::{column_scratch, update_table};

impl<S: Values + Number> FusedKernels<Self> for Cuda<S>
where
    S::Real: Number,
{
    fn matmul_with_bias(&self, product: ProductShape, a: R<'_>, b: R<'_>, bias: R<'_>, c: &mut W<'_>) -> Done {
        self.biased_product(product, a.array, b.array, bias.array, c.array)
    }

    fn sum_squares_of_all(&self, arrays: &[(R<'_>, Vec<Range<usize>>)]) -> Done {
        self.squares(arrays.iter().flat_map(|(x, runs)| runs.iter().map(|run| (x.array, run.clone()))))
    }

    fn adamw_of_all(&self, updates: &mut [ParameterUpdate<R<'_>, W<'_>>]) -> Done {
        let parameters: Vec<_> = updates.iter().map(update).collect();
        let (table, units) = update_table(&parameters);
        let table = self.uploads.put(table)?;
        Ok(self.queue(0)?.adamw_of_all(S::ELEMENT, table, parameters.len(), units, self.totals.update())?)
    }

    fn whole_norm(
        &self,
        shape: NormShape,
        x: R<'_>,
        sums: Option<&mut W<'_>>,
        squares: &mut W<'_>,
        by: Gamma<R<'_>>,
        beta: Option<R<'_>>,
        y: &mut W<'_>,
    ) -> Done {
        let of = crate::ops::Statistics { sums: written(sums), squares: squares.array };
        Ok(self.queue(0)?.whole_norm(shape, x.array, of, gamma(by), read(beta), y.array)?)
    }

    fn whole_norm_backward(
        &self,
        shape: NormShape,
        norm: NormInput<R<'_>>,
        dy: R<'_>,
        out: &mut W<'_>,
        dgamma: &mut W<'_>,
        dbeta: Option<&mut W<'_>>,
        dx: &mut W<'_>,
        accumulate: [bool; 2],
    ) -> Done {
        let NormInput { x, statistics: of, gamma: by } = norm;
        let queue = self.queue(column_scratch(2 * shape.cols, x.array.element))?;
        let of = statistics(of);
        let by = gamma(by);
        let dbeta = written(dbeta);
        Ok(queue.whole_norm_backward(
            shape,
            x.array,
            of,
            by,
            dy.array,
            out.array,
            dgamma.array,
            dbeta,
            dx.array,
            accumulate,
        )?)
    }
}
