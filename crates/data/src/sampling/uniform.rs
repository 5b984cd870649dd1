//! Which windows of the corpus a training step reads.

use quadrille_spec::RandomStream;

use crate::{DataError, TokenSource};

/// Where samples start, drawn uniformly with replacement: a pure function of the seed, the training step and the sample's
/// index in the global batch, so that every layout, and a resumed run, reads the same samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleIndex {
    /// The run's seed.
    pub seed: u64,
}

impl SampleIndex {
    /// First token of the sample with index `sample` in the global batch of training step `step`, from a corpus of
    /// `tokens_len` tokens; the sample is `seq_len` tokens and one more, the last target.
    ///
    /// # Errors
    /// [`DataError::TooShort`] if the corpus has fewer than `seq_len + 1` tokens.
    pub fn start(self, step: u64, sample: u64, tokens_len: usize, seq_len: usize) -> Result<usize, DataError> {
        if tokens_len <= seq_len {
            return Err(DataError::TooShort { seq_len, needed: seq_len.saturating_add(1), present: tokens_len });
        }
        let stream = RandomStream::new(self.seed, "sampling").substream(step);
        Ok(stream.below(sample, (tokens_len - seq_len) as u64) as usize)
    }
}

/// Fills `tokens` and `targets`, both `[count, seq_len]`, with the samples `first_sample..first_sample + count` of the
/// global batch of training step `step`; `targets[i, t]` is the token that follows `tokens[i, t]`.
///
/// # Errors
/// [`DataError::TooShort`] if the source has fewer than `seq_len + 1` tokens.
///
/// # Panics
/// If a buffer does not have `count * seq_len` elements.
pub fn fill_batch(
    source: &TokenSource,
    seed: u64,
    step: u64,
    first_sample: u64,
    count: usize,
    seq_len: usize,
    tokens: &mut [u32],
    targets: &mut [u32],
) -> Result<(), DataError> {
    assert_eq!((tokens.len(), targets.len()), (count * seq_len, count * seq_len), "buffers of {count} x {seq_len}");
    let index = SampleIndex { seed };
    for i in 0..count {
        let start = index.start(step, first_sample + i as u64, source.len(), seq_len)?;
        let row = i * seq_len..(i + 1) * seq_len;
        source.window(start, &mut tokens[row.clone()])?;
        source.window(start + 1, &mut targets[row])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DemoCorpus, Tokenizer};

    #[test]
    fn every_start_occurs_and_none_beyond() {
        let index = SampleIndex { seed: 3 };
        let mut seen = [0; 6];
        for sample in 0..6000 {
            seen[index.start(0, sample, 10, 4).unwrap()] += 1;
        }
        assert!(seen.iter().all(|&n| (850..1150).contains(&n)), "{seen:?}");
        assert_eq!(index.start(7, 1, 5, 4).unwrap(), 0);
    }

    #[test]
    fn seeds_steps_and_samples_differ() {
        let start = |seed, step, sample| SampleIndex { seed }.start(step, sample, 1 << 40, 64).unwrap();
        let starts = [start(0, 0, 0), start(1, 0, 0), start(0, 1, 0), start(0, 0, 1), start(0, 1, 1)];
        for (i, a) in starts.iter().enumerate() {
            assert!(starts[..i].iter().all(|b| a != b), "{starts:?}");
        }
        assert_eq!(starts[3], start(0, 0, 1));
    }

    #[test]
    fn batches_do_not_depend_on_how_they_are_split() {
        let source = TokenSource::from(DemoCorpus::new(1, Tokenizer::Bytes, 5000));
        let batch = |first: u64, count: usize| {
            let mut tokens = vec![0; count * 16];
            let mut targets = vec![0; count * 16];
            fill_batch(&source, 9, 2, first, count, 16, &mut tokens, &mut targets).unwrap();
            (tokens, targets)
        };
        let (tokens, targets) = batch(0, 8);
        for (first, count) in [(0, 2), (2, 5), (7, 1)] {
            let range = first as usize * 16..(first as usize + count) * 16;
            assert_eq!(batch(first, count), (tokens[range.clone()].to_vec(), targets[range].to_vec()));
        }
        for (row, next) in tokens.chunks(16).zip(targets.chunks(16)) {
            assert_eq!(row[1..], next[..15]);
        }
    }

    #[test]
    fn a_short_corpus_is_an_error_with_the_remedy() {
        let error = SampleIndex { seed: 0 }.start(0, 0, 64, 64).unwrap_err();
        assert!(matches!(error, DataError::TooShort { needed: 65, present: 64, .. }), "{error}");
        assert!(error.to_string().ends_with("at most 63"), "{error}");
        assert!(SampleIndex { seed: 0 }.start(0, 0, 0, usize::MAX).is_err());
        let source = TokenSource::from(DemoCorpus::new(1, Tokenizer::Bytes, 100));
        let mut buffer = vec![0; 4096];
        let error = fill_batch(&source, 0, 0, 0, 1, 4096, &mut buffer.clone(), &mut buffer).unwrap_err();
        assert!(matches!(error, DataError::TooShort { needed: 4097, .. }), "{error}");
    }
}
