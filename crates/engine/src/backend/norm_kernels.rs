//! Kernels of norms.

use quadrille_tensor::{HeadNorm, NormShape, Shape};

use super::{Done, Gamma, NormInput, RankMemory, Swept};

/// Kernels of layer norm and RMS norm, in the pieces between which ranks reduce.
pub trait NormKernels: RankMemory {
    /// See [`quadrille_tensor::norm_row_sums`].
    fn norm_row_sums(&self, shape: Shape, x: Self::View<'_>, sums: &mut Self::ViewMut<'_>) -> Done;

    /// See [`quadrille_tensor::norm_centered_squares`].
    fn norm_centered_squares(
        &self,
        shape: NormShape,
        x: Self::View<'_>,
        sums: Self::View<'_>,
        squares: &mut Self::ViewMut<'_>,
    ) -> Done;

    /// See [`quadrille_tensor::rms_norm_squares`].
    fn rms_norm_squares(&self, shape: Shape, x: Self::View<'_>, squares: &mut Self::ViewMut<'_>) -> Done;

    /// See [`quadrille_tensor::norm_forward`]; without sums and `beta` [`quadrille_tensor::rms_norm_forward`].
    fn norm_forward(
        &self,
        shape: NormShape,
        norm: NormInput<Self::View<'_>>,
        beta: Option<Self::View<'_>>,
        y: &mut Self::ViewMut<'_>,
    ) -> Done;

    /// See [`quadrille_tensor::norm_backward_sums`]; without sums and `dbeta`
    /// [`quadrille_tensor::rms_norm_backward_sums`].
    fn norm_backward_sums(
        &self,
        shape: NormShape,
        norm: NormInput<Self::View<'_>>,
        dy: Self::View<'_>,
        out: &mut Self::ViewMut<'_>,
        dgamma: &mut Self::ViewMut<'_>,
        dbeta: Option<&mut Self::ViewMut<'_>>,
        accumulate: bool,
    ) -> Done;

    /// See [`quadrille_tensor::norm_backward`]; without sums [`quadrille_tensor::rms_norm_backward`].
    fn norm_backward(
        &self,
        shape: NormShape,
        norm: NormInput<Self::View<'_>>,
        dy: Self::View<'_>,
        reduced: Self::View<'_>,
        dx: &mut Self::ViewMut<'_>,
        accumulate: bool,
    ) -> Done;

    /// See [`quadrille_tensor::head_norm_forward`].
    fn head_norm_forward(
        &self,
        norm: HeadNorm,
        gamma: Gamma<Self::View<'_>>,
        beta: Option<Self::View<'_>>,
        x: &mut Self::ViewMut<'_>,
    ) -> Swept;

    /// See [`quadrille_tensor::head_norm_backward`].
    fn head_norm_backward(
        &self,
        norm: HeadNorm,
        x: Self::View<'_>,
        gamma: Gamma<Self::View<'_>>,
        dy: &mut Self::ViewMut<'_>,
        dgamma: &mut Self::ViewMut<'_>,
        dbeta: Option<&mut Self::ViewMut<'_>>,
        accumulate: bool,
    ) -> Swept;
}
