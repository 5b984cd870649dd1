//! The blocks of a model, in order. Most models have one or two kinds of them: each is kept once, so that rules and sums
//! ask every kind instead of every block.

use std::ops::Index;

use crate::Block;

/// The blocks of a model, at least one.
#[derive(Debug, Clone, PartialEq)]
pub struct Blocks {
    /// Different from each other, in the order in which they first appear.
    kinds: Vec<Block>,
    /// By block, the number of its kind.
    order: Vec<usize>,
}

impl Blocks {
    /// So many blocks (at least one) of one kind.
    pub fn alike(block: Block, count: usize) -> Self {
        Self { kinds: vec![block], order: vec![0; count.max(1)] }
    }

    /// So many blocks (at least one), all of the kind of this number among [`Blocks::kinds`], which keeps its number.
    #[must_use]
    pub fn of_kind(&self, number: usize, count: usize) -> Self {
        Self { kinds: self.kinds.clone(), order: vec![number; count.max(1)] }
    }

    /// The first block, and those after it.
    pub fn new(first: Block, others: impl IntoIterator<Item = Block>) -> Self {
        let mut blocks = Self::alike(first, 1);
        for block in others {
            let known = blocks.kinds.iter().position(|kind| *kind == block);
            let number = known.unwrap_or(blocks.kinds.len());
            if known.is_none() {
                blocks.kinds.push(block);
            }
            blocks.order.push(number);
        }
        blocks
    }

    /// How many there are.
    #[expect(clippy::len_without_is_empty, reason = "there is always a block")]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// The first one.
    pub fn first(&self) -> &Block {
        &self[0]
    }

    /// In order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Block> {
        self.order.iter().map(|kind| &self.kinds[*kind])
    }

    /// The number in [`Blocks::kinds`] of the block at a place.
    pub fn kind_of(&self, place: usize) -> usize {
        self.order[place]
    }

    /// The blocks that differ from each other, each once.
    pub fn kinds(&self) -> &[Block] {
        &self.kinds
    }

    /// How many blocks are of each of [`Blocks::kinds`], with the first of them.
    pub fn counts(&self) -> impl Iterator<Item = (usize, &Block)> {
        let count = |number| self.order.iter().filter(|kind| **kind == number).count();
        self.kinds.iter().enumerate().map(move |(number, kind)| (count(number), kind))
    }

    /// The same blocks, each changed.
    #[must_use]
    pub fn each(&self, change: impl Fn(&mut Block)) -> Self {
        let changed = |block: &Block| {
            let mut block = *block;
            change(&mut block);
            block
        };
        Self::new(changed(self.first()), self.iter().skip(1).map(changed))
    }
}

/// By place in the model.
impl Index<usize> for Blocks {
    type Output = Block;

    fn index(&self, place: usize) -> &Block {
        &self.kinds[self.order[place]]
    }
}
