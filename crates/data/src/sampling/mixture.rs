//! Samples of several sources, in shares that hold exactly.

use quadrille_spec::RandomStream;

use super::{Permutation, Windows};
use crate::DataError;

/// Samples among which every source has exactly its share.
const BLOCK: u64 = 1 << 16;

/// An endless sequence of samples: a pure function of the seed and the sample's number, counted from the beginning of the
/// run, so that every layout, and a run that goes on with another batch, reads the same samples in the same order.
///
/// A source's samples come in epochs, each of them once in every epoch, in an order of the epoch's own. Of several sources,
/// each has its share of every 65,536 consecutive samples, rounded to whole samples by largest remainders, at places that
/// are drawn for each such block. Nothing is stored for this.
#[derive(Debug, Clone)]
pub struct Mixture {
    parts: Vec<Part>,
    /// Keys the places of the sources' samples.
    places: RandomStream,
}

#[derive(Debug, Clone)]
struct Part {
    windows: Windows,
    /// Keys the order of its samples.
    order: RandomStream,
    /// Samples of a block before this source's, in the order of sources.
    before: u64,
    /// Its samples in a block.
    count: u64,
}

impl Mixture {
    /// Sources with their weights, positive numbers; at least one source.
    ///
    /// # Errors
    /// [`DataError::Weights`] for a weight that is no positive number, or gives less than one sample in 65,536.
    pub fn new(sources: Vec<(Windows, f64)>, seed: u64) -> Result<Self, DataError> {
        let weights: Vec<f64> = sources.iter().map(|(_, weight)| *weight).collect();
        let counts = counts(&weights)?;
        let mut before = 0;
        let parts = sources.into_iter().zip(counts).enumerate().map(|(at, ((windows, _), count))| {
            let order = RandomStream::new(seed, &format!("order of source {at}"));
            let part = Part { windows, order, before, count };
            before += count;
            part
        });
        Ok(Self { parts: parts.collect(), places: RandomStream::new(seed, "places of sources") })
    }

    /// The sources, with the exact share of each.
    pub fn sources(&self) -> impl Iterator<Item = (&Windows, f64)> {
        self.parts.iter().map(|part| (&part.windows, part.count as f64 / BLOCK as f64))
    }

    /// Samples until every source was read once at least.
    pub fn samples(&self) -> u64 {
        let until = |part: &Part| match self.parts.len() {
            1 => part.windows.len(),
            _ => (u128::from(part.windows.len()) * u128::from(BLOCK)).div_ceil(part.count.into()) as u64,
        };
        self.parts.iter().map(until).max().unwrap_or(0)
    }

    /// Fills `tokens` and `targets`, `[samples, seq_len]`, with the samples from number `first` on.
    ///
    /// # Errors
    /// Those of [`Windows::read`].
    ///
    /// # Panics
    /// If the buffers are not equally long.
    pub fn fill(&self, first: u64, seq_len: usize, tokens: &mut [u32], targets: &mut [u32]) -> Result<(), DataError> {
        assert_eq!(tokens.len(), targets.len(), "buffers of inputs and targets");
        for (at, (tokens, targets)) in tokens.chunks_mut(seq_len).zip(targets.chunks_mut(seq_len)).enumerate() {
            let (part, index) = self.locate(first.wrapping_add(at as u64));
            part.windows.read(index, tokens, targets)?;
        }
        Ok(())
    }

    /// The source and the window of a sample.
    fn locate(&self, number: u64) -> (&Part, u64) {
        let (part, turn) = match &self.parts[..] {
            [part] => (part, number),
            parts => {
                let block = number / BLOCK;
                let place = number % BLOCK;
                let drawn = Permutation::new(self.places.substream(block), BLOCK).at(place);
                let part = &parts[parts.partition_point(|part| part.before <= drawn) - 1];
                (part, block * part.count + drawn - part.before)
            }
        };
        let len = part.windows.len();
        (part, Permutation::new(part.order.substream(turn / len), len).at(turn % len))
    }
}

/// How many of [`BLOCK`] samples each weight gets, by largest remainders: the whole parts of the exact shares, then one more
/// for those that lost most.
fn counts(weights: &[f64]) -> Result<Vec<u64>, DataError> {
    if let Some(weight) = weights.iter().find(|weight| !weight.is_finite() || **weight <= 0.0) {
        return Err(DataError::Weights(format!("{weight} is not a positive number")));
    }
    // The largest is taken out first: sums of large weights stay finite.
    let largest = weights.iter().copied().fold(0.0, f64::max);
    let total: f64 = weights.iter().map(|weight| weight / largest).sum();
    let shares: Vec<f64> = weights.iter().map(|weight| weight / largest / total * BLOCK as f64).collect();
    let mut counts: Vec<u64> = shares.iter().map(|share| *share as u64).collect();
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by(|a, b| shares[*b].fract().total_cmp(&shares[*a].fract()));
    let missing = BLOCK.saturating_sub(counts.iter().sum()) as usize;
    order.iter().cycle().take(missing).for_each(|at| counts[*at] += 1);
    match counts.iter().position(|count| *count == 0) {
        None => Ok(counts),
        Some(at) => Err(DataError::Weights(format!(
            "{} is less than one sample in {BLOCK} of all weights together, {}",
            weights[at],
            weights.iter().sum::<f64>()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::super::{Documents, SampleShape};
    use super::*;
    use crate::{DemoCorpus, TokenSource, Tokenizer};

    /// A source of `samples` windows of 4 tokens.
    fn windows(seed: u64, samples: usize) -> Windows {
        let source = Arc::new(TokenSource::from(DemoCorpus::new(seed, Tokenizer::Bytes, 4 * samples + 1)));
        let shape = SampleShape { seq_len: 4, documents: Documents::Packed, vocab: 256 };
        Windows::new(source, 0..4 * samples + 1, shape).unwrap()
    }

    #[test]
    fn shares_are_exact_and_remainders_go_to_those_that_lost_most() {
        assert_eq!(counts(&[1.0]).unwrap(), [65536]);
        assert_eq!(counts(&[0.7, 0.3]).unwrap(), [45875, 19661]);
        assert_eq!(counts(&[1.0, 1.0, 1.0]).unwrap(), [21846, 21845, 21845]);
        assert_eq!(counts(&[f64::MAX, f64::MAX]).unwrap(), [32768, 32768]);
        for bad in [&[0.0, 1.0][..], &[-1.0], &[f64::NAN, 1.0], &[f64::INFINITY], &[1.0, 1e-9]] {
            assert!(matches!(counts(bad), Err(DataError::Weights(_))), "{bad:?}");
        }
    }

    #[test]
    fn an_epoch_has_every_sample_once_and_the_next_another_order() {
        let mixture = Mixture::new(vec![(windows(1, 100), 1.0)], 5).unwrap();
        let epoch = |number: u64| (0..100).map(|at| mixture.locate(100 * number + at).1).collect::<Vec<_>>();
        let first = epoch(0);
        let second = epoch(1);
        assert_ne!(first, second);
        for mut order in [first, second] {
            order.sort_unstable();
            assert_eq!(order, (0..100).collect::<Vec<_>>());
        }
        assert_eq!(mixture.samples(), 100);
    }

    #[test]
    fn sources_keep_their_shares_and_their_own_epochs() {
        let sources = vec![(windows(1, 3000), 0.7), (windows(2, 10_000), 0.2), (windows(3, 777), 0.1)];
        let mixture = Mixture::new(sources, 9).unwrap();
        let shares: Vec<f64> = mixture.sources().map(|(_, share)| share).collect();
        let mut seen: Vec<BTreeMap<u64, u64>> = vec![BTreeMap::new(); 3];
        for number in 0..2 * BLOCK {
            let (part, index) = mixture.locate(number);
            let source = mixture.parts.iter().position(|other| other.before == part.before).unwrap();
            *seen[source].entry(index).or_default() += 1;
            if number % BLOCK == 999 {
                let share = seen[0].values().sum::<u64>() as f64 / (number + 1) as f64;
                assert!((share - 0.7).abs() < 0.06, "drawn all over the block: {share}");
            }
        }
        for (seen, (windows, share)) in seen.iter().zip(mixture.sources()) {
            let total = (2.0 * share * BLOCK as f64) as u64;
            assert_eq!(seen.values().sum::<u64>(), total);
            // Whole epochs: no sample is read twice more than another.
            let least = total / windows.len();
            let most = total.div_ceil(windows.len());
            assert!(seen.values().all(|count| (least..=most).contains(count)));
        }
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        assert_eq!(mixture.samples(), (10_000 * BLOCK).div_ceil(13107));
    }

    /// A resumed run with another global batch goes on where the first stopped.
    #[test]
    fn batches_do_not_depend_on_how_they_are_split() {
        let mixture = Mixture::new(vec![(windows(1, 50), 2.0), (windows(2, 70), 1.0)], 3).unwrap();
        let batch = |first: u64, count: usize| {
            let [mut tokens, mut targets] = [(); 2].map(|()| vec![0; 4 * count]);
            mixture.fill(first, 4, &mut tokens, &mut targets).unwrap();
            (tokens, targets)
        };
        let whole = batch(0, 24);
        let parts: Vec<_> = [(0, 8), (8, 8), (16, 3), (19, 5)].map(|(first, count)| batch(first, count)).into();
        assert_eq!(parts.iter().flat_map(|part| part.0.clone()).collect::<Vec<_>>(), whole.0);
        assert_eq!(parts.iter().flat_map(|part| part.1.clone()).collect::<Vec<_>>(), whole.1);
        let other = Mixture::new(vec![(windows(1, 50), 2.0), (windows(2, 70), 1.0)], 4).unwrap();
        let mut tokens = vec![0; 96];
        other.fill(0, 4, &mut tokens, &mut vec![0; 96]).unwrap();
        assert_ne!(tokens, whole.0, "another seed");
    }
}
