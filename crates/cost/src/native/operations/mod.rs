//! What a rank does in a pass over one microbatch, as a list that is never stored: functions tell a [`Sink`] of one
//! operation after the other, in the order of the step program. One sink counts, another measures time and memory.
//!
//! Where a microbatch is cut into overlap chunks, operations on tokens are told once and happen for every chunk.
//!
//! Memory is taken before the operation that first touches a value, and given back after the last.

mod attention;
mod block;
mod boundary;
mod ends;
mod linear;
mod norm;
mod pass;
mod patches;
mod sizes;
mod summa;
mod sweep;
mod values;

use quadrille_spec::{Axis, AxisSet, CollectiveKind};

pub(super) use block::{backward_weights, forward_weights};
pub(super) use pass::Pass;
pub(super) use sizes::{LinearSizes, Sizes};
pub(super) use summa::{Panels, Travel};
pub(super) use sweep::Sweep;
pub(super) use values::Values;

/// The axes over which passes communicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Group {
    X,
    Y,
    Z,
    Context,
    /// x and y together.
    Mesh,
}

impl Group {
    pub const ALL: [Self; 5] = [Self::X, Self::Y, Self::Z, Self::Context, Self::Mesh];

    pub fn axes(self) -> AxisSet {
        match self {
            Self::X => Axis::X.only(),
            Self::Y => Axis::Y.only(),
            Self::Z => Axis::Z.only(),
            Self::Context => Axis::Context.only(),
            Self::Mesh => Axis::X.only().union(Axis::Y.only()),
        }
    }
}

/// Collectives on tokens that are under way at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    /// Waited for at once.
    Now,
    /// The reduction of an input gradient, under the product of the weight gradient.
    Reduction,
    /// Inputs gathered again, under the product of the input gradient.
    Regather,
}

/// Which of the three products of a linear layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Product {
    Forward,
    InputGradient,
    WeightGradient,
}

/// An element-wise operation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Swept {
    pub sweep: Sweep,
    /// Elements that it sweeps over.
    pub elements: u64,
    /// Elements that it reads and writes; 0 where another operation's kernel does it along.
    pub moved: u64,
    /// Bytes of an element.
    pub element_bytes: u64,
    /// Whether it is on weights: once for all overlap chunks.
    pub once: bool,
}

/// The core of attention.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Core {
    pub backward: bool,
    /// Elements of the output.
    pub outputs: u64,
    /// Elements that it reads and writes.
    pub moved: u64,
    /// Heads of all sequences of the pass.
    pub heads: u64,
}

/// Where operations go.
pub(super) trait Sink {
    /// An element-wise operation.
    fn sweep(&mut self, swept: Swept);

    /// A product `[m, k] [k, n]`, its shape as `[m, n, k]`.
    fn product(&mut self, product: Product, shape: [u64; 3]);

    /// The core of attention in one kernel.
    fn attention(&mut self, core: Core);

    /// A product of stored attention, for each of the heads, `[m, n, k]`.
    fn batched_product(&mut self, backward: bool, shape: [u64; 3], heads: u64);

    /// Begins a collective on tokens, with a payload of `elements` of so many bytes.
    fn issue(&mut self, slot: Slot, kind: CollectiveKind, group: Group, elements: u64, element_bytes: u64);

    /// Waits for the last collective of the slot.
    fn wait(&mut self, slot: Slot);

    /// A weight of `elements` is needed: its gather over z is waited for, and with prefetching that of the `next` one
    /// begins, if there is one.
    fn weight(&mut self, elements: u64, next: Option<u64>);

    /// The weight of `elements` that was needed last is not needed any more.
    fn weight_done(&mut self, elements: u64);

    /// A finished weight gradient of so many elements is reduce-scattered over z and added to the gradient's shard.
    fn scatter(&mut self, elements: u64);

    /// A SUMMA product.
    fn panels(&mut self, panels: &Panels);

    /// Memory is taken.
    fn take(&mut self, bytes: u64);

    /// Memory is given back.
    fn give(&mut self, bytes: u64);

    /// Memory is given back that has been taken by another pass.
    fn give_kept(&mut self, bytes: u64);

    /// Memory is given back of what a weight's gradient needs, and so stays where that is put off; `kept`: it has been
    /// taken by another pass.
    fn give_needed(&mut self, kept: bool, bytes: u64);

    /// Where a weight's gradient is put off, it needs a copy of something that changes.
    fn copy_needed(&mut self, bytes: u64);

    /// Memory of a whole weight gradient is taken.
    fn take_gradient(&mut self, bytes: u64);
}
