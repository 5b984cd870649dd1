//! The residual stream between pieces of layers: nowhere replicated. Where it is replicated over x inside a piece, each
//! rank sends its share of the rows, and the shares are gathered on arrival (Megatron-LM PTD-P, section 4.1).

use quadrille_spec::Recompute;

use super::pass::Pass;
use super::{Group, Sink, Sizes, Sweep};

impl Sizes {
    /// Elements that a rank sends of the residual stream of an overlap chunk.
    pub fn message(&self) -> u64 {
        if self.shares_rows() { self.stream() / self.x } else { self.stream() }
    }

    /// Whether full recomputation keeps the rank's share of what a piece has received, and gathers it again.
    pub fn gathers_received_again(&self) -> bool {
        let full = matches!(self.recompute, Recompute::Full { .. });
        full && self.shares_rows() && !self.keep_communicated
    }

    /// Whether ranks along x share the sending.
    fn shares_rows(&self) -> bool {
        !self.scattered && self.panels.is_none() && self.x > 1
    }
}

impl<S: Sink> Pass<'_, S> {
    /// What a piece does with what it has received: forward or backward.
    pub fn receive(&mut self) {
        if self.s.shares_rows() {
            self.gather_rows(Group::X, self.s.stream());
            self.give(self.s.message());
        }
    }

    /// What a piece does before it sends.
    pub fn send(&mut self) {
        if self.s.shares_rows() {
            let message = self.s.message();
            self.take(message);
            self.sweep(Sweep::SliceRows, message, 2 * message);
        }
    }
}
