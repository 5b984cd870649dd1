//! What a rank computes with: its memory and its kernels.
//!
//! The interpreter (`execute/`) is the same for every device. [`Cpu`] runs the kernels of `quadrille_tensor` on the
//! rank's own threads; types are static, so that nothing lies between the interpreter and them.
//!
//! Elements have one of two types: values and weights that in which they are stored, sums, vectors, masters and moments that
//! which is computed in. A buffer is bytes, used for either. Views are ranges of a buffer; kernels get them in the place of
//! slices. Kernels that write in place or add get `&mut` views, so that the interpreter may go on using them.

#[macro_use]
mod elements;

mod cpu;
mod indices;
mod kinds;
mod loads;
mod memory;
mod norms;
mod totals;
mod view;

use std::borrow::Cow;
use std::ops::Range;

use quadrille_comm::Payload;
use quadrille_spec::ElementType;
use quadrille_step::{Product, Scalar};
use quadrille_tensor::{
    AdamW, AttentionShape, CacheShape, Curve, GroupShape, GroupedShape, HeadNorm, LatentShape, LogitsShape, NormShape,
    PanelShape, Pool, ProductShape, RouterLosses, RouterRule, RouterShape, Segments, Shape, SpreadShape, TableShape,
    TokenGroups, Transpose,
};

use crate::samples::OwnSamples;
use crate::{Algorithms, DeviceUse, EngineError, GraphUse, Real, Values};

pub use cpu::Cpu;
pub use indices::{AttentionMask, ElementMask, Positions};
pub use totals::{Totals, Update, UpdateRule};
pub use view::{Kind, View, ViewMut};

type Done = Result<(), EngineError>;
/// How many elements an operation has swept over.
type Swept = Result<usize, EngineError>;

/// What columns are multiplied with in a norm: `stored`, or 1 + `stored` where it is a distance from one (`offset`).
#[derive(Debug, Clone, Copy)]
pub struct Gamma<V> {
    /// `[cols]`
    pub stored: V,
    /// Whether it is a distance from one.
    pub offset: bool,
}

/// A row's reduced statistics: sums of a layer norm (none of an RMS norm) and squares, each `[rows]`.
#[derive(Debug, Clone, Copy)]
pub struct Statistics<V> {
    /// The sum over all columns; with it the norm takes off the mean.
    pub sums: Option<V>,
    /// The sum of the squares over all columns, of a layer norm of what is left of the mean.
    pub squares: V,
}

/// The update of a parameter: what [`Backend::adamw`] gets.
#[derive(Debug)]
pub struct ParameterUpdate<V, W> {
    /// The constants.
    pub constants: AdamW,
    /// The parameter, which is rounded from its master where it has one.
    pub p: W,
    /// The master copy.
    pub master: Option<W>,
    /// The gradient.
    pub g: V,
    /// The running mean of the gradient, and of its squares.
    pub moments: [W; 2],
}

/// A rank's memory and kernels on a device.
///
/// There is one method for each kernel that the interpreter calls, named, ordered and described as in
/// `quadrille_tensor`; outputs come last but for flags. Methods may return before their work is done: later ones see its
/// results, the host once [`download`](Self::download), [`totals`](Self::totals) or [`settle`](Self::settle) has
/// returned. All take `&self`: engines on one rank share its backend, and operands are borrowed beside it.
#[rustfmt::skip]
pub trait Backend: Sized + 'static {
    /// What is computed in, and what checkpoints and checks see: `f32` or `f64`.
    type Real: Real;
    /// What values and weights are stored in.
    type Stored: Values<Real = Self::Real>;
    /// Owned memory, and the payload of collectives: its mover knows in which order collectives and kernels use it.
    type Buffer: Payload<Self::Real> + Payload<Self::Stored>;
    /// A range of a buffer, to be read.
    type View<'v>: View;
    /// A range of a buffer, to be written.
    type ViewMut<'v>: ViewMut;
    /// Numbers of a scalar on their way through a collective.
    type Scalars: Payload<f64>;
    /// A microbatch's samples where kernels read them.
    type Samples: Default;
    /// Angles of some positions, by which queries and keys turn.
    type Angles;
    /// Places of kept elements in the tile of a pruned weight.
    type Indices;

    /// Whether neighbouring operations are done at once where a method for them is there: to the same bits, if it says nothing
    /// else.
    const FUSES: bool = false;

    // Memory.

    /// The device of a rank of the job, with so many threads of the host.
    fn open(rank: usize, threads: usize) -> Result<Self, EngineError>;
    /// The rank's threads of the host.
    fn pool(&self) -> &Pool;
    /// Takes memory for buffers of these sizes at once, where that is better: the next ones of such sizes come from it.
    fn reserve(&self, _buffers: &[u64]) -> Done { Ok(()) }
    /// What the rank has on a device with memory of its own.
    fn memory(&self) -> Result<Option<DeviceUse>, EngineError> { Ok(None) }
    /// What was done with graphs of the rank's kernels; `None`: none are made.
    fn graphs(&self) -> Option<GraphUse> { None }
    /// A buffer of so many bytes, all zero.
    fn allocate(&self, bytes: u64) -> Result<Self::Buffer, EngineError>;
    /// How many bytes a buffer has.
    fn bytes(of: &Self::Buffer) -> u64;
    /// Some elements of a buffer that holds this kind, to be read; a range beyond its end panics.
    fn view(of: &Self::Buffer, kind: Kind, range: Range<usize>) -> Self::View<'_>;
    /// Some elements of a buffer that holds this kind, to be written; a range beyond its end panics.
    fn view_mut(of: &mut Self::Buffer, kind: Kind, range: Range<usize>) -> Self::ViewMut<'_>;
    /// Some elements of a view; a range beyond its end panics.
    fn part<'p>(of: &'p mut Self::ViewMut<'_>, range: Range<usize>) -> Self::ViewMut<'p>;
    /// Lets the host change elements: `write` gets them as they are, and what it leaves is rounded to what they are stored in.
    fn upload<R>(&self, to: &mut Self::ViewMut<'_>, write: impl FnOnce(&mut [Self::Real]) -> R) -> Result<R, EngineError>;
    /// Lets the host look at elements.
    fn download<R>(&self, from: Self::View<'_>, read: impl FnOnce(&[Self::Real]) -> R) -> Result<R, EngineError>;
    /// Lets the host write the first bytes of a buffer that no kernel uses; from any thread, done when it returns.
    fn fill<R>(to: &mut Self::Buffer, bytes: usize, write: impl FnOnce(&mut [u8]) -> R) -> R;
    /// Lets the host read the first bytes of a buffer that no kernel uses; from any thread, done when it returns.
    fn look<R>(from: &Self::Buffer, bytes: usize, read: impl FnOnce(&[u8]) -> R) -> R;
    /// Places of kept elements, in ascending order, in memory for `room` of them.
    fn indices(&self, positions: Vec<u32>, room: usize) -> Result<Self::Indices, EngineError>;
    /// Lets the host look at them.
    fn positions<'i>(&self, of: &'i Self::Indices) -> Result<Cow<'i, [u32]>, EngineError>;
    /// Brings a microbatch's samples to where kernels read them; `from` may be left with other memory.
    fn load_samples(&self, from: &mut OwnSamples, to: &mut Self::Samples) -> Done;
    /// Waits until all work is done.
    fn settle(&self) -> Done;
    /// The rank is about to wait for others, through with a section, or with each operation of a trace: what is held back, to be begun
    /// with more, is to begin.
    fn start(&self) -> Done {
        Ok(())
    }

    // Totals of a step.

    /// A step begins: all totals are zero.
    fn begin_step(&self) -> Done;
    /// The totals; waits for them.
    fn totals(&self) -> Result<Totals, EngineError>;
    /// How often each expert was chosen, one block's behind those of the one before; waits for it.
    fn loads(&self) -> Result<Vec<u64>, EngineError>;
    /// What ranks add up for a scalar: of the loss the loss and the number of targets.
    fn take_scalar(&self, scalar: Scalar) -> Result<Self::Scalars, EngineError>;
    /// The sums over ranks take the place of this rank's totals.
    fn put_scalar(&self, scalar: Scalar, summed: Self::Scalars) -> Done;
    /// Decides what [`adamw`](Self::adamw) does from now on, from the totals of all ranks.
    fn prepare_update(&self, rule: &UpdateRule) -> Done;
    /// The same before the norm is known ([`UpdateRule::attempt`]).
    fn prepare_attempt(&self, rule: &UpdateRule) -> Done;

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
    /// Adds the squares of the elements in `runs` to [`Totals::norm_squared`].
    fn sum_squares(&self, x: Self::View<'_>, runs: &[Range<usize>]) -> Done;
    /// [`sum_squares`](Self::sum_squares) of several arrays, one after another. Asked for where [`FUSES`](Self::FUSES).
    fn sum_squares_of_all(&self, _arrays: &[(Self::View<'_>, Vec<Range<usize>>)]) -> Done { unreachable!("it fuses nothing") }
    /// See [`quadrille_tensor::adamw`], with a master copy [`quadrille_tensor::adamw_master`]: with the scale, and only if,
    /// [`prepare_update`](Self::prepare_update) has said so.
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

    // Attention.

    /// The table of angles of some positions, for heads of `head_dim` columns whose pairs turn by `frequencies`.
    fn angles(&self, head_dim: usize, frequencies: &[f64], positions: impl Iterator<Item = usize>) -> Result<Self::Angles, EngineError>;
    /// See [`quadrille_tensor::join_latent`].
    fn join_latent(&self, shape: LatentShape, queries: Self::View<'_>, pairs: Self::View<'_>, shared: Self::View<'_>, qkv: &mut Self::ViewMut<'_>) -> Done;
    /// See [`quadrille_tensor::split_latent`].
    fn split_latent(&self, shape: LatentShape, dqkv: Self::View<'_>, dqueries: &mut Self::ViewMut<'_>, dpairs: &mut Self::ViewMut<'_>, dshared: &mut Self::ViewMut<'_>) -> Done;
    /// See [`quadrille_tensor::rotate`].
    fn rotate(&self, shape: GroupShape, angles: &Self::Angles, at: Positions<'_>, x: &mut Self::ViewMut<'_>, back: bool) -> Swept;
    /// See [`quadrille_tensor::attention_forward`].
    fn attention_forward(&self, shape: AttentionShape, qkv: Self::View<'_>, keys_values: Option<Self::View<'_>>, out: &mut Self::ViewMut<'_>, log_sum_exp: &mut Self::ViewMut<'_>, mask: Option<&AttentionMask>) -> Done;
    /// See [`quadrille_tensor::attention_backward`].
    fn attention_backward(&self, shape: AttentionShape, qkv: Self::View<'_>, keys_values: Option<(Self::View<'_>, &mut Self::ViewMut<'_>)>, out: Self::View<'_>, log_sum_exp: Self::View<'_>, dout: Self::View<'_>, dqkv: &mut Self::ViewMut<'_>, mask: Option<&AttentionMask>) -> Done;
    /// See [`quadrille_tensor::split_heads`].
    fn split_heads(&self, shape: GroupShape, qkv: Self::View<'_>, queries: &mut Self::ViewMut<'_>, keys: &mut Self::ViewMut<'_>) -> Done;
    /// See [`quadrille_tensor::join_heads`].
    fn join_heads(&self, shape: GroupShape, queries: Self::View<'_>, keys: Self::View<'_>, beside: Option<Self::View<'_>>, qkv: &mut Self::ViewMut<'_>) -> Done;
    /// See [`quadrille_tensor::pack_keys_values`].
    fn pack_keys_values(&self, shape: GroupShape, qkv: Self::View<'_>, kv: &mut Self::ViewMut<'_>) -> Done;
    /// See [`quadrille_tensor::unpack_keys_values`].
    fn unpack_keys_values(&self, shape: GroupShape, kv: Self::View<'_>, qkv: &mut Self::ViewMut<'_>) -> Done;
    /// See [`quadrille_tensor::store_keys_values`].
    fn store_keys_values(&self, shape: CacheShape, starts: &[usize], qkv: Self::View<'_>, cache: &mut Self::ViewMut<'_>) -> Done;
    /// See [`quadrille_tensor::cached_attention`].
    fn cached_attention(&self, shape: CacheShape, starts: &[usize], qkv: Self::View<'_>, cache: Self::View<'_>, out: &mut Self::ViewMut<'_>) -> Done;
    /// See [`quadrille_tensor::newest_rows`].
    fn newest_rows(&self, cols: usize, tokens: usize, newest: &[usize], x: Self::View<'_>, y: &mut Self::ViewMut<'_>) -> Done;

    // Experts. Routers compute in the real type; rows that are spread are values.

    /// See [`quadrille_tensor::router_forward`].
    fn router_forward(&self, shape: RouterShape, cols: usize, x: Self::View<'_>, weight: Self::View<'_>, logits: &mut Self::ViewMut<'_>) -> Done;
    /// See [`quadrille_tensor::router_input_gradient`].
    fn router_input_gradient(&self, shape: RouterShape, cols: usize, dlogits: Self::View<'_>, weight: Self::View<'_>, dx: &mut Self::ViewMut<'_>) -> Done;
    /// See [`quadrille_tensor::router_weight_gradient`].
    fn router_weight_gradient(&self, shape: RouterShape, cols: usize, x: Self::View<'_>, dlogits: Self::View<'_>, dweight: &mut Self::ViewMut<'_>, accumulate: bool) -> Done;
    /// See [`quadrille_tensor::route`].
    fn route(&self, shape: RouterShape, rule: RouterRule, groups: TokenGroups, logits: Self::View<'_>, bias: Option<Self::View<'_>>, routes: &mut Self::ViewMut<'_>) -> Done;
    /// See [`quadrille_tensor::count_choices`].
    fn count_choices(&self, shape: RouterShape, routes: Self::View<'_>, scope: impl Fn(usize) -> usize, counts: &mut Self::ViewMut<'_>, accumulate: bool) -> Done;
    /// See [`quadrille_tensor::follow_loads`]: only if [`prepare_update`](Self::prepare_update) has said that the step is applied.
    fn follow_loads(&self, rate: f64, choices: usize, experts: usize, loads: Self::View<'_>, bias: &mut Self::ViewMut<'_>) -> Done;
    /// See [`quadrille_tensor::router_losses`] and [`quadrille_tensor::dropped_choices`]; they are added to the totals, and choices to
    /// the loads from the block's `first` expert on. Where there are no counts loads are not balanced.
    fn router_losses(&self, first: usize, shape: RouterShape, rule: RouterRule, losses: RouterLosses, logits: Self::View<'_>, routes: Self::View<'_>, counts: Option<Self::View<'_>>, scope: impl Fn(usize) -> usize) -> Done;
    /// See [`quadrille_tensor::route_backward`].
    fn route_backward(&self, shape: RouterShape, rule: RouterRule, losses: RouterLosses, factor: f64, logits: &mut Self::ViewMut<'_>, routes: Self::View<'_>, counts: Option<Self::View<'_>>, dweights: Self::View<'_>, scope: impl Fn(usize) -> usize + Sync) -> Done;
    /// See [`quadrille_tensor::spread`].
    fn spread(&self, shape: SpreadShape<'_>, x: Self::View<'_>, routes: Self::View<'_>, y: &mut Self::ViewMut<'_>) -> Done;
    /// See [`quadrille_tensor::spread_backward`].
    fn spread_backward(&self, shape: SpreadShape<'_>, dy: Self::View<'_>, routes: Self::View<'_>, dx: &mut Self::ViewMut<'_>) -> Done;
    /// See [`quadrille_tensor::combine`].
    fn combine(&self, shape: SpreadShape<'_>, x: Self::View<'_>, routes: Self::View<'_>, y: &mut Self::ViewMut<'_>) -> Done;
    /// See [`quadrille_tensor::combine_backward`].
    fn combine_backward(&self, shape: SpreadShape<'_>, dy: Self::View<'_>, x: Self::View<'_>, routes: Self::View<'_>, dx: &mut Self::ViewMut<'_>, dweights: &mut Self::ViewMut<'_>) -> Done;

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
