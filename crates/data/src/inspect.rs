//! What a file holds, after reading all of it.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use crate::open::open_tokens;
use crate::text::{DocumentCount, Format, Input, Reading, TextRules, collect, count_documents};
use crate::tokens::megatron;
use crate::{DataError, SkippedLines, TokenSource, Tokenizer, Vocabulary};

/// Tokens, or bytes, that are read at a time.
const PART: usize = 1 << 16;

/// What [`inspect`] finds in a file, or in a pair of Megatron-LM's.
#[derive(Debug, Clone, PartialEq)]
pub struct Contents {
    /// The file; of a pair the index.
    pub path: PathBuf,
    /// Its format.
    pub format: Format,
    /// Bytes, of a pair of both.
    pub bytes: u64,
    /// Tokens; text has none yet.
    pub tokens: Option<u64>,
    /// The largest token.
    pub largest: Option<u32>,
    /// Documents.
    pub documents: u64,
    /// Lines that were skipped.
    pub skipped: Option<SkippedLines>,
    /// Whose tokens they are, where the file says it.
    pub vocabulary: Option<Vocabulary>,
    /// XXH3-64 of the bytes, of a pair of the `.bin` and then the `.idx`.
    pub checksum: u64,
}

/// Reads and checks the files and folders `paths` in full.
///
/// # Errors
/// The first thing that is wrong with them: those of [`crate::open()`] and [`TokenSource::verify`].
pub fn inspect(paths: &[PathBuf], rules: TextRules) -> Result<Vec<Contents>, DataError> {
    let inputs = collect(paths, rules)?;
    rules.check(inputs.iter().map(|input| input.format))?;
    inputs.into_iter().map(|input| contents(input, rules)).collect()
}

fn contents(input: Input, rules: TextRules) -> Result<Contents, DataError> {
    let files = match input.format {
        Format::Megatron => <[PathBuf; 2]>::from(megatron::pair(&input.path)).to_vec(),
        _ => vec![input.path.clone()],
    };
    let (bytes, checksum) = checksum(&files)?;
    let Input { path, format, .. } = input.clone();
    let found = Contents {
        path,
        format,
        bytes,
        tokens: None,
        largest: None,
        documents: 0,
        skipped: None,
        vocabulary: None,
        checksum,
    };
    if !input.format.is_tokens() {
        let text_field = rules.field.to_owned();
        let skip_bad_lines = rules.skip_bad_lines;
        let reading = Reading { text_field, skip_bad_lines, ..Reading::new(Tokenizer::Bytes) };
        let DocumentCount { documents, skipped } = count_documents(&input, &reading)?;
        return Ok(Contents { documents, skipped, ..found });
    }
    let source = open_tokens(&input, None)?;
    source.verify()?;
    Ok(Contents {
        tokens: Some(source.len() as u64),
        largest: largest(&source)?,
        documents: source.documents()? as u64,
        vocabulary: source.vocabulary(),
        ..found
    })
}

fn largest(source: &TokenSource) -> Result<Option<u32>, DataError> {
    let mut buffer = vec![0; PART];
    let mut largest = None;
    for start in (0..source.len()).step_by(PART) {
        let tokens = &mut buffer[..PART.min(source.len() - start)];
        source.window(start, tokens)?;
        largest = largest.max(tokens.iter().copied().max());
    }
    Ok(largest)
}

/// Bytes of the files, and the hash of one after the other.
fn checksum(files: &[PathBuf]) -> Result<(u64, u64), DataError> {
    let mut hash = Xxh3::new();
    let mut bytes = 0;
    let mut buffer = vec![0; PART];
    for path in files {
        let mut file = File::open(path).map_err(DataError::io("open", path))?;
        loop {
            let read = read_part(&mut file, &mut buffer, path)?;
            if read == 0 {
                break;
            }
            hash.update(&buffer[..read]);
            bytes += read as u64;
        }
    }
    Ok((bytes, hash.digest()))
}

fn read_part(file: &mut File, buffer: &mut [u8], path: &Path) -> Result<usize, DataError> {
    loop {
        match file.read(buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            read => return read.map_err(DataError::io("read", path)),
        }
    }
}
