//! The tokens of files, in their order, made by all cores.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use rayon::prelude::*;

use super::lines::Lines;
use super::parquet::Rows;
use super::pieces::{PIECE_BYTES, Pieces};
use super::{DocumentCount, Format, Input, Piece, Reading, SkippedLines};
use crate::output::{Mark, TokenWriter};
use crate::{DataError, Tokenizer};

/// Pieces of text that are encoded at once for each core: several, so that no core waits long for the last one.
const PIECES_EACH: usize = 4;

/// Documents of one file.
enum Documents {
    Text(Pieces<File>),
    Lines(Lines<BufReader<File>>),
    Rows(Box<Rows>),
}

impl Documents {
    fn open(input: &Input, reading: &Reading) -> Result<Self, DataError> {
        if input.format == Format::Parquet {
            return Ok(Self::Rows(Box::new(Rows::open(&input.path, reading.rules())?)));
        }
        let file = File::open(&input.path).map_err(DataError::io("open", &input.path))?;
        Ok(match input.format {
            Format::JsonLines => {
                let buffered = BufReader::with_capacity(PIECE_BYTES, file);
                Self::Lines(Lines::new(&input.path, buffered, reading.rules()))
            }
            _ => Self::Text(Pieces::new(&reading.tokenizer, &input.path, file, PIECE_BYTES, reading.special.parsed)),
        })
    }

    fn next(&mut self) -> Result<Option<Piece>, DataError> {
        match self {
            Self::Text(pieces) => pieces.next(),
            Self::Lines(lines) => lines.next(),
            Self::Rows(rows) => rows.next(),
        }
    }

    fn offset(&self) -> u64 {
        match self {
            Self::Text(pieces) => pieces.offset(),
            Self::Lines(lines) => lines.offset(),
            Self::Rows(rows) => rows.offset(),
        }
    }

    fn skipped(&self) -> Option<SkippedLines> {
        match self {
            Self::Text(_) => None,
            Self::Lines(lines) => lines.skipped().cloned(),
            Self::Rows(rows) => rows.skipped().cloned(),
        }
    }

    /// The documents of a file that was read to its end.
    ///
    /// # Errors
    /// [`DataError::OnlyBadLines`].
    fn counted(&self, path: &Path, documents: u64) -> Result<DocumentCount, DataError> {
        match self.skipped() {
            Some(skipped) if documents == 0 => Err(DataError::OnlyBadLines { path: path.to_path_buf(), skipped }),
            skipped => Ok(DocumentCount { documents, skipped }),
        }
    }
}

/// Writes the documents of a text file, of JSON lines or of Parquet, and counts them. Holds some megabytes for each core; more
/// where a text has no place to cut, or a line is longer. `progress` gets the number of bytes of the file that are done.
pub(crate) fn encode_documents(
    input: &Input,
    reading: &Reading,
    writer: &mut dyn TokenWriter,
    progress: &mut dyn FnMut(u64),
) -> Result<DocumentCount, DataError> {
    let mut documents = Documents::open(input, reading)?;
    let enough = rayon::current_num_threads() * PIECES_EACH * PIECE_BYTES;
    let affixes = reading.affixes();
    let end = reading.tokenizer.end_of_document();
    let mut at_end = false;
    let mut begins = true;
    let mut count = 0;
    while !at_end {
        let mut batch = Vec::new();
        let mut bytes = 0;
        while bytes < enough {
            let Some(piece) = documents.next()? else {
                at_end = true;
                break;
            };
            bytes += piece.bytes.len();
            batch.push(piece);
        }
        let encoded: Vec<Result<Vec<u32>, DataError>> =
            batch.par_iter().map(|piece| encode(reading, &input.path, piece)).collect();
        for (piece, tokens) in batch.iter().zip(encoded) {
            let tokens = tokens?;
            if begins {
                writer.begin_document(Mark::Present)?;
                writer.push(&affixes.begin)?;
            }
            writer.push(&tokens)?;
            begins = piece.ends;
            if piece.ends {
                count += 1;
                writer.push(affixes.after(end))?;
                writer.end_document()?;
            }
        }
        progress(documents.offset());
    }
    match documents.offset() {
        found if found == input.bytes => documents.counted(&input.path, count),
        found => Err(DataError::SourceChanged { path: input.path.clone(), expected: input.bytes, found }),
    }
}

/// Documents of a text file, of JSON lines or of Parquet, without their tokens.
pub(crate) fn count_documents(input: &Input, reading: &Reading) -> Result<DocumentCount, DataError> {
    let mut documents = Documents::open(input, reading)?;
    let mut count = 0;
    while let Some(piece) = documents.next()? {
        count += u64::from(piece.ends);
    }
    documents.counted(&input.path, count)
}

/// The tokens of a piece of the file at `path`.
pub(super) fn encode(reading: &Reading, path: &Path, piece: &Piece) -> Result<Vec<u32>, DataError> {
    let tokenizer = &reading.tokenizer;
    if matches!(tokenizer, Tokenizer::Bytes) {
        return Ok(piece.bytes.iter().map(|&byte| u32::from(byte)).collect());
    }
    let utf8 = |bytes, offset: u64| {
        std::str::from_utf8(bytes).map_err(|error| DataError::NotUtf8 {
            path: path.to_path_buf(),
            offset: offset + error.valid_up_to() as u64,
        })
    };
    let text = utf8(&piece.bytes, piece.offset)?;
    let context = utf8(&piece.context, piece.offset - piece.context.len() as u64)?;
    let unsplittable =
        |limit, tokenizer| DataError::Unsplittable { path: path.to_path_buf(), offset: piece.offset, limit, tokenizer };
    match tokenizer.encode_behind(context, text, reading.special.parsed) {
        // Told in terms of the file that is read.
        Err(DataError::NotEncodable { tokenizer, .. }) => Err(unsplittable(1_000_000, tokenizer)),
        encoded => encoded?.ok_or_else(|| unsplittable(text.len(), tokenizer.to_string())),
    }
}
