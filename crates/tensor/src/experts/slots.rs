//! Where the slots of experts lie.

use super::index;
use crate::element::Element;

/// Sizes of what is spread over experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpreadShape<'a> {
    /// Tokens of the rank.
    pub rows: usize,
    /// Local columns.
    pub cols: usize,
    /// Experts, E.
    pub experts: usize,
    /// Choices of a token, k.
    pub per_token: usize,
    /// The rows of experts.
    pub slots: Slots<'a>,
}

/// Which row of the matrix [P, cols] of all experts a slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slots<'a> {
    /// All experts have blocks of one size, whose slots may be nobody's: P = E slots.
    Blocks {
        /// Rows of an expert's block.
        slots: usize,
        /// Equal pieces that blocks are cut into. The first pieces of all experts lie together, then the second ones, so
        /// that a piece of all is a slice; 1: blocks are whole.
        pieces: usize,
    },
    /// Expert e has the rows `starts[e]..starts[e + 1]`, each of which is a choice's: of E + 1 starts, the last of which is
    /// P.
    Queues(&'a [usize]),
}

impl SpreadShape<'_> {
    /// Rows of all experts, P.
    fn places(self) -> usize {
        match self.slots {
            Slots::Blocks { slots, .. } => self.experts * slots,
            Slots::Queues(starts) => {
                assert_eq!(starts.len(), self.experts + 1, "{self:?}");
                starts[self.experts]
            }
        }
    }

    /// Elements of the rows of all experts.
    pub(super) fn placed_len(self) -> usize {
        self.places() * self.cols
    }

    /// The row of those of all experts that a choice of a row of routes has, if it is not dropped.
    pub(super) fn place<T: Element>(self, routes: &[T], choice: usize) -> Option<usize> {
        let slot = routes[self.per_token + choice].to_f64();
        if slot < 0.0 {
            return None;
        }
        let expert = index(routes[choice]);
        let slot = slot as usize;
        let (has, place) = match self.slots {
            Slots::Blocks { slots, pieces } => {
                let of_piece = slots / pieces;
                (slots, (slot / of_piece * self.experts + expert) * of_piece + slot % of_piece)
            }
            Slots::Queues(starts) => (starts[expert + 1] - starts[expert], starts[expert] + slot),
        };
        assert!(expert < self.experts && slot < has, "slot {slot} of expert {expert} in {self:?}");
        Some(place)
    }

    /// By row of those of all experts the choice that has it, as row k + choice, if one has.
    pub(super) fn choices<T: Element>(self, routes: &[T]) -> Vec<Option<usize>> {
        let mut choices = vec![None; self.places()];
        for (row, routes) in routes.chunks_exact((3 * self.per_token).max(1)).enumerate() {
            for choice in 0..self.per_token {
                if let Some(place) = self.place(routes, choice) {
                    choices[place] = Some(row * self.per_token + choice);
                }
            }
        }
        let queues = matches!(self.slots, Slots::Queues(_));
        assert!(!queues || choices.iter().all(Option::is_some), "a row of a queue is nobody's: {self:?}");
        choices
    }

    /// The weight of a choice, row k + choice.
    pub(super) fn weight<T: Element>(self, routes: &[T], choice: usize) -> T {
        routes[choice / self.per_token * 3 * self.per_token + 2 * self.per_token + choice % self.per_token]
    }
}
