//! Which experts tokens choose: what a layout decided, for the serial model to decide alike, and how near to another decision
//! that was. A choice between two scores that differ by rounding alone is not wrong, but what follows it differs.

use std::collections::BTreeMap;

use quadrille_spec::Model;

use crate::Batch;
use crate::router::NO_EXPERT;

/// Of every block that has experts, by its number: the experts that the tokens of a batch chose, `[b, s, k]`, the first
/// choice first; [`Decisions::NO_EXPERT`] of padding.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decisions {
    /// By block.
    pub blocks: BTreeMap<usize, Vec<u32>>,
}

impl Decisions {
    /// Entries of padding, which chooses no experts.
    pub const NO_EXPERT: u32 = NO_EXPERT;

    /// Choices of experts by tokens: one in every block that has some, none of padding.
    pub fn made(&self, model: &Model) -> u64 {
        let of_block = |(block, ids): (&usize, &Vec<u32>)| {
            let k = model.blocks[*block].feed_forward.experts().map_or(1, |experts| experts.per_token);
            ids.chunks(k).filter(|ids| ids[0] != NO_EXPERT).count() as u64
        };
        self.blocks.iter().map(of_block).sum()
    }

    /// How many tokens of a batch decided otherwise somewhere; the order of choices counts.
    ///
    /// # Panics
    /// If the others are not of as many blocks and tokens of the same model.
    pub fn differing(&self, other: &Self, model: &Model) -> u64 {
        assert!(self.blocks.keys().eq(other.blocks.keys()), "decisions of other blocks");
        let of_block = |(block, ids): (&usize, &Vec<u32>)| {
            let k = model.blocks[*block].feed_forward.experts().map_or(1, |experts| experts.per_token);
            let others = &other.blocks[block];
            assert_eq!(ids.len(), others.len(), "decisions of block {block}");
            ids.chunks(k).zip(others.chunks(k)).filter(|(ids, others)| ids != others).count() as u64
        };
        self.blocks.iter().map(of_block).sum()
    }

    /// Panics unless the decisions are those of a batch.
    pub(crate) fn assert_fit(&self, model: &Model, batch: &Batch) {
        for (i, block) in model.blocks.iter().enumerate() {
            let ids = self.blocks.get(&i);
            let Some(experts) = block.feed_forward.experts() else {
                assert!(ids.is_none(), "decisions of block {i}, which has no experts");
                continue;
            };
            let k = experts.per_token;
            let length = ids.map(Vec::len);
            assert_eq!(length, Some(batch.rows() * k), "decisions of block {i}, {k} for each token");
            let present = batch.present();
            for (ids, present) in ids.into_iter().flat_map(|ids| ids.chunks(k)).zip(present) {
                if !present {
                    assert!(ids.iter().all(|id| *id == NO_EXPERT), "block {i}: padding chose {ids:?}");
                    continue;
                }
                let twice = (1..k).any(|choice| ids[..choice].contains(&ids[choice]));
                let known = ids.iter().all(|id| (*id as usize) < experts.count);
                assert!(known && !twice, "block {i}: {ids:?} of {} experts", experts.count);
            }
        }
    }
}

/// How clear the decisions of a block are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Margin {
    /// The smallest of all tokens' least key that they chose less the largest that they did not choose: below 0 where a
    /// token should have chosen another expert; infinite where all are chosen.
    pub choice: f64,
    /// The smallest of all tokens' keys of a choice less that of the next one: below 0 where they are not in order; infinite
    /// where each token has one choice.
    pub order: f64,
    /// The largest absolute key of all tokens and experts.
    pub largest: f64,
    /// The smallest, of all groups and experts, of the least weight that has a place less the largest that has none;
    /// infinite where none is dropped, or not by its weight; below 0 where both are equal but for rounding.
    pub drop: f64,
}
