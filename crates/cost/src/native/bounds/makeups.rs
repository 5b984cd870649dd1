//! Which kinds of blocks pieces of layers have, where blocks differ.

use std::ops::Range;

use quadrille_spec::Blocks;

/// How many blocks of each kind any blocks of a model that follow each other have.
#[derive(Debug)]
pub(super) struct Makeups {
    /// By kind: of the blocks before each one, and of all.
    before: Vec<Vec<usize>>,
}

impl Makeups {
    /// Of the pieces that a model of these blocks may be cut into.
    pub fn of(blocks: &Blocks) -> Self {
        let mut counts = vec![0; blocks.kinds().len()];
        let mut before = vec![counts.clone()];
        for place in 0..blocks.len() {
            counts[blocks.kind_of(place)] += 1;
            before.push(counts.clone());
        }
        Self { before }
    }

    /// The sum over these blocks of what each adds by its kind.
    pub fn sum(&self, blocks: Range<usize>, adds: &[f64]) -> f64 {
        self.counts(blocks).zip(adds).map(|(count, adds)| count as f64 * adds).sum()
    }

    /// By kind, how many of these blocks are of it.
    pub fn counts(&self, blocks: Range<usize>) -> impl Iterator<Item = usize> + '_ {
        self.before[blocks.end].iter().zip(&self.before[blocks.start]).map(|(end, begin)| end - begin)
    }
}

#[cfg(test)]
mod tests {
    use quadrille_spec::Model;

    use super::*;

    #[test]
    fn sums_are_of_the_blocks_that_a_piece_has() {
        let one = Model::gpt(1, 8, 1, 8, 8).blocks.kinds()[0];
        let kinds = [1, 2, 3].map(|heads| {
            let mut block = one;
            block.attention.heads = heads;
            block
        });
        let makeups = Makeups::of(&Blocks::new(kinds[0], [kinds[1], kinds[2], kinds[0]]));
        let sum = |range| makeups.sum(range, &[4.0, 1.0, 2.0]);
        assert_eq!([sum(0..4), sum(0..0), sum(1..3), sum(2..4)], [11.0, 0.0, 3.0, 6.0]);
        let counts = |range| makeups.counts(range).collect::<Vec<_>>();
        assert_eq!([counts(0..4), counts(1..3), counts(3..3)], [[2, 1, 1], [0, 1, 1], [0, 0, 0]]);
    }
}
