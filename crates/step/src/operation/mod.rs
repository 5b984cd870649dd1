//! The operations of a program: [`kind`] is their table, [`work`] what they compute.

mod entry;
pub mod kind;
mod parts;
mod work;

pub use kind::Operation;
pub use parts::{
    BlockKind, Collective, DropoutSite, GemmPass, GemmStorage, Members, NormOf, Panel, Product, Reduction, Scalar,
    Scaled, Wanted, Write,
};
pub use work::{At, Computation, Work};

use crate::{Layer, ValueId};

/// An operation with the layer that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Op {
    /// For ledgers and messages.
    pub layer: Layer,
    /// Which microbatches execute it.
    pub when: When,
    /// Whether it serves the gradient of a weight, which schedules may put off.
    pub weight_gradient: bool,
    /// What to do.
    pub operation: Operation,
}

/// What became of an update that was begun before the norm of the gradient was known. Every rank comes to the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Verdict {
    /// It stays: nothing was clipped.
    #[default]
    Kept,
    /// It is done again with the clipped gradient.
    Repeated,
    /// It is taken back: the gradient is not applied.
    Restored,
}

impl Verdict {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Kept, Self::Repeated, Self::Restored];

    /// Of an update that was applied, and done again, or not.
    pub fn of(applied: bool, repeated: bool) -> Self {
        match (applied, repeated) {
            (false, _) => Self::Restored,
            (true, true) => Self::Repeated,
            (true, false) => Self::Kept,
        }
    }
}

/// Which microbatches of a step execute an operation, or after which verdict the update does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum When {
    /// All.
    Always,
    /// Only the first.
    First,
    /// Only the last.
    Last,
    /// The update, after [`Verdict::Repeated`].
    Repeated,
    /// The update, after [`Verdict::Restored`].
    Restored,
    /// The update, unless it is taken back.
    Applied,
}

impl When {
    /// Whether microbatch `index` of `count` does, or the update after this verdict.
    pub fn includes(self, index: usize, count: usize, verdict: Verdict) -> bool {
        match self {
            Self::Always => true,
            Self::First => index == 0,
            Self::Last => index + 1 == count,
            Self::Repeated => verdict == Verdict::Repeated,
            Self::Restored => verdict == Verdict::Restored,
            Self::Applied => verdict != Verdict::Restored,
        }
    }

    /// Whether it depends on what the step has computed.
    pub fn is_decided(self) -> bool {
        matches!(self, Self::Repeated | Self::Restored | Self::Applied)
    }
}

impl Op {
    /// How often a step of so many microbatches executes it whose update stays.
    pub fn times(&self, microbatches: usize) -> usize {
        self.times_after(microbatches, Verdict::Kept)
    }

    /// The same after any verdict.
    pub fn times_after(&self, microbatches: usize, verdict: Verdict) -> usize {
        match self.when {
            When::Always => microbatches,
            When::First | When::Last => 1,
            when => usize::from(when.includes(0, 1, verdict)),
        }
    }
}

/// What operations are reported under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// Products of matrices.
    Product,
    /// The cores of attention.
    Attention,
    /// What is done to every element.
    ElementWise,
    /// The update of parameters.
    Optimizer,
    /// The begin of collectives.
    Issue,
    /// Waiting for collectives.
    Wait,
}

impl Group {
    /// The group of the operations of that name; `None`: there are none.
    pub fn by_name(name: &str) -> Option<Self> {
        kind::NAMES.iter().find(|(names, _)| names.contains(&name)).map(|(_, group)| *group)
    }

    /// Whether its operations occupy the compute stream.
    pub fn computes(self) -> bool {
        !matches!(self, Self::Issue | Self::Wait)
    }
}

/// The names of all kinds of operations, in the order of the table.
pub fn operation_names() -> impl Iterator<Item = &'static str> {
    kind::NAMES.iter().flat_map(|(names, _)| names.iter().copied())
}

/// What selective recomputation gives up of what an operation writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remade {
    /// Nothing: it would cost too much.
    Never,
    /// This value.
    Always(ValueId),
    /// All, if all that it reads is given up.
    WithInputs,
}

/// Most operands of an operation.
const MOST_OPERANDS: usize = 8;

/// The values that an operation reads and those that it writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operands {
    all: [ValueId; MOST_OPERANDS],
    read: usize,
    len: usize,
}

impl Operands {
    fn of(reads: &[Option<ValueId>], writes: &[Option<ValueId>]) -> Self {
        let mut operands = Self { all: [ValueId(0); MOST_OPERANDS], read: 0, len: 0 };
        for value in reads.iter().chain(writes).copied().flatten() {
            operands.all[operands.len] = value;
            operands.len += 1;
        }
        operands.read = reads.iter().flatten().count();
        operands
    }

    /// All, reads before writes.
    pub fn all(&self) -> &[ValueId] {
        &self.all[..self.len]
    }

    /// Those that it reads.
    pub fn reads(&self) -> &[ValueId] {
        &self.all[..self.read]
    }

    /// Those that it writes.
    pub fn writes(&self) -> &[ValueId] {
        &self.all[self.read..self.len]
    }
}
