//! Another program cuts a file that is open already: an error names it, where a mapped file would end the process.

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::sync::Arc;

use quadrille_data::{DataError, Documents, SampleShape, TokenFormat, TokenSource, Tokenizer, Windows};

use crate::formats::{opened, try_convert};
use crate::others::{llm_c, write_megatron};

/// Enough that nothing is read along with the beginning.
const DOCUMENTS: usize = 3000;

fn documents() -> Vec<Vec<u32>> {
    (0..DOCUMENTS as u32).map(|document| (0..50).map(|at| (document + at) % 50_000).chain([50_256]).collect()).collect()
}

fn cut(path: &Path) {
    let length = fs::metadata(path).unwrap().len();
    OpenOptions::new().write(true).open(path).unwrap().set_len(length / 3).unwrap();
}

/// Reads a source to its end, by tokens and by documents.
fn read_all(source: &TokenSource) -> Result<(), DataError> {
    let mut tokens = vec![0; 1000];
    for start in (0..source.len()).step_by(tokens.len()) {
        let count = tokens.len().min(source.len() - start);
        source.window(start, &mut tokens[..count])?;
    }
    (0..source.documents()?).try_for_each(|document| source.document(document).map(drop))
}

fn assert_named(error: &DataError, name: &str) {
    assert!(matches!(error, DataError::SourceChanged { expected, found, .. } if *found == expected / 3), "{error}");
    assert!(error.to_string().contains(name), "{error}");
}

#[test]
fn token_files_that_are_cut_while_they_are_open_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let write = |name: &str| {
        let documents: Vec<Vec<Vec<u32>>> = documents().into_iter().map(|document| vec![document]).collect();
        write_megatron(&at("m"), 8, &documents);
        fs::write(at("c.bin"), llm_c(20_240_520, 1, 2, &documents.concat().concat())).unwrap();
        try_convert(&[at("m")], Some(Tokenizer::Gpt2), false, &at("own"), TokenFormat::Quadrille).unwrap();
        opened(&at(name), None).unwrap()
    };
    for (name, file) in [("own.tokens", "own.tokens"), ("m", "m.bin"), ("m", "m.idx"), ("c.bin", "c.bin")] {
        let source = write(name);
        read_all(&source).unwrap();
        cut(&at(file));
        assert_named(&read_all(&source).unwrap_err(), file);
        // As training reads it, which has counted the samples before.
        let source = Arc::new(write(name));
        for documents in [Documents::Packed, Documents::Respected] {
            let shape = SampleShape { seq_len: 32, documents, vocab: 50_257 };
            let windows = Windows::new(source.clone(), 0..source.len(), shape).unwrap();
            let whole = fs::read(at(file)).unwrap();
            cut(&at(file));
            let mut tokens = vec![0; 32];
            let mut targets = vec![0; 32];
            let read = windows.read(windows.len() - 1, &mut tokens, &mut targets);
            match (documents, file) {
                // The index says where documents end, and nothing else.
                (Documents::Packed, "m.idx") => read.unwrap(),
                _ => assert_named(&read.unwrap_err(), file),
            }
            // In place: what is open is the same file.
            fs::write(at(file), whole).unwrap();
        }
    }
}
