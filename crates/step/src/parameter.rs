//! Logical parameters: shape, sharding, initial values, ownership.

use quadrille_spec::AxisSet;
use serde::{Deserialize, Serialize};

use crate::{BlockKind, Layer, ValueId};

/// The number of a parameter in its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ParameterId(pub usize);

/// How a parameter starts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Initial {
    /// Every element the same.
    Constant(f64),
    /// Normal numbers with mean 0 and this standard deviation.
    Normal(f64),
}

/// Columns of queries, keys and values, or of keys alone, where x has more ranks than there are keys: the columns of each
/// rank are queries of its own, if any, then a key and its value that it shares with the other ranks of its block along x.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedKeys {
    /// Columns of a rank that no other has.
    pub own: usize,
    /// Columns of a rank behind them, of which there are copies.
    pub copied: usize,
    /// Ranks of a block.
    pub copies: usize,
}

impl SharedKeys {
    /// The logical column of a column of values, and how many columns from it on are neighbours in both.
    pub fn logical(&self, col: usize) -> (usize, usize) {
        let held = self.own + self.copied;
        let rank = col / held;
        let within = col % held;
        let group = rank / self.copies;
        let copy = rank % self.copies;
        let first = group * self.group_cols();
        if within < self.own {
            (first + copy * self.own + within, self.own - within)
        } else {
            (first + (self.copies - 1) * self.own + within, held - within)
        }
    }

    /// Whether a logical column belongs to a key or a value, of which there are copies.
    pub fn is_copied(&self, logical: usize) -> bool {
        logical % self.group_cols() >= self.copies * self.own
    }

    /// Logical columns of what is copied and of all that goes with it.
    fn group_cols(&self) -> usize {
        self.copies * self.own + self.copied
    }
}

/// A tensor that training changes. Each rank holds the part that its sharding says.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// The name: `block.0.qkv.weight`.
    pub name: String,
    /// The layer that uses it (a tied table: the embedding).
    pub layer: Layer,
    /// Logical rows without padding; rows beyond are zero and stay zero.
    pub rows: usize,
    /// Logical columns.
    pub cols: usize,
    /// Which of them the columns of its values are, where several ranks hold the same; `None`: each itself.
    pub shared: Option<SharedKeys>,
    /// How it starts.
    pub initial: Initial,
    /// Whether weight decay applies: matrices and tables, not biases and norms.
    pub decay: bool,
    /// Of the bias of a router: the blocks of whose kind it is. It follows the loads of their experts, which are counted and
    /// summed where others have gradients.
    pub follows: Option<BlockKind>,
    /// Its value.
    pub value: ValueId,
    /// Where the gradients of microbatches are summed. In a program that does not train this and the next are the value
    /// and its updated part: there are no gradients.
    pub gradient: ValueId,
    /// The complete gradient, after the reductions of the update: what the norm and the optimizer take.
    pub reduced: ValueId,
    /// The part of the value that the optimizer updates, cut like `reduced`.
    pub updated: ValueId,
    /// Of a pruned weight that is trained: its kept elements while they are updated. `updated` is the part of them that the
    /// rank updates.
    pub compressed: Option<ValueId>,
    /// Whether it is the second copy of a tied table, on the last stage: it does not count in the gradient norm.
    pub copy: bool,
    /// Axes over which the gradient is still a partial sum after the last microbatch; computed from the shardings
    /// of the values it is made from.
    pub unreduced: AxisSet,
}

impl Parameter {
    /// Whether the optimizer moves it by its gradient, with states that it has for it.
    pub fn is_trained(&self) -> bool {
        self.follows.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_a_block_have_queries_of_their_own_and_the_same_key() {
        // Two keys, each on two ranks with one of its two queries, heads of two columns.
        let shared = SharedKeys { own: 2, copied: 4, copies: 2 };
        let logical: Vec<usize> = (0..24).map(|col| shared.logical(col).0).collect();
        let of_rank = [[0, 1, 4, 5, 6, 7], [2, 3, 4, 5, 6, 7], [8, 9, 12, 13, 14, 15], [10, 11, 12, 13, 14, 15]];
        assert_eq!(logical, of_rank.concat());
        let copied: Vec<usize> = (0..16).filter(|col| shared.is_copied(*col)).collect();
        assert_eq!(copied, [4, 5, 6, 7, 12, 13, 14, 15]);
        let keys = SharedKeys { own: 0, copied: 3, copies: 2 };
        let of_ranks: Vec<usize> = (0..12).map(|col| keys.logical(col).0).collect();
        assert_eq!(of_ranks, [0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5]);
        assert!((0..6).all(|col| keys.is_copied(col)));
        for col in 0..24 {
            let (first, neighbours) = shared.logical(col);
            for next in 0..neighbours {
                assert_eq!(shared.logical(col + next).0, first + next);
                assert_eq!(shared.is_copied(first), shared.is_copied(first + next));
            }
        }
    }
}
