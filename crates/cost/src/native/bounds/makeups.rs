//! Which blocks a piece of layers may have, where they differ.

use std::collections::BTreeSet;
use std::ops::Range;

use quadrille_spec::Blocks;

/// Which blocks of the model a piece may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    /// The first ones.
    First,
    /// Any that follow each other.
    Between,
    /// The last ones.
    Last,
    /// Any.
    Any,
}

/// How many blocks of each kind.
type Makeup = Vec<usize>;

/// The makeups of all pieces that a model may be cut into.
#[derive(Debug)]
pub(super) struct Makeups {
    /// By number of blocks: of the first ones, of any that follow each other, and of the last ones.
    by_blocks: Vec<[Vec<Makeup>; 3]>,
    all: Makeup,
    /// Of the blocks before each one, and of all.
    before: Vec<Makeup>,
}

impl Makeups {
    /// Of the pieces of a model of these blocks.
    pub fn of(blocks: &Blocks) -> Self {
        let (layers, mut counts) = (blocks.len(), vec![0; blocks.kinds().len()]);
        let mut before = vec![counts.clone()];
        for place in 0..layers {
            counts[blocks.kind_of(place)] += 1;
            before.push(counts.clone());
        }
        let makeup = |from: usize, count: usize| -> Makeup { between(&before, from..from + count).collect() };
        let of_count = |count: usize| {
            // Blocks that are alike make up the same from wherever on.
            let last = if blocks.kinds().len() > 1 { layers - count } else { 0 };
            let between: BTreeSet<Makeup> = (0..=last).map(|from| makeup(from, count)).collect();
            [vec![makeup(0, count)], between.into_iter().collect(), vec![makeup(layers - count, count)]]
        };
        Self { by_blocks: (0..=layers).map(of_count).collect(), all: counts, before }
    }

    /// The sum over these blocks of what each adds by its kind.
    pub fn sum(&self, blocks: Range<usize>, adds: &[f64]) -> f64 {
        between(&self.before, blocks).zip(adds).map(|(count, adds)| count as f64 * adds).sum()
    }

    /// The least sum over so many blocks, at most as many as the model has, of what each adds by its kind.
    pub fn least_sum(&self, which: Which, blocks: usize, adds: &[f64]) -> f64 {
        let [first, between, last] = &self.by_blocks[blocks.min(self.by_blocks.len() - 1)];
        let makeups = match which {
            Which::First => first,
            Which::Between => between,
            Which::Last => last,
            Which::Any => return self.least_of_any(blocks, adds),
        };
        let sum = |makeup: &Makeup| makeup.iter().zip(adds).map(|(count, adds)| *count as f64 * adds).sum();
        makeups.iter().map(sum).fold(f64::INFINITY, f64::min)
    }

    /// The same of blocks that need not follow each other: those that add least.
    fn least_of_any(&self, mut blocks: usize, adds: &[f64]) -> f64 {
        let mut kinds: Vec<(f64, usize)> = adds.iter().copied().zip(self.all.iter().copied()).collect();
        kinds.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let mut take = |(adds, count): (f64, usize)| {
            let taken = count.min(blocks);
            blocks -= taken;
            taken as f64 * adds
        };
        kinds.into_iter().map(&mut take).sum()
    }
}

/// By kind, how many of these blocks are of it, from the makeups of those before each block.
fn between(before: &[Makeup], blocks: Range<usize>) -> impl Iterator<Item = usize> + '_ {
    before[blocks.end].iter().zip(&before[blocks.start]).map(|(end, begin)| end - begin)
}

#[cfg(test)]
mod tests {
    use quadrille_spec::Model;

    use super::*;

    #[test]
    fn sums_are_the_least_of_the_blocks_that_a_piece_may_have() {
        let one = Model::gpt(1, 8, 1, 8, 8).blocks.kinds()[0];
        let kinds = [1, 2, 3].map(|heads| {
            let mut block = one;
            block.attention.heads = heads;
            block
        });
        let blocks = Blocks::new(kinds[0], [kinds[1], kinds[2], kinds[0]]);
        let makeups = Makeups::of(&blocks);
        let of = |which| [0, 1, 2, 3, 4].map(|count| makeups.least_sum(which, count, &[4.0, 1.0, 2.0]));
        assert_eq!(of(Which::First), [0.0, 4.0, 5.0, 7.0, 11.0]);
        assert_eq!(of(Which::Between), [0.0, 1.0, 3.0, 7.0, 11.0]);
        assert_eq!(of(Which::Last), [0.0, 4.0, 6.0, 7.0, 11.0]);
        assert_eq!(of(Which::Any), [0.0, 1.0, 3.0, 7.0, 11.0]);
        let sum = |range| makeups.sum(range, &[4.0, 1.0, 2.0]);
        assert_eq!([sum(0..4), sum(0..0), sum(1..3), sum(2..4)], [11.0, 0.0, 3.0, 6.0]);
    }
}
