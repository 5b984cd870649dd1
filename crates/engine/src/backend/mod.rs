//! Backends: a rank's memory and kernels on a device.
//!
//! The interpreter (`interpreter/`) is the same for every device. [`Cpu`] runs the kernels of `quadrille_tensor` on the
//! rank's own threads; types are static, so that nothing lies between the interpreter and them.
//!
//! Elements have one of two types: values and weights that in which they are stored, sums, vectors, masters and moments
//! that which is computed in. A buffer is bytes, used for either. Views are ranges of a buffer; kernels get them in the
//! place of slices. Kernels that write in place or add get `&mut` views, so that the interpreter may go on using them.

#[macro_use]
mod elements;

pub(crate) mod algorithms;
mod attention_kernels;
mod cpu;
pub(crate) mod device;
mod end_kernels;
mod expert_kernels;
mod fused_kernels;
mod indices;
mod kinds;
mod layer_kernels;
mod loads;
mod memory;
mod norm_kernels;
pub(crate) mod on_cpu;
mod rank_memory;
mod totals;
mod view;

use quadrille_tensor::AdamW;

use crate::EngineError;

pub use attention_kernels::AttentionKernels;
pub use cpu::Cpu;
pub use end_kernels::EndKernels;
pub use expert_kernels::ExpertKernels;
pub use fused_kernels::{FusedKernels, NoFusedKernels};
pub use indices::{AttentionMask, ElementMask, Positions};
pub use layer_kernels::LayerKernels;
pub use norm_kernels::NormKernels;
pub use rank_memory::RankMemory;
pub use totals::{Totals, Update, UpdateRule};
pub use view::{Kind, View, ViewMut};

type Done = Result<(), EngineError>;
/// Number of elements that an operation has swept over.
type Swept = Result<usize, EngineError>;

/// Factors of columns in a norm: `stored`, or 1 + `stored` where it is a distance from one (`offset`).
#[derive(Debug, Clone, Copy)]
pub struct Gamma<V> {
    /// `[cols]`
    pub stored: V,
    /// True if `stored` is a distance from one.
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

/// The input of a norm, with the statistics and factors that normalize it.
#[derive(Debug, Clone, Copy)]
pub struct NormInput<V> {
    /// `[rows, cols]`
    pub x: V,
    /// Reduced over all columns.
    pub statistics: Statistics<V>,
    /// Factors of columns.
    pub gamma: Gamma<V>,
}

/// The update of a parameter: operands of [`LayerKernels::adamw`].
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
/// results, the host once [`download`](RankMemory::download), [`totals`](RankMemory::totals) or
/// [`settle`](RankMemory::settle) has returned. All take `&self`: engines on one rank share its backend, and operands
/// are borrowed beside it.
pub trait Backend: LayerKernels + NormKernels + EndKernels + AttentionKernels + ExpertKernels {}

impl<B: LayerKernels + NormKernels + EndKernels + AttentionKernels + ExpertKernels> Backend for B {}
