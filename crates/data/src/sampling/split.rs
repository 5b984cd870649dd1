//! What is kept apart for validation.

use std::ops::Range;

use super::{Documents, SampleShape};
use crate::{DataError, TokenSource};

/// Cuts a source's tokens into those to train on and those to validate on, which are the last ones: the least number of last
/// documents that make up `share` of the tokens, unless that would take more than twice the share; then they begin inside a
/// document, for packed documents where a window ends. No token is in both.
///
/// # Errors
/// [`DataError::Share`] for a share that is not between 0 and 1, or leaves no sample on one of the sides; those of
/// [`TokenSource::documents`].
pub fn split(source: &TokenSource, share: f64, shape: SampleShape) -> Result<(Range<usize>, Range<usize>), DataError> {
    let refused = |reason: String| Err(DataError::Share { share, reason });
    if !(share > 0.0 && share < 1.0) {
        return refused("it must lie between 0 and 1".to_owned());
    }
    let len = source.len();
    let needed = if shape.documents == Documents::Packed { shape.seq_len.saturating_add(1) } else { 2 };
    let wanted = ((len as f64 * share).ceil() as usize).max(needed);
    if wanted.saturating_add(needed) > len {
        return refused(format!(
            "it takes {wanted} of {len} tokens, and a sample on either side needs {needed}; add text, shorten the sequence \
             or use `data.held_out.files`"
        ));
    }
    let document = source.document_start(source.document_at(len - wanted)?)?;
    let begin = match shape.documents {
        _ if document >= needed && len - document <= 2 * wanted => document,
        // The last target of a window is the next one's first token: validation begins after it.
        Documents::Packed => (len - wanted - 1) / shape.seq_len * shape.seq_len + 1,
        Documents::Respected => len - wanted,
    };
    Ok((0..begin, begin..len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DemoCorpus, Reading, Tokenizer, prepare};

    fn source(lengths: &[usize]) -> TokenSource {
        let folder = tempfile::tempdir().unwrap();
        let lines: String =
            lengths.iter().map(|length| format!("{{\"text\": \"{}\"}}\n", "x".repeat(*length))).collect();
        let path = folder.path().join("a.jsonl");
        std::fs::write(&path, lines).unwrap();
        prepare(&[path], &Reading::new(Tokenizer::Bytes), folder.path(), &mut |_, _| {}).unwrap().into()
    }

    fn shape(documents: Documents) -> SampleShape {
        SampleShape { seq_len: 8, documents, vocab: 256 }
    }

    #[test]
    fn the_last_documents_are_kept_apart() {
        // With their ends: 100 documents of 20 tokens.
        let source = source(&[19; 100]);
        for documents in [Documents::Packed, Documents::Respected] {
            for (share, begin) in [(0.01, 1980), (0.011, 1960), (0.1, 1800), (0.5, 1000)] {
                assert_eq!(split(&source, share, shape(documents)).unwrap(), (0..begin, begin..2000), "{share}");
            }
        }
    }

    #[test]
    fn a_long_last_document_is_cut_at_a_window() {
        let source = source(&[99, 899]);
        // 10% are 100 tokens; windows end at multiples of 8, and one token more is the last target.
        assert_eq!(split(&source, 0.1, shape(Documents::Packed)).unwrap(), (0..897, 897..1000));
        assert_eq!(split(&source, 0.1, shape(Documents::Respected)).unwrap(), (0..900, 900..1000));
        let one = TokenSource::from(DemoCorpus::new(1, Tokenizer::Bytes, 1000));
        let (training, validation) = split(&one, 0.01, shape(Documents::Packed)).unwrap();
        assert_eq!((training.start, training.end, validation.end), (0, validation.start, one.len()));
        assert!(training.end % 8 == 1 && validation.len() >= 9);
    }

    #[test]
    fn impossible_shares_are_refused() {
        let source = source(&[9, 4]);
        for share in [0.0, 1.0, -0.1, f64::NAN, 0.9] {
            let error = split(&source, share, shape(Documents::Packed)).unwrap_err();
            assert!(matches!(error, DataError::Share { .. }), "{error}");
        }
    }
}
