//! A number of a piece of layers, by how many blocks the piece has.

use std::ops::Range;
use std::sync::Arc;

use super::makeups::Makeups;

/// A number for every count of blocks, from those of a few.
///
/// Collectives and computations follow each other on streams, so that what a pass takes is the longest of several ways
/// through its tasks, each of which grows evenly with the blocks; and so it is with memory, the most of several moments. So
/// none adds less than those before it, once a block has others on both sides.
#[derive(Debug, Clone, Default)]
pub(super) struct Line {
    /// Of `first` blocks and the next few.
    few: Vec<f64>,
    first: usize,
    /// With each further block, at least.
    pub more: f64,
    /// What any block adds at most; the same where all are alike.
    pub more_at_most: f64,
    /// Where blocks differ: of pieces that have any.
    mixed: Option<Mixed>,
}

/// A number of pieces whose blocks may differ.
#[derive(Debug, Clone)]
struct Mixed {
    makeups: Arc<Makeups>,
    /// What there is beside blocks.
    beside: f64,
    /// By kind: what a block adds.
    adds: Vec<f64>,
}

impl Line {
    /// Of pieces whose blocks are alike.
    pub fn new(first: usize, few: Vec<f64>, more: f64) -> Self {
        Self { few, first, more, more_at_most: more, mixed: None }
    }

    /// Of the least that pieces of a model have, if blocks of each kind alone have what `alike` says, and each adds as much
    /// beside others as beside its like.
    pub fn of_kinds(alike: &[&Self], makeups: &Arc<Makeups>) -> Self {
        let least = |of: &dyn Fn(&Self) -> f64| alike.iter().map(|line| of(line)).fold(f64::INFINITY, f64::min);
        let adds: Vec<f64> = alike.iter().map(|line| line.more).collect();
        Self {
            few: vec![least(&|line| line.at(0))],
            first: 0,
            more: least(&|line| line.more),
            more_at_most: adds.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            mixed: Some(Mixed { makeups: Arc::clone(makeups), beside: least(&Self::beside), adds }),
        }
    }

    /// Whether the last of a few blocks adds less than the one before.
    pub fn slows(&self) -> bool {
        matches!(self.few[..], [.., first, second, third] if third - second < second - first)
    }

    /// Lets further blocks add no more than this.
    pub fn keep_more_below(&mut self, most: f64) {
        self.more = self.more.min(most);
        self.more_at_most = self.more_at_most.min(most);
    }

    /// With so many blocks that are alike; where blocks differ, of those that add least.
    pub fn at(&self, blocks: usize) -> f64 {
        let last = (self.first + self.few.len()).saturating_sub(1);
        let known = blocks.min(last).saturating_sub(self.first);
        self.few.get(known).unwrap_or(&0.0) + blocks.saturating_sub(last) as f64 * self.more
    }

    /// Of a piece with these blocks of the model.
    pub fn of(&self, blocks: Range<usize>) -> f64 {
        self.of_all([blocks])
    }

    /// Of all these blocks of the model together.
    pub fn of_all(&self, blocks: impl IntoIterator<Item = Range<usize>, IntoIter: Clone>) -> f64 {
        let blocks = blocks.into_iter();
        let count = blocks.clone().map(|blocks| blocks.len()).sum();
        match &self.mixed {
            Some(Mixed { makeups, beside, adds }) if count > 0 => {
                beside + blocks.map(|blocks| makeups.sum(blocks, adds)).sum::<f64>()
            }
            _ => self.at(count),
        }
    }

    /// Whether blocks differ.
    pub fn is_mixed(&self) -> bool {
        self.mixed.is_some()
    }

    /// What there is at least beside blocks, where there are any, if each adds what further ones do.
    fn beside(&self) -> f64 {
        let none = usize::from(self.first == 0 && self.few.len() > 1);
        let few = (self.first..).zip(&self.few).skip(none);
        few.map(|(blocks, number)| number - blocks as f64 * self.more).fold(f64::INFINITY, f64::min)
    }
}

#[cfg(test)]
mod tests {
    use quadrille_spec::{Blocks, Model};

    use super::*;

    #[test]
    fn lines_go_on_as_they_ended() {
        let line = Line::new(1, vec![5.0, 6.0, 9.0], 3.0);
        assert_eq!([1, 2, 3, 4, 6].map(|blocks| line.at(blocks)), [5.0, 6.0, 9.0, 12.0, 18.0]);
        assert_eq!(line.beside(), 0.0);
    }

    /// Blocks 0, 1 and 3 add 3 each, block 2 adds 5; 2 are there beside any.
    #[test]
    fn pieces_of_blocks_that_differ_have_what_each_of_theirs_adds() {
        let one = Model::gpt(1, 8, 1, 8, 8).blocks.kinds()[0];
        let mut other = one;
        other.attention.heads = 2;
        let makeups = Arc::new(Makeups::of(&Blocks::new(one, [one, other, one])));
        let alike = [3.0, 5.0].map(|more| Line::new(0, vec![1.0, 2.0 + more, 2.0 + 2.0 * more], more));
        let line = Line::of_kinds(&alike.each_ref(), &makeups);
        assert_eq!([0..1, 1..3, 2..3, 0..4].map(|blocks| line.of(blocks)), [5.0, 10.0, 7.0, 16.0]);
        assert_eq!(line.of_all([0..1, 2..3]), 10.0, "what is beside blocks is there once");
        assert_eq!((line.of(2..2), line.of_all([1..1, 3..3])), (1.0, 1.0), "without blocks, what there is then");
        assert_eq!((line.more, line.more_at_most), (3.0, 5.0));
    }
}
