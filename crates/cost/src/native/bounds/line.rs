//! A number of a piece of layers, by how many blocks the piece has.

use quadrille_spec::Blocks;

/// A number for every count of blocks, from those of a few.
///
/// Collectives and computations follow each other on streams, so that what a pass takes is the longest of several ways
/// through its tasks, each of which grows evenly with the blocks; and so it is with memory, the most of several moments. So
/// none adds less than those before it, once a block has others on both sides.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Line {
    /// Of `first` blocks and the next few.
    few: Vec<f64>,
    first: usize,
    /// With each further block, at least.
    pub more: f64,
    /// What any block adds at most; the same where all are alike.
    pub more_at_most: f64,
}

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

impl Line {
    /// Of pieces whose blocks are alike.
    pub fn new(first: usize, few: Vec<f64>, more: f64) -> Self {
        Self { few, first, more, more_at_most: more }
    }

    /// Of the least that pieces with such blocks of a model have, if blocks of each kind alone have what `alike` says, and each
    /// adds as much beside others as beside its like.
    pub fn of_kinds(alike: &[&Self], blocks: &Blocks, which: Which) -> Self {
        let adds = |kind: usize| alike[kind].more;
        let all = || (0..alike.len()).map(adds);
        let beside = alike.iter().map(|line| line.beside()).fold(f64::INFINITY, f64::min);
        let sums = least_sums((0..blocks.len()).map(|place| adds(blocks.kind_of(place))).collect(), which);
        Self {
            few: sums.into_iter().map(|sum| beside + sum).collect(),
            first: 0,
            more: all().fold(f64::INFINITY, f64::min),
            more_at_most: all().fold(f64::NEG_INFINITY, f64::max),
        }
    }

    /// A part of it.
    pub fn part(self, part: f64) -> Self {
        Self {
            few: self.few.into_iter().map(|number| part * number).collect(),
            more: part * self.more,
            more_at_most: part * self.more_at_most,
            ..self
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

    /// With so many blocks.
    pub fn at(&self, blocks: usize) -> f64 {
        let last = (self.first + self.few.len()).saturating_sub(1);
        let known = blocks.min(last).saturating_sub(self.first);
        self.few.get(known).unwrap_or(&0.0) + blocks.saturating_sub(last) as f64 * self.more
    }

    /// What there is at least beside blocks, if each adds what further ones do.
    fn beside(&self) -> f64 {
        let few = (self.first..).zip(&self.few);
        few.map(|(blocks, number)| number - blocks as f64 * self.more).fold(f64::INFINITY, f64::min)
    }
}

/// The least sums of none of these numbers, of one, of two, ..., of all.
fn least_sums(mut numbers: Vec<f64>, which: Which) -> Vec<f64> {
    match which {
        Which::First | Which::Between => {}
        Which::Last => numbers.reverse(),
        Which::Any => numbers.sort_by(f64::total_cmp),
    }
    let sums = |numbers: &[f64]| {
        let sum = |sum: &mut f64, number: &f64| {
            *sum += number;
            Some(*sum)
        };
        std::iter::once(0.0).chain(numbers.iter().scan(0.0, sum)).collect::<Vec<f64>>()
    };
    let mut least = sums(&numbers);
    if which == Which::Between {
        for from in 1..numbers.len() {
            least.iter_mut().zip(sums(&numbers[from..])).for_each(|(least, sum)| *least = least.min(sum));
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_the_least_of_the_blocks_that_a_piece_may_have() {
        let of = |which| least_sums(vec![4.0, 1.0, 2.0, 8.0], which);
        assert_eq!(of(Which::First), [0.0, 4.0, 5.0, 7.0, 15.0]);
        assert_eq!(of(Which::Last), [0.0, 8.0, 10.0, 11.0, 15.0]);
        assert_eq!(of(Which::Between), [0.0, 1.0, 3.0, 7.0, 15.0]);
        assert_eq!(of(Which::Any), [0.0, 1.0, 3.0, 7.0, 15.0]);
        assert_eq!(least_sums(vec![1.0, 4.0, 2.0], Which::Any), [0.0, 1.0, 3.0, 7.0]);
        assert_eq!(least_sums(vec![1.0, 4.0, 2.0], Which::Between), [0.0, 1.0, 5.0, 7.0]);
    }

    #[test]
    fn lines_go_on_as_they_ended() {
        let line = Line::new(1, vec![5.0, 6.0, 9.0], 3.0);
        assert_eq!([1, 2, 3, 4, 6].map(|blocks| line.at(blocks)), [5.0, 6.0, 9.0, 12.0, 18.0]);
        assert_eq!(line.beside(), 0.0);
    }
}
