//! Mixtures of experts: each token is computed by the few experts that a router chooses for it.
//!
//! Letters: rows = tokens of the rank, E = experts, k = choices of a token, g = tokens of a group,
//! C = slots that an expert has for a group. Rows are whole groups, group i the rows i g..(i + 1) g;
//! an expert's block has rows / g C slots, of which the i C..(i + 1) C are for group i. Instead of a
//! block an expert may have a queue, which has as many slots as tokens have it. Blocks or queues of
//! all experts, one below the other, are a matrix [P, cols].
//!
//! `routes` [rows, 3 k] are of each row the k experts that are chosen, then their slots, each a row
//! of the expert's block or queue, or -1 where the choice is dropped, then their weights. Experts and slots
//! are exact in the type of the weights, which makes routes one array that is kept and sent as such.
//! Rows of padding hold no token: their experts and slots are -1, their weights 0.

mod combine;
mod grouped;
mod losses;
mod probabilities;
mod route;
mod route_backward;
mod router_product;
mod slots;
mod spread;

use crate::element::Element;

pub use combine::{combine, combine_backward};
pub use grouped::{GroupedShape, Segments, grouped_matmul};
pub use losses::{count_choices, dropped_choices, follow_loads, router_losses};
pub use route::route;
pub use route_backward::route_backward;
pub use router_product::{router_forward, router_input_gradient, router_weight_gradient};
pub use slots::{Slots, SpreadShape};
pub use spread::{spread, spread_backward};

/// Sizes of a router on a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouterShape {
    /// Tokens of the rank.
    pub rows: usize,
    /// Experts, E, of all ranks.
    pub experts: usize,
    /// Choices of a token, k.
    pub per_token: usize,
}

/// How logits become weights.
#[derive(Clone, Copy, Debug)]
pub struct RouterRule {
    /// Whether each expert's probability is the sigmoid of its logit; else they are the softmax of all.
    pub sigmoid: bool,
    /// Whether the weights of a token are divided by their sum.
    pub normalize: bool,
    /// What weights are multiplied with.
    pub scale: f64,
    /// Groups of consecutive experts, of which a token chooses some before it chooses experts of them: by the sums of their
    /// largest probabilities, as many as it takes of each if it takes equally many. 1: there are none.
    pub groups: usize,
    /// How many of them a token chooses; divides its choices.
    pub chosen_groups: usize,
}

/// How tokens share the slots of an expert.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenGroups {
    /// Tokens of a group, g.
    pub rows: usize,
    /// Slots of an expert for a group, C.
    pub slots: usize,
    /// Slots of an expert for each token, before they are rounded up: a group with padding has them for its tokens alone.
    pub slots_per_token: f64,
    /// Whether the largest weights of a group take slots first, rounded to 13 binary digits; else first choices do, by row,
    /// then second choices, and so on.
    pub by_score: bool,
}

impl TokenGroups {
    /// Slots of an expert for a group of `tokens`, whose other rows are padding.
    pub(crate) fn slots_of(self, tokens: usize) -> usize {
        if tokens == self.rows {
            return self.slots;
        }
        // Numbers that are whole but for rounding are whole.
        let wanted = self.slots_per_token * tokens as f64 * (1.0 - 1e-12);
        self.slots.min(tokens).min(wanted.ceil() as usize)
    }
}

/// The factors of a router's losses. With balance loss alpha and counts of a scope's choices by expert, an expert's frequency is
/// its count over the mean count: 1 where all are chosen equally often.
#[derive(Clone, Copy, Debug)]
pub struct RouterLosses {
    /// Of the balance loss, alpha.
    pub balance: f64,
    /// Of the squared logarithms of the sums of exponentials, beta.
    pub z: f64,
}

/// True if a row of routes is padding.
fn is_padding<T: Element>(routes: &[T]) -> bool {
    routes.first().is_some_and(|expert| *expert < T::ZERO)
}

/// A whole number that is stored as T.
fn index<T: Element>(x: T) -> usize {
    x.to_f64() as usize
}
