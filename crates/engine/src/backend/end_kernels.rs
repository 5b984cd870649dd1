//! Kernels of the model's ends.

use std::ops::Range;

use quadrille_tensor::{LogitsShape, Shape, TableShape};

use super::{Done, Positions, RankMemory};

/// Kernels of samples, embeddings and losses; `rows` and `numbers` are those of the microbatch.
pub trait EndKernels: RankMemory {
    /// See [`quadrille_tensor::embed_forward`].
    fn embed_forward(
        &self,
        shape: TableShape,
        samples: &Self::Samples,
        rows: Range<usize>,
        table: Self::View<'_>,
        y: &mut Self::ViewMut<'_>,
    ) -> Done;

    /// See [`quadrille_tensor::embed_backward`].
    fn embed_backward(
        &self,
        shape: TableShape,
        samples: &Self::Samples,
        rows: Range<usize>,
        dy: Self::View<'_>,
        dtable: &mut Self::ViewMut<'_>,
        accumulate: bool,
    ) -> Done;

    /// y = numbers of the patches, rounded.
    fn patches(&self, samples: &Self::Samples, numbers: Range<usize>, y: &mut Self::ViewMut<'_>) -> Done;

    /// See [`quadrille_tensor::add_positions`].
    fn add_positions(&self, shape: Shape, x: &mut Self::ViewMut<'_>, table: Self::View<'_>, at: Positions<'_>) -> Done;

    /// See [`quadrille_tensor::positions_backward`].
    fn positions_backward(
        &self,
        shape: Shape,
        dy: Self::View<'_>,
        dtable: &mut Self::ViewMut<'_>,
        at: Positions<'_>,
        accumulate: bool,
    ) -> Done;

    /// See [`quadrille_tensor::cross_entropy_max`].
    fn cross_entropy_max(&self, shape: LogitsShape, logits: Self::View<'_>, maxima: &mut Self::ViewMut<'_>) -> Done;

    /// See [`quadrille_tensor::cross_entropy_sums`].
    fn cross_entropy_sums(
        &self,
        shape: LogitsShape,
        samples: &Self::Samples,
        rows: Range<usize>,
        logits: Self::View<'_>,
        maxima: Self::View<'_>,
        sums: &mut Self::ViewMut<'_>,
    ) -> Done;

    /// See [`quadrille_tensor::cross_entropy_gradient`]; loss and targets that count are added to the totals.
    fn cross_entropy_gradient(
        &self,
        shape: LogitsShape,
        samples: &Self::Samples,
        rows: Range<usize>,
        logits: &mut Self::ViewMut<'_>,
        maxima: Self::View<'_>,
        sums: Self::View<'_>,
        scale: f64,
        cap: Option<f64>,
    ) -> Done;

    /// See [`quadrille_tensor::cross_entropy_loss`]; loss and targets that count are added to the totals.
    fn cross_entropy_loss(&self, samples: &Self::Samples, rows: Range<usize>, sums: Self::View<'_>) -> Done;

    /// See [`quadrille_tensor::squared_error`]; loss and numbers are added to the totals.
    fn squared_error(
        &self,
        samples: &Self::Samples,
        numbers: Range<usize>,
        predictions: &mut Self::ViewMut<'_>,
        scale: f64,
    ) -> Done;

    /// See [`quadrille_tensor::squared_error_loss`]; loss and numbers are added to the totals.
    fn squared_error_loss(&self, samples: &Self::Samples, numbers: Range<usize>, predictions: Self::View<'_>) -> Done;
}
