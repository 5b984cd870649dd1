//! The samples of a source: windows that do not overlap.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use quadrille_spec::{IGNORED, PADDING};
use serde::{Deserialize, Serialize};

use crate::{DataError, TokenSource};

/// Documents whose samples are counted together: counting within takes as many steps.
const GROUP: usize = 64;

/// Whether a sample may hold parts of several documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Documents {
    /// Windows run over the boundaries of documents.
    #[default]
    Packed,
    /// A sample never crosses a boundary: the rest of its last sample is padding, which is neither token nor target.
    Respected,
}

/// What a sample is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleShape {
    /// Tokens of a sample, at least 1.
    pub seq_len: usize,
    /// Whether it may hold parts of several documents.
    pub documents: Documents,
    /// Tokens that the model has; others are errors.
    pub vocab: usize,
}

/// The samples in a range of a source's tokens.
#[derive(Debug, Clone)]
pub struct Windows {
    source: Arc<TokenSource>,
    range: Range<usize>,
    shape: SampleShape,
    /// With respected documents: those in the range, and how many samples lie before each [`GROUP`] of them.
    groups: Option<Groups>,
    len: u64,
}

#[derive(Debug, Clone)]
struct Groups {
    documents: Range<usize>,
    /// Samples before each group.
    before: Vec<u64>,
}

impl Windows {
    /// The samples of `source` in the token positions `range`. With respected documents their index is read once, and a
    /// number is kept for every 64 of them.
    ///
    /// # Errors
    /// [`DataError::TooShort`] for a range without a sample; [`DataError::NoSamples`] if no document has two tokens; those
    /// of [`TokenSource::documents`].
    pub fn new(source: Arc<TokenSource>, range: Range<usize>, shape: SampleShape) -> Result<Self, DataError> {
        let mut windows = Self { source, range, shape, groups: None, len: 0 };
        let seq_len = shape.seq_len;
        let present = windows.range.len();
        match shape.documents {
            Documents::Packed => windows.len = (present.saturating_sub(1) / seq_len) as u64,
            Documents::Respected => windows.count_documents()?,
        }
        match (windows.len, shape.documents) {
            (0, Documents::Packed) => Err(DataError::TooShort { seq_len, needed: seq_len.saturating_add(1), present }),
            (0, Documents::Respected) => Err(DataError::NoSamples { present }),
            _ => Ok(windows),
        }
    }

    /// Number of samples.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Never: there is at least one sample.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where the tokens are from.
    pub fn source(&self) -> &TokenSource {
        &self.source
    }

    /// The positions of the tokens that samples may hold.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// Fills in sample `index`, which is below [`Self::len`]: `tokens` and `targets` have the sample's length, and
    /// `targets[t]` is the token that follows `tokens[t]`; behind the end of a document they are [`PADDING`] and [`IGNORED`].
    ///
    /// # Errors
    /// [`DataError::BeyondVocabulary`]; those of [`TokenSource::window`].
    pub fn read(&self, index: u64, tokens: &mut [u32], targets: &mut [u32]) -> Result<(), DataError> {
        let window = self.window(index)?;
        let mut read = vec![0; window.len()];
        self.source.window(window.start, &mut read)?;
        self.source.check(window.start, &read, self.shape.vocab)?;
        // The last token is a target only.
        let count = window.len() - 1;
        tokens[..count].copy_from_slice(&read[..count]);
        targets[..count].copy_from_slice(&read[1..]);
        tokens[count..].fill(PADDING);
        targets[count..].fill(IGNORED);
        Ok(())
    }

    /// Positions of a sample's tokens and of its last target: at least two.
    fn window(&self, index: u64) -> Result<Range<usize>, DataError> {
        let seq_len = self.shape.seq_len;
        let (document, within) = match &self.groups {
            None => (self.range.clone(), index as usize),
            Some(groups) => self.find(groups, index)?,
        };
        let start = document.start + within * seq_len;
        Ok(start..document.end.min(start + seq_len + 1))
    }

    /// The parts of documents that lie in the range: of a [`GROUP`] from `first` on, or of those that are left.
    fn group(&self, documents: &Range<usize>, first: usize) -> Result<Vec<Range<usize>>, DataError> {
        let count = GROUP.min(documents.end - first);
        let mut starts = [0; GROUP + 1];
        self.source.document_starts(first, &mut starts[..=count])?;
        let within = |at: usize| at.clamp(self.range.start, self.range.end);
        Ok(starts[..=count].windows(2).map(|ends| within(ends[0])..within(ends[1])).collect())
    }

    /// Samples of a document: the last token is no input.
    fn samples(&self, document: &Range<usize>) -> u64 {
        document.len().saturating_sub(1).div_ceil(self.shape.seq_len) as u64
    }

    fn count_documents(&mut self) -> Result<(), DataError> {
        if self.range.is_empty() {
            return Ok(());
        }
        let first = self.source.document_at(self.range.start)?;
        let documents = first..self.source.document_at(self.range.end - 1)? + 1;
        let mut before = Vec::with_capacity(documents.len().div_ceil(GROUP));
        let mut total = 0;
        for first in documents.clone().step_by(GROUP) {
            before.push(total);
            total += self.group(&documents, first)?.iter().map(|document| self.samples(document)).sum::<u64>();
        }
        (self.len, self.groups) = (total, Some(Groups { documents, before }));
        Ok(())
    }

    /// The document that holds a sample, and which of its samples it is.
    fn find(&self, groups: &Groups, index: u64) -> Result<(Range<usize>, usize), DataError> {
        let group = groups.before.partition_point(|before| *before <= index) - 1;
        let mut within = index - groups.before[group];
        for document in self.group(&groups.documents, groups.documents.start + group * GROUP)? {
            match self.samples(&document) {
                samples if within < samples => return Ok((document, within as usize)),
                samples => within -= samples,
            }
        }
        let reason = "its documents are others than when they were counted".to_owned();
        Err(DataError::Damaged { path: self.source.path().to_path_buf(), reason })
    }
}

impl fmt::Display for Documents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Packed => "packed",
            Self::Respected => "respected",
        })
    }
}

impl FromStr for Documents {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "packed" => Ok(Self::Packed),
            "respected" => Ok(Self::Respected),
            other => Err(format!("unknown treatment of documents `{other}`: use `packed` or `respected`")),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Reading, Tokenizer, prepare};

    /// A source of documents of these lengths, of bytes that count up, each with its end.
    fn source(lengths: &[usize]) -> Arc<TokenSource> {
        let folder = tempfile::tempdir().unwrap();
        let mut byte = 0;
        let paths: Vec<_> = lengths
            .iter()
            .enumerate()
            .map(|(at, length)| {
                let text: Vec<u8> = (0..*length)
                    .map(|_| {
                        byte = byte % 250 + 1;
                        byte
                    })
                    .collect();
                let path = folder.path().join(format!("{at}"));
                std::fs::write(&path, text).unwrap();
                path
            })
            .collect();
        let reading = Reading::new(Tokenizer::Bytes);
        Arc::new(prepare(&paths, &reading, folder.path(), &mut |_, _| {}).unwrap().into())
    }

    fn all(windows: &Windows) -> Vec<(Vec<u32>, Vec<u32>)> {
        let read = |index| {
            let [mut tokens, mut targets] = [(); 2].map(|()| vec![77; windows.shape.seq_len]);
            windows.read(index, &mut tokens, &mut targets).unwrap();
            (tokens, targets)
        };
        (0..windows.len()).map(read).collect()
    }

    fn shape(seq_len: usize, documents: Documents) -> SampleShape {
        SampleShape { seq_len, documents, vocab: 256 }
    }

    #[test]
    fn packed_windows_follow_each_other_over_documents() {
        let source = source(&[3, 4]);
        let windows = Windows::new(source.clone(), 0..9, shape(4, Documents::Packed)).unwrap();
        assert_eq!(all(&windows), [(vec![1, 2, 3, 0], vec![2, 3, 0, 4]), (vec![4, 5, 6, 7], vec![5, 6, 7, 0]),]);
        let error = Windows::new(source, 5..9, shape(4, Documents::Packed)).unwrap_err();
        assert!(matches!(error, DataError::TooShort { needed: 5, present: 4, .. }), "{error}");
    }

    #[test]
    fn respected_documents_are_padded() {
        let source = source(&[3, 5, 1]);
        let windows = Windows::new(source.clone(), 0..12, shape(4, Documents::Respected)).unwrap();
        const X: u32 = IGNORED;
        const P: u32 = PADDING;
        assert_eq!(
            all(&windows),
            [
                (vec![1, 2, 3, P], vec![2, 3, 0, X]),
                (vec![4, 5, 6, 7], vec![5, 6, 7, 8]),
                (vec![8, P, P, P], vec![0, X, X, X]),
                (vec![9, P, P, P], vec![0, X, X, X]),
            ]
        );
        // A range cuts documents.
        let windows = Windows::new(source.clone(), 2..7, shape(4, Documents::Respected)).unwrap();
        assert_eq!(all(&windows), [(vec![3, P, P, P], vec![0, X, X, X]), (vec![4, 5, P, P], vec![5, 6, X, X])]);
        let error = Windows::new(source, 3..4, shape(4, Documents::Respected)).unwrap_err();
        assert!(matches!(error, DataError::NoSamples { .. }), "{error}");
    }

    #[test]
    fn tokens_that_the_model_lacks_are_named() {
        let source = source(&[9]);
        let windows = Windows::new(source, 0..10, SampleShape { vocab: 6, ..shape(4, Documents::Packed) }).unwrap();
        let read = |index| windows.read(index, &mut [0; 4], &mut [0; 4]);
        read(0).unwrap();
        let error = read(1).unwrap_err();
        assert!(matches!(error, DataError::BeyondVocabulary { token: 6, position: 5, vocab: 6, .. }), "{error}");
    }

    proptest! {
        /// Every token but the first of a document is a target exactly once.
        #[test]
        fn respected_documents_lose_no_target(lengths in prop::collection::vec(1_usize..30, 1..200), seq_len in 1_usize..12) {
            let source = source(&lengths);
            let windows = Windows::new(source.clone(), 0..source.len(), shape(seq_len, Documents::Respected)).unwrap();
            let samples = all(&windows);
            let targets: Vec<u32> =
                samples.iter().flat_map(|(_, targets)| targets).copied().filter(|target| *target != IGNORED).collect();
            let mut expected = Vec::new();
            for document in 0..source.documents().unwrap() {
                let all = source.document(document).unwrap();
                let mut tokens = vec![0; all.len()];
                source.window(all.start, &mut tokens).unwrap();
                expected.extend_from_slice(&tokens[1..]);
            }
            prop_assert_eq!(targets, expected);
        }
    }
}
