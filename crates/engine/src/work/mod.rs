//! Pieces of a rank's work, to be measured: one code for all devices.
//!
//! [`Device::workbench`](crate::Device::workbench) opens what a rank computes with, a [`Workbench`] prepares operands
//! there, and what it gives back repeats the work by the methods of [`Backend`] that training calls, and returns when it is
//! done. Who measures takes the time by the clock of the host.

mod collectives;
mod operands;
mod operations;

use quadrille_comm::{Group, RankContext};
use quadrille_spec::{CollectiveKind, ElementType};
use quadrille_tensor::Transpose;

use crate::{Backend, EngineError};

pub use collectives::{exchange, second_elements};

/// What can be measured of a rank.
#[derive(Clone)]
pub enum Work {
    /// A product, whose operands and result are values.
    Product {
        /// How the operands are stored.
        layout: Transpose,
        /// `[m, n, k]`: `[m, n]` is given, contracted over k.
        shape: [usize; 3],
    },
    /// Causal attention of one sequence.
    Attention {
        /// The gradients of queries, keys and values.
        backward: bool,
        /// `[sequence, width of a head, heads]`.
        shape: [usize; 3],
    },
    /// Element-wise work on values, in rows of 64.
    Sweep {
        /// Which.
        sweep: Sweep,
        /// Of each operand: whole rows of 64, what is left over is not worked on.
        elements: usize,
    },
    /// A collective of a group, whose members all do it; a message goes to the other of two members and comes back.
    Collective {
        /// Which.
        kind: CollectiveKind,
        /// Who takes part.
        group: Group,
        /// Of the whole buffer, as far as its elements divide into equal parts for the members.
        bytes: usize,
    },
    /// So many bytes from the host's memory to the device's, and back: as states move that lie below the device.
    HostCopy {
        /// One way.
        bytes: usize,
    },
}

/// Element-wise operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sweep {
    /// `x += residual`.
    Residual,
    /// An optimizer's update; of values that are narrower than what is computed in, with a master copy.
    AdamW,
    /// GELU of `x + bias`.
    BiasGelu,
    /// Its gradient.
    GeluBackward,
}

impl Sweep {
    /// The name in ledgers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Residual => "residual",
            Self::AdamW => "adamw",
            Self::BiasGelu => "bias-gelu",
            Self::GeluBackward => "gelu-backward",
        }
    }

    /// Bytes read and written for an element, where values have this type.
    pub fn bytes(self, dtype: ElementType) -> u64 {
        let stored = dtype.bytes();
        let real = dtype.real().bytes();
        match self {
            Self::Residual | Self::BiasGelu | Self::GeluBackward => 3 * stored,
            // The gradient is read; the master, or else the parameter, and two moments are read and written.
            Self::AdamW if dtype.is_narrow() => stored + 7 * real,
            Self::AdamW => 7 * real,
        }
    }
}

/// What a rank computes with, for pieces of work in one type of values.
pub trait Workbench {
    /// Takes memory for a piece of work and fills in its operands. All ranks that share a device or communicate do so at once.
    ///
    /// # Errors
    /// The device's, above all too little memory.
    fn prepare(&self, work: &Work) -> Result<Box<dyn Prepared + '_>, EngineError>;
}

/// Work whose operands are there.
pub trait Prepared {
    /// Does it so many times, one after the other; all of it is done when this returns.
    ///
    /// # Errors
    /// The device's; of a collective another rank's.
    fn repeat(&mut self, times: usize) -> Result<(), EngineError>;

    /// What it has written last, to be held against the same work elsewhere.
    ///
    /// # Errors
    /// The device's.
    fn result(&self) -> Result<Vec<f64>, EngineError>;
}

/// A rank's workbench on the backend `B`, with so many threads of the host.
///
/// # Errors
/// The device cannot be opened, or makes graphs of repeated work.
pub fn workbench<B: Backend>(context: &RankContext, threads: usize) -> Result<Box<dyn Workbench + '_>, EngineError> {
    let backend = B::open(context.rank(), threads)?;
    match backend.graphs() {
        None => Ok(Box::new(OnBackend { backend, context })),
        Some(_) => Err(EngineError::Graphs),
    }
}

/// A workbench on a backend.
struct OnBackend<'c, B> {
    backend: B,
    context: &'c RankContext,
}

impl<B: Backend> Workbench for OnBackend<'_, B> {
    fn prepare(&self, work: &Work) -> Result<Box<dyn Prepared + '_>, EngineError> {
        let backend = &self.backend;
        match *work {
            Work::Product { layout, shape } => operations::product(backend, layout, shape),
            Work::Attention { backward, shape } => operations::attention(backend, backward, shape),
            Work::Sweep { sweep, elements } => operations::sweep(backend, sweep, elements),
            Work::HostCopy { bytes } => operations::host_copy(backend, bytes),
            Work::Collective { kind, ref group, bytes } => {
                collectives::collective(backend, self.context, kind, group, bytes)
            }
        }
    }
}
