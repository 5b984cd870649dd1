//! The workbench of a pass: short forms of what every layer tells its sink.

use quadrille_spec::CollectiveKind;

use super::summa::TokenPanels;
use super::{Group, Product, Sink, Sizes, Slot, Sweep, Swept};

/// Most gathers of weights in a pass through a block: four of its own and four of recomputation.
const MOST_GATHERS: usize = 8;

/// A pass that is being told.
pub(in crate::native) struct Pass<'a, S> {
    pub s: &'a Sizes,
    pub sink: &'a mut S,
    /// The weights that are gathered, in order.
    order: [u64; MOST_GATHERS],
    gathers: usize,
    /// The next of them.
    next: usize,
    /// Whether the same follows again: the next pass through a block.
    repeats: bool,
    /// Panels of tokens of the SUMMA products that are told.
    pub(super) tokens: TokenPanels,
    /// Whether what is told of the forward pass is told again in the backward pass.
    pub recomputes: bool,
}

impl<'a, S: Sink> Pass<'a, S> {
    /// A pass in which weights of these sizes are needed, in this order; `repeats`: the next pass begins with the first
    /// again.
    pub fn new(s: &'a Sizes, sink: &'a mut S, weights: &[u64], repeats: bool) -> Self {
        let mut order = [0; MOST_GATHERS];
        let gathers = weights.len().min(MOST_GATHERS);
        order[..gathers].copy_from_slice(&weights[..gathers]);
        Self { s, sink, order, gathers, next: 0, repeats, tokens: TokenPanels::Travel, recomputes: false }
    }

    /// A weight is needed: the next of the order, or one that has been gathered with its block.
    pub fn weight(&mut self) {
        if self.next == self.gathers && self.s.framework.gathers_blocks {
            return;
        }
        let needed = self.order[self.next];
        self.next += 1;
        let following = if self.next < self.gathers { self.order.get(self.next).copied() } else { None };
        self.sink.weight(needed, following.or(self.repeats.then_some(self.order[0])));
    }

    /// A weight is not needed any more.
    pub fn weight_done(&mut self, tile: u64) {
        if !self.s.framework.gathers_blocks {
            self.sink.weight_done(tile);
        }
    }

    /// The end of a pass: weights that were gathered together are not needed any more.
    pub fn done(&mut self) {
        if self.s.framework.gathers_blocks && self.gathers > 0 {
            self.sink.weight_done(self.order[0]);
        }
    }

    /// An element-wise operation on activations.
    pub fn sweep(&mut self, sweep: Sweep, elements: u64, moved: u64) {
        let element_bytes = self.s.framework.activation_bytes;
        self.sink.sweep(Swept { sweep, elements, moved, element_bytes, once: false });
    }

    pub fn product(&mut self, product: Product, shape: [u64; 3]) {
        self.sink.product(product, shape);
    }

    /// Memory of activations.
    pub fn take(&mut self, elements: u64) {
        self.sink.take(elements * self.s.framework.activation_bytes * self.s.chunks);
    }

    pub fn give(&mut self, elements: u64) {
        self.sink.give(elements * self.s.framework.activation_bytes * self.s.chunks);
    }

    /// Gives back what may have been kept by the forward pass.
    pub fn give_of(&mut self, kept: bool, elements: u64) {
        let bytes = elements * self.s.framework.activation_bytes * self.s.chunks;
        if kept { self.sink.give_kept(bytes) } else { self.sink.give(bytes) }
    }

    /// Gives back what the gradient of a weight needs, which may have been kept by the forward pass.
    pub fn give_needed(&mut self, kept: bool, elements: u64) {
        self.sink.give_needed(kept, elements * self.s.framework.activation_bytes * self.s.chunks);
    }

    /// The gradient of a layer's output is not needed any more, but by that of its weight.
    pub fn give_gradient(&mut self, is_last_use: bool, in_kept: bool, elements: u64) {
        match is_last_use {
            true => self.give_needed(in_kept, elements),
            false => self.sink.copy_needed(elements * self.s.framework.activation_bytes * self.s.chunks),
        }
    }

    pub fn give_if(&mut self, condition: bool, elements: u64) {
        if condition {
            self.give(elements);
        }
    }

    /// The mask that a framework keeps of a dropout.
    pub fn mask_bytes(&self, elements: u64) -> u64 {
        let mask = if self.s.dropout { self.s.framework.mask_bytes } else { 0 };
        elements * mask * self.s.chunks
    }

    /// A collective of activations that is waited for at once.
    pub fn collective(&mut self, kind: CollectiveKind, group: Group, elements: u64) {
        self.begin(Slot::Now, kind, group, elements);
        self.sink.wait(Slot::Now);
    }

    /// Begins a collective of activations.
    pub fn begin(&mut self, slot: Slot, kind: CollectiveKind, group: Group, elements: u64) {
        self.sink.issue(slot, kind, group, elements, self.s.framework.activation_bytes);
    }

    /// Sums a value where it is a partial sum over `group`, in place.
    pub fn reduce_in_place(&mut self, group: Group, elements: u64) {
        if self.s.members(group) > 1 {
            self.collective(CollectiveKind::AllReduce, group, elements);
        }
    }
}
