//! Kernels that do several neighboring operations at once.

use std::ops::Range;

use quadrille_tensor::{NormShape, ProductShape};

use super::{Done, Gamma, NormInput, ParameterUpdate, RankMemory};

/// Fused kernels over the memory of a backend. Each gives the bits of the operations that it does, except where its
/// documentation says otherwise.
pub trait FusedKernels<M: RankMemory> {
    /// [`matmul`](crate::LayerKernels::matmul), and [`bias_forward`](crate::LayerKernels::bias_forward) of its result:
    /// at once the sum may be rounded once, and the bias before.
    fn matmul_with_bias(
        &self,
        product: ProductShape,
        a: M::View<'_>,
        b: M::View<'_>,
        bias: M::View<'_>,
        c: &mut M::ViewMut<'_>,
    ) -> Done;

    /// [`sum_squares`](crate::LayerKernels::sum_squares) of several arrays, one after another.
    fn sum_squares_of_all(&self, arrays: &[(M::View<'_>, Vec<Range<usize>>)]) -> Done;

    /// [`adamw`](crate::LayerKernels::adamw) of several parameters.
    fn adamw_of_all(&self, updates: &mut [ParameterUpdate<M::View<'_>, M::ViewMut<'_>>]) -> Done;

    /// [`norm_row_sums`](crate::NormKernels::norm_row_sums),
    /// [`norm_centered_squares`](crate::NormKernels::norm_centered_squares) and
    /// [`norm_forward`](crate::NormKernels::norm_forward); without sums and `beta`
    /// [`rms_norm_squares`](crate::NormKernels::rms_norm_squares) and the norm.
    fn whole_norm(
        &self,
        shape: NormShape,
        x: M::View<'_>,
        sums: Option<&mut M::ViewMut<'_>>,
        squares: &mut M::ViewMut<'_>,
        gamma: Gamma<M::View<'_>>,
        beta: Option<M::View<'_>>,
        y: &mut M::ViewMut<'_>,
    ) -> Done;

    /// [`norm_backward_sums`](crate::NormKernels::norm_backward_sums) and
    /// [`norm_backward`](crate::NormKernels::norm_backward). The first flag accumulates the gradients of gamma and
    /// beta, the second that of x.
    fn whole_norm_backward(
        &self,
        shape: NormShape,
        norm: NormInput<M::View<'_>>,
        dy: M::View<'_>,
        out: &mut M::ViewMut<'_>,
        dgamma: &mut M::ViewMut<'_>,
        dbeta: Option<&mut M::ViewMut<'_>>,
        dx: &mut M::ViewMut<'_>,
        accumulate: [bool; 2],
    ) -> Done;
}

/// The fused kernels of a backend that has none: there is no value of this type.
#[derive(Debug, Clone, Copy)]
pub enum NoFusedKernels {}

impl<M: RankMemory> FusedKernels<M> for NoFusedKernels {
    fn matmul_with_bias(
        &self,
        _product: ProductShape,
        _a: M::View<'_>,
        _b: M::View<'_>,
        _bias: M::View<'_>,
        _c: &mut M::ViewMut<'_>,
    ) -> Done {
        match *self {}
    }

    fn sum_squares_of_all(&self, _arrays: &[(M::View<'_>, Vec<Range<usize>>)]) -> Done {
        match *self {}
    }

    fn adamw_of_all(&self, _updates: &mut [ParameterUpdate<M::View<'_>, M::ViewMut<'_>>]) -> Done {
        match *self {}
    }

    fn whole_norm(
        &self,
        _shape: NormShape,
        _x: M::View<'_>,
        _sums: Option<&mut M::ViewMut<'_>>,
        _squares: &mut M::ViewMut<'_>,
        _gamma: Gamma<M::View<'_>>,
        _beta: Option<M::View<'_>>,
        _y: &mut M::ViewMut<'_>,
    ) -> Done {
        match *self {}
    }

    fn whole_norm_backward(
        &self,
        _shape: NormShape,
        _norm: NormInput<M::View<'_>>,
        _dy: M::View<'_>,
        _out: &mut M::ViewMut<'_>,
        _dgamma: &mut M::ViewMut<'_>,
        _dbeta: Option<&mut M::ViewMut<'_>>,
        _dx: &mut M::ViewMut<'_>,
        _accumulate: [bool; 2],
    ) -> Done {
        match *self {}
    }
}
