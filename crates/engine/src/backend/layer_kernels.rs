//! Kernels of products, whole arrays, perceptrons and columns.

use std::ops::Range;

use quadrille_spec::ElementType;
use quadrille_step::Product;
use quadrille_tensor::{AdamW, Curve, GroupedShape, PanelShape, ProductShape, Segments, Shape, Transpose};

use super::{Done, ElementMask, FusedKernels, RankMemory};
use crate::{Algorithms, EngineError};

/// Kernels of products, whole arrays, perceptrons and columns.
pub trait LayerKernels: RankMemory {
    /// Kernels that do several neighboring operations at once.
    type Fused: FusedKernels<Self>;

    /// The fused kernels; `None`: every operation is done by itself.
    fn fused(&self) -> Option<&Self::Fused>;

    // Products.

    /// Allocates and chooses what products need that will run as given, before the first of them.
    fn prepare_matmuls(&self, products: &[(ProductShape, Transpose)]) -> Done;

    /// Chooses an algorithm of the device's library for each product, whose result is of a type, by their times, and
    /// uses them from now on: all ranks on such devices get the same. `None`: there is no such choice here.
    fn choose_algorithms(&self, _products: &[(Product, ElementType)]) -> Result<Option<Algorithms>, EngineError> {
        Ok(None)
    }

    /// Uses algorithms that were chosen before; those of another device, driver or library are refused.
    fn use_algorithms(&self, chosen: &Algorithms) -> Done {
        Err(EngineError::OtherAlgorithms { of: chosen.device.clone(), here: "the processor".into() })
    }

    /// See [`quadrille_tensor::matmul_as`]; run as stored it is [`quadrille_tensor::matmul`].
    fn matmul(
        &self,
        product: ProductShape,
        run_as: Transpose,
        a: Self::View<'_>,
        b: Self::View<'_>,
        c: &mut Self::ViewMut<'_>,
        accumulate: bool,
    ) -> Done;

    /// See [`quadrille_tensor::grouped_matmul`].
    fn grouped_matmul(
        &self,
        shape: GroupedShape,
        segments: &Segments,
        a: Self::View<'_>,
        b: Self::View<'_>,
        c: &mut Self::ViewMut<'_>,
        accumulate: bool,
    ) -> Done;

    /// See [`quadrille_tensor::matmul_few_rows`].
    fn matmul_few_rows(
        &self,
        product: ProductShape,
        a: Self::View<'_>,
        b: Self::View<'_>,
        c: &mut Self::ViewMut<'_>,
    ) -> Done;

    // Whole arrays.

    /// y = x.
    fn copy(&self, y: &mut Self::ViewMut<'_>, x: Self::View<'_>) -> Done;

    /// y += x.
    fn add_assign(&self, y: &mut Self::ViewMut<'_>, x: Self::View<'_>) -> Done;

    /// See [`quadrille_tensor::compress`]; `y` has those of the kept elements that follow the first `from`.
    fn compress(
        &self,
        y: &mut Self::ViewMut<'_>,
        x: Self::View<'_>,
        indices: &Self::Indices,
        from: usize,
        accumulate: bool,
    ) -> Done;

    /// See [`quadrille_tensor::expand`].
    fn expand(&self, y: &mut Self::ViewMut<'_>, x: Self::View<'_>, indices: &Self::Indices) -> Done;

    /// x *= factor.
    fn scale(&self, x: &mut Self::ViewMut<'_>, factor: f64) -> Done;

    /// See [`quadrille_tensor::cap`].
    fn cap(&self, x: &mut Self::ViewMut<'_>, cap: f64) -> Done;

    /// p = master, rounded.
    fn round(&self, p: &mut Self::ViewMut<'_>, master: Self::View<'_>) -> Done;

    /// Adds the squares of the elements in `runs` to [`Totals::norm_squared`](crate::Totals::norm_squared).
    fn sum_squares(&self, x: Self::View<'_>, runs: &[Range<usize>]) -> Done;

    /// See [`quadrille_tensor::adamw`], with a master copy [`quadrille_tensor::adamw_master`]: with the scale, and only
    /// if, [`prepare_update`](RankMemory::prepare_update) has said so.
    fn adamw(
        &self,
        constants: &AdamW,
        p: &mut Self::ViewMut<'_>,
        master: Option<&mut Self::ViewMut<'_>>,
        g: Self::View<'_>,
        m: &mut Self::ViewMut<'_>,
        v: &mut Self::ViewMut<'_>,
    ) -> Done;

    // Biases, perceptrons, the residual stream. A gated function has pairs of columns: [rows, 2 * cols].

    /// See [`quadrille_tensor::bias_forward`].
    fn bias_forward(&self, shape: Shape, x: &mut Self::ViewMut<'_>, bias: Self::View<'_>) -> Done;

    /// See [`quadrille_tensor::bias_backward`].
    fn bias_backward(&self, shape: Shape, dy: Self::View<'_>, dbias: &mut Self::ViewMut<'_>, accumulate: bool) -> Done;

    /// See [`quadrille_tensor::bias_curve_forward`].
    fn bias_curve_forward(
        &self,
        curve: Curve,
        shape: Shape,
        pre: &mut Self::ViewMut<'_>,
        bias: Option<Self::View<'_>>,
        y: &mut Self::ViewMut<'_>,
    ) -> Done;

    /// See [`quadrille_tensor::bias_gated_forward`].
    fn bias_gated_forward(
        &self,
        curve: Curve,
        shape: Shape,
        pre: &mut Self::ViewMut<'_>,
        bias: Option<Self::View<'_>>,
        y: &mut Self::ViewMut<'_>,
    ) -> Done;

    /// See [`quadrille_tensor::activate_curve`].
    fn activate_curve(&self, curve: Curve, pre: Self::View<'_>, y: &mut Self::ViewMut<'_>) -> Done;

    /// See [`quadrille_tensor::activate_gated`].
    fn activate_gated(&self, curve: Curve, pre: Self::View<'_>, y: &mut Self::ViewMut<'_>) -> Done;

    /// See [`quadrille_tensor::bias_curve_backward`].
    fn bias_curve_backward(
        &self,
        curve: Curve,
        shape: Shape,
        pre: Self::View<'_>,
        dy: &mut Self::ViewMut<'_>,
        dbias: Option<&mut Self::ViewMut<'_>>,
        accumulate: bool,
    ) -> Done;

    /// See [`quadrille_tensor::bias_gated_backward`].
    fn bias_gated_backward(
        &self,
        curve: Curve,
        shape: Shape,
        pre: &mut Self::ViewMut<'_>,
        dy: Self::View<'_>,
        dbias: Option<&mut Self::ViewMut<'_>>,
        accumulate: bool,
    ) -> Done;

    /// See [`quadrille_tensor::dropout`].
    fn dropout(&self, shape: Shape, x: &mut Self::ViewMut<'_>, mask: &ElementMask) -> Done;

    /// See [`quadrille_tensor::residual_forward`].
    fn residual_forward(
        &self,
        shape: Shape,
        x: &mut Self::ViewMut<'_>,
        bias: Option<Self::View<'_>>,
        residual: Self::View<'_>,
        mask: Option<&ElementMask>,
    ) -> Done;

    // Columns.

    /// See [`quadrille_tensor::pack_columns`].
    fn pack_columns(&self, shape: Shape, parts: usize, x: Self::View<'_>, y: &mut Self::ViewMut<'_>) -> Done;

    /// See [`quadrille_tensor::unpack_columns`].
    fn unpack_columns(&self, shape: Shape, parts: usize, x: Self::View<'_>, y: &mut Self::ViewMut<'_>) -> Done;

    /// See [`quadrille_tensor::slice_columns`].
    fn slice_columns(
        &self,
        shape: Shape,
        part: usize,
        parts: usize,
        x: Self::View<'_>,
        y: &mut Self::ViewMut<'_>,
    ) -> Done;

    /// See [`quadrille_tensor::copy_panel_columns`].
    fn copy_panel_columns(&self, shape: PanelShape, x: Self::View<'_>, y: &mut Self::ViewMut<'_>) -> Done;

    /// See [`quadrille_tensor::store_panel_columns`].
    fn store_panel_columns(&self, shape: PanelShape, y: Self::View<'_>, x: &mut Self::ViewMut<'_>) -> Done;
}
