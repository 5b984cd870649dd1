//! Kernels of everything but attention and experts.

use std::ops::Range;

use quadrille_spec::ElementType;
use quadrille_step::Product;
use quadrille_tensor::{
    AdamW, Curve, GroupedShape, HeadNorm, LogitsShape, NormShape, PanelShape, ProductShape, Segments, Shape,
    TableShape, Transpose,
};

use super::{Done, ElementMask, Gamma, ParameterUpdate, Positions, RankMemory, Statistics, Swept};
use crate::{Algorithms, EngineError};

/// Kernels of products, whole arrays, the model's ends, norms and perceptrons.
#[rustfmt::skip]
pub trait LayerKernels: RankMemory {
    /// Whether neighbouring operations are done at once where a method for them is there: to the same bits, if it says nothing
    /// else.
    const FUSES: bool = false;

    // Products.

    /// Allocates and chooses what products need that will run as given, before the first of them.
    fn prepare_matmuls(&self, products: &[(ProductShape, Transpose)]) -> Done;
    /// Chooses an algorithm of the device's library for each product, whose result is of a type, by their times, and uses them
    /// from now on: all ranks on such devices get the same. `None`: there is no such choice here.
    fn choose_algorithms(&self, _products: &[(Product, ElementType)]) -> Result<Option<Algorithms>, EngineError> { Ok(None) }
    /// Uses algorithms that were chosen before; those of another device, driver or library are refused.
    fn use_algorithms(&self, chosen: &Algorithms) -> Done { Err(EngineError::OtherAlgorithms { of: chosen.device.clone(), here: "the processor".into() }) }
    /// See [`quadrille_tensor::matmul_as`]; run as stored it is [`quadrille_tensor::matmul`].
    fn matmul(&self, product: ProductShape, run_as: Transpose, a: Self::View<'_>, b: Self::View<'_>, c: &mut Self::ViewMut<'_>, accumulate: bool) -> Done;
    /// [`matmul`](Self::matmul), and [`bias_forward`](Self::bias_forward) of its result: at once the sum may be rounded once, and
    /// the bias before. Asked for where [`FUSES`](Self::FUSES).
    fn matmul_with_bias(&self, _product: ProductShape, _run_as: Transpose, _a: Self::View<'_>, _b: Self::View<'_>, _bias: Self::View<'_>, _c: &mut Self::ViewMut<'_>) -> Done { unreachable!("it fuses nothing") }
    /// See [`quadrille_tensor::grouped_matmul`].
    fn grouped_matmul(&self, shape: GroupedShape, segments: &Segments, a: Self::View<'_>, b: Self::View<'_>, c: &mut Self::ViewMut<'_>, accumulate: bool) -> Done;
    /// See [`quadrille_tensor::matmul_few_rows`].
    fn matmul_few_rows(&self, product: ProductShape, a: Self::View<'_>, b: Self::View<'_>, c: &mut Self::ViewMut<'_>) -> Done;

    // Whole arrays.

    /// y = x.
    fn copy(&self, y: &mut Self::ViewMut<'_>, x: Self::View<'_>) -> Done;
    /// y += x.
    fn add_assign(&self, y: &mut Self::ViewMut<'_>, x: Self::View<'_>) -> Done;
    /// See [`quadrille_tensor::compress`]; `y` has those of the kept elements that follow the first `from`.
    fn compress(&self, y: &mut Self::ViewMut<'_>, x: Self::View<'_>, indices: &Self::Indices, from: usize, accumulate: bool) -> Done;
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
    /// [`sum_squares`](Self::sum_squares) of several arrays, one after another. Asked for where [`FUSES`](Self::FUSES).
    fn sum_squares_of_all(&self, _arrays: &[(Self::View<'_>, Vec<Range<usize>>)]) -> Done { unreachable!("it fuses nothing") }
    /// See [`quadrille_tensor::adamw`], with a master copy [`quadrille_tensor::adamw_master`]: with the scale, and only if,
    /// [`prepare_update`](RankMemory::prepare_update) has said so.
    fn adamw(&self, constants: &AdamW, p: &mut Self::ViewMut<'_>, master: Option<&mut Self::ViewMut<'_>>, g: Self::View<'_>, m: &mut Self::ViewMut<'_>, v: &mut Self::ViewMut<'_>) -> Done;

    /// [`adamw`](Self::adamw) of several parameters at once. Asked for where [`FUSES`](Self::FUSES).
    fn adamw_of_all(&self, _updates: &mut [ParameterUpdate<Self::View<'_>, Self::ViewMut<'_>>]) -> Done { unreachable!("it fuses nothing") }

    // Samples, embeddings and losses; `rows` and `numbers` are those of the microbatch.

    /// See [`quadrille_tensor::embed_forward`].
    fn embed_forward(&self, shape: TableShape, samples: &Self::Samples, rows: Range<usize>, table: Self::View<'_>, y: &mut Self::ViewMut<'_>) -> Done;
    /// See [`quadrille_tensor::embed_backward`].
    fn embed_backward(&self, shape: TableShape, samples: &Self::Samples, rows: Range<usize>, dy: Self::View<'_>, dtable: &mut Self::ViewMut<'_>, accumulate: bool) -> Done;
    /// y = numbers of the patches, rounded.
    fn patches(&self, samples: &Self::Samples, numbers: Range<usize>, y: &mut Self::ViewMut<'_>) -> Done;
    /// See [`quadrille_tensor::add_positions`].
    fn add_positions(&self, shape: Shape, x: &mut Self::ViewMut<'_>, table: Self::View<'_>, at: Positions<'_>) -> Done;
    /// See [`quadrille_tensor::positions_backward`].
    fn positions_backward(&self, shape: Shape, dy: Self::View<'_>, dtable: &mut Self::ViewMut<'_>, at: Positions<'_>, accumulate: bool) -> Done;
    /// See [`quadrille_tensor::cross_entropy_max`].
    fn cross_entropy_max(&self, shape: LogitsShape, logits: Self::View<'_>, maxima: &mut Self::ViewMut<'_>) -> Done;
    /// See [`quadrille_tensor::cross_entropy_sums`].
    fn cross_entropy_sums(&self, shape: LogitsShape, samples: &Self::Samples, rows: Range<usize>, logits: Self::View<'_>, maxima: Self::View<'_>, sums: &mut Self::ViewMut<'_>) -> Done;
    /// See [`quadrille_tensor::cross_entropy_gradient`]; loss and targets that count are added to the totals.
    fn cross_entropy_gradient(&self, shape: LogitsShape, samples: &Self::Samples, rows: Range<usize>, logits: &mut Self::ViewMut<'_>, maxima: Self::View<'_>, sums: Self::View<'_>, scale: f64, cap: Option<f64>) -> Done;
    /// See [`quadrille_tensor::cross_entropy_loss`]; loss and targets that count are added to the totals.
    fn cross_entropy_loss(&self, samples: &Self::Samples, rows: Range<usize>, sums: Self::View<'_>) -> Done;
    /// See [`quadrille_tensor::squared_error`]; loss and numbers are added to the totals.
    fn squared_error(&self, samples: &Self::Samples, numbers: Range<usize>, predictions: &mut Self::ViewMut<'_>, scale: f64) -> Done;
    /// See [`quadrille_tensor::squared_error_loss`]; loss and numbers are added to the totals.
    fn squared_error_loss(&self, samples: &Self::Samples, numbers: Range<usize>, predictions: Self::View<'_>) -> Done;

    // Norms: layer norm and RMS norm, in the pieces between which ranks reduce.

    /// See [`quadrille_tensor::norm_row_sums`].
    fn norm_row_sums(&self, shape: Shape, x: Self::View<'_>, sums: &mut Self::ViewMut<'_>) -> Done;
    /// See [`quadrille_tensor::norm_centered_squares`].
    fn norm_centered_squares(&self, shape: NormShape, x: Self::View<'_>, sums: Self::View<'_>, squares: &mut Self::ViewMut<'_>) -> Done;
    /// See [`quadrille_tensor::rms_norm_squares`].
    fn rms_norm_squares(&self, shape: Shape, x: Self::View<'_>, squares: &mut Self::ViewMut<'_>) -> Done;
    /// See [`quadrille_tensor::norm_forward`]; without sums and `beta` [`quadrille_tensor::rms_norm_forward`].
    fn norm_forward(&self, shape: NormShape, x: Self::View<'_>, statistics: Statistics<Self::View<'_>>, gamma: Gamma<Self::View<'_>>, beta: Option<Self::View<'_>>, y: &mut Self::ViewMut<'_>) -> Done;
    /// See [`quadrille_tensor::norm_backward_sums`]; without sums and `dbeta` [`quadrille_tensor::rms_norm_backward_sums`].
    fn norm_backward_sums(&self, shape: NormShape, x: Self::View<'_>, statistics: Statistics<Self::View<'_>>, gamma: Gamma<Self::View<'_>>, dy: Self::View<'_>, out: &mut Self::ViewMut<'_>, dgamma: &mut Self::ViewMut<'_>, dbeta: Option<&mut Self::ViewMut<'_>>, accumulate: bool) -> Done;
    /// See [`quadrille_tensor::norm_backward`]; without sums [`quadrille_tensor::rms_norm_backward`].
    fn norm_backward(&self, shape: NormShape, x: Self::View<'_>, statistics: Statistics<Self::View<'_>>, gamma: Gamma<Self::View<'_>>, dy: Self::View<'_>, reduced: Self::View<'_>, dx: &mut Self::ViewMut<'_>, accumulate: bool) -> Done;
    /// [`norm_row_sums`](Self::norm_row_sums), [`norm_centered_squares`](Self::norm_centered_squares) and
    /// [`norm_forward`](Self::norm_forward) at once; without sums and `beta` [`rms_norm_squares`](Self::rms_norm_squares) and the
    /// norm. Asked for where [`FUSES`](Self::FUSES).
    fn whole_norm(&self, _shape: NormShape, _x: Self::View<'_>, _sums: Option<&mut Self::ViewMut<'_>>, _squares: &mut Self::ViewMut<'_>, _gamma: Gamma<Self::View<'_>>, _beta: Option<Self::View<'_>>, _y: &mut Self::ViewMut<'_>) -> Done { unreachable!("it fuses nothing") }
    /// [`norm_backward_sums`](Self::norm_backward_sums) and [`norm_backward`](Self::norm_backward) at once; `add` says of the
    /// gradients of gamma and beta, and of that of x, whether they are added. Asked for where [`FUSES`](Self::FUSES).
    fn whole_norm_backward(&self, _shape: NormShape, _x: Self::View<'_>, _statistics: Statistics<Self::View<'_>>, _gamma: Gamma<Self::View<'_>>, _dy: Self::View<'_>, _out: &mut Self::ViewMut<'_>, _dgamma: &mut Self::ViewMut<'_>, _dbeta: Option<&mut Self::ViewMut<'_>>, _dx: &mut Self::ViewMut<'_>, _add: [bool; 2]) -> Done { unreachable!("it fuses nothing") }
    /// See [`quadrille_tensor::head_norm_forward`].
    fn head_norm_forward(&self, norm: HeadNorm, gamma: Gamma<Self::View<'_>>, beta: Option<Self::View<'_>>, x: &mut Self::ViewMut<'_>) -> Swept;
    /// See [`quadrille_tensor::head_norm_backward`].
    fn head_norm_backward(&self, norm: HeadNorm, x: Self::View<'_>, gamma: Gamma<Self::View<'_>>, dy: &mut Self::ViewMut<'_>, dgamma: &mut Self::ViewMut<'_>, dbeta: Option<&mut Self::ViewMut<'_>>, accumulate: bool) -> Swept;

    // Biases, perceptrons, the residual stream. A gated function has pairs of columns: [rows, 2 * cols].

    /// See [`quadrille_tensor::bias_forward`].
    fn bias_forward(&self, shape: Shape, x: &mut Self::ViewMut<'_>, bias: Self::View<'_>) -> Done;
    /// See [`quadrille_tensor::bias_backward`].
    fn bias_backward(&self, shape: Shape, dy: Self::View<'_>, dbias: &mut Self::ViewMut<'_>, accumulate: bool) -> Done;
    /// See [`quadrille_tensor::bias_curve_forward`].
    fn bias_curve_forward(&self, curve: Curve, shape: Shape, pre: &mut Self::ViewMut<'_>, bias: Option<Self::View<'_>>, y: &mut Self::ViewMut<'_>) -> Done;
    /// See [`quadrille_tensor::bias_gated_forward`].
    fn bias_gated_forward(&self, curve: Curve, shape: Shape, pre: &mut Self::ViewMut<'_>, bias: Option<Self::View<'_>>, y: &mut Self::ViewMut<'_>) -> Done;
    /// See [`quadrille_tensor::activate_curve`].
    fn activate_curve(&self, curve: Curve, pre: Self::View<'_>, y: &mut Self::ViewMut<'_>) -> Done;
    /// See [`quadrille_tensor::activate_gated`].
    fn activate_gated(&self, curve: Curve, pre: Self::View<'_>, y: &mut Self::ViewMut<'_>) -> Done;
    /// See [`quadrille_tensor::bias_curve_backward`].
    fn bias_curve_backward(&self, curve: Curve, shape: Shape, pre: Self::View<'_>, dy: &mut Self::ViewMut<'_>, dbias: Option<&mut Self::ViewMut<'_>>, accumulate: bool) -> Done;
    /// See [`quadrille_tensor::bias_gated_backward`].
    fn bias_gated_backward(&self, curve: Curve, shape: Shape, pre: &mut Self::ViewMut<'_>, dy: Self::View<'_>, dbias: Option<&mut Self::ViewMut<'_>>, accumulate: bool) -> Done;
    /// See [`quadrille_tensor::dropout`].
    fn dropout(&self, shape: Shape, x: &mut Self::ViewMut<'_>, mask: &ElementMask) -> Done;
    /// See [`quadrille_tensor::residual_forward`].
    fn residual_forward(&self, shape: Shape, x: &mut Self::ViewMut<'_>, bias: Option<Self::View<'_>>, residual: Self::View<'_>, mask: Option<&ElementMask>) -> Done;

    // Columns.

    /// See [`quadrille_tensor::pack_columns`].
    fn pack_columns(&self, shape: Shape, parts: usize, x: Self::View<'_>, y: &mut Self::ViewMut<'_>) -> Done;
    /// See [`quadrille_tensor::unpack_columns`].
    fn unpack_columns(&self, shape: Shape, parts: usize, x: Self::View<'_>, y: &mut Self::ViewMut<'_>) -> Done;
    /// See [`quadrille_tensor::slice_columns`].
    fn slice_columns(&self, shape: Shape, part: usize, parts: usize, x: Self::View<'_>, y: &mut Self::ViewMut<'_>) -> Done;
    /// See [`quadrille_tensor::copy_panel_columns`].
    fn copy_panel_columns(&self, shape: PanelShape, x: Self::View<'_>, y: &mut Self::ViewMut<'_>) -> Done;
    /// See [`quadrille_tensor::store_panel_columns`].
    fn store_panel_columns(&self, shape: PanelShape, y: Self::View<'_>, x: &mut Self::ViewMut<'_>) -> Done;
}
