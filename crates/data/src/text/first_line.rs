//! The first line of a file, which shows whether the file is JSON lines.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use super::lines::{BYTE_ORDER_MARK, text_of, words};
use crate::DataError;

/// Bytes of a first line that are read.
const LONGEST: u64 = 1 << 24;

/// Content of a file by its first line that is not empty.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FirstLine {
    /// An object with a text in the field.
    Document,
    /// A line of JSON that is no such object, and the reason.
    OtherJson(String),
    /// The beginning of a JSON array of objects or texts.
    Array,
    /// A JSON object over several lines.
    Object,
    /// Anything else.
    Text,
}

impl FirstLine {
    /// Reads the first line of the file at `path`, which begins with `start`.
    ///
    /// # Errors
    /// [`DataError::Io`].
    pub fn read(path: &Path, start: &[u8], field: &str) -> Result<Self, DataError> {
        let start = start.strip_prefix(BYTE_ORDER_MARK).unwrap_or(start).trim_ascii_start();
        match start.first() {
            Some(b'[') if matches!(start[1..].trim_ascii_start().first(), Some(b'{' | b'"')) => Ok(Self::Array),
            Some(b'{') => match Self::of_object(&line(path)?, field)? {
                Self::Text if is_object(path)? => Ok(Self::Object),
                line => Ok(line),
            },
            _ => Ok(Self::Text),
        }
    }

    /// The content by a line that begins with a brace: code and JSON over several lines do not close it there.
    fn of_object(line: &[u8], field: &str) -> Result<Self, DataError> {
        let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line).trim_ascii();
        let inner = line.strip_prefix(b"{").unwrap_or(line).trim_ascii_start();
        let is_cut = line.len() as u64 >= LONGEST - 4;
        Ok(match text_of(line, field) {
            Ok(_) => Self::Document,
            Err(error) if inner.starts_with(b"\"") && (is_cut || line.ends_with(b"}") || line.ends_with(b"},")) => {
                Self::OtherJson(words(&error, field))
            }
            Err(_) => Self::Text,
        })
    }
}

/// True if the file begins with a JSON object, over any number of lines.
fn is_object(path: &Path) -> Result<bool, DataError> {
    let file = File::open(path).map_err(DataError::io("open", path))?;
    let mut reader = BufReader::new(file.take(LONGEST));
    if reader.fill_buf().map_err(DataError::io("read", path))?.starts_with(BYTE_ORDER_MARK) {
        reader.consume(BYTE_ORDER_MARK.len());
    }
    let mut values =
        serde_json::Deserializer::from_reader(reader).into_iter::<serde_json::Map<String, serde_json::Value>>();
    Ok(values.next().is_some_and(|value| value.is_ok()))
}

/// The first line that is not empty, or its beginning.
fn line(path: &Path) -> Result<Vec<u8>, DataError> {
    let file = File::open(path).map_err(DataError::io("open", path))?;
    let mut reader = BufReader::new(file.take(LONGEST));
    let mut line = Vec::new();
    while line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&line).trim_ascii().is_empty() {
        if reader.read_until(b'\n', &mut line).map_err(DataError::io("read", path))? == 0 {
            break;
        }
    }
    Ok(line)
}
