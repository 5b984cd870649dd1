//! What a file holds, by its content.

use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use crate::DataError;
use crate::tokens::{llm_c, megatron, quadrille};

/// Bytes of a first line that may be one of JSON lines.
const LONGEST_FIRST_LINE: u64 = 1 << 24;
/// Bytes at the beginning of a file that tell text from other things.
const SAMPLE: usize = 4096;

/// Formats that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Text; the file is a document.
    Text,
    /// No text by its first bytes, as pictures, archives and checkpoints are; read as if it were where that is said.
    Binary,
    /// A JSON object in every line, one field of which is the text of a document.
    JsonLines,
    /// Tokens in this program's format.
    Quadrille,
    /// Tokens in Megatron-LM's format.
    Megatron,
    /// Tokens in llm.c's format.
    LlmC,
}

impl Format {
    /// Whether it holds tokens, not text.
    pub fn is_tokens(self) -> bool {
        !matches!(self, Self::Text | Self::Binary | Self::JsonLines)
    }

    /// What the file, or the pair of files, at `path` holds. Where content leaves a choice, the extension counts: what is
    /// called `.tokens`, `.idx` or `.bin` is no text unless it looks like it.
    ///
    /// # Errors
    /// [`DataError::Io`]; [`DataError::NotAFile`]; [`DataError::Unrecognised`] for a `.bin` that is none of these.
    pub fn of(path: &Path, text_field: &str) -> Result<Self, DataError> {
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        let (_, index) = megatron::pair(path);
        let has_index = index.is_file();
        if has_index && !path.exists() {
            return Ok(Self::Megatron);
        }
        if !std::fs::metadata(path).map_err(DataError::io("read", path))?.is_file() {
            return Err(DataError::NotAFile(path.to_path_buf()));
        }
        let start = first_bytes(path)?;
        if start.starts_with(quadrille::MAGIC) || extension == "tokens" {
            return Ok(Self::Quadrille);
        }
        if start.starts_with(megatron::MAGIC) || extension == "idx" || (extension == "bin" && has_index) {
            return Ok(Self::Megatron);
        }
        if llm_c::is_llm_c(&start) {
            return Ok(Self::LlmC);
        }
        if extension == "bin" && !looks_like_text(&start) {
            return Err(DataError::Unrecognised(path.to_path_buf()));
        }
        if matches!(extension, "jsonl" | "ndjson") || first_line_has_field(path, &start, text_field)? {
            return Ok(Self::JsonLines);
        }
        Ok(if start.contains(&0) { Self::Binary } else { Self::Text })
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Text => "text",
            Self::Binary => "binary",
            Self::JsonLines => "json-lines",
            Self::Quadrille => "quadrille",
            Self::Megatron => "megatron",
            Self::LlmC => "llm.c",
        })
    }
}

fn first_bytes(path: &Path) -> Result<Vec<u8>, DataError> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(DataError::io("open", path))?;
    file.take(SAMPLE as u64).read_to_end(&mut bytes).map_err(DataError::io("read", path))?;
    Ok(bytes)
}

/// UTF-8 without the byte 0; a character may be cut at the end.
fn looks_like_text(start: &[u8]) -> bool {
    let valid = std::str::from_utf8(start).map_or_else(|error| error.error_len().is_none(), |_| true);
    valid && !start.contains(&0)
}

/// Whether the first line is a JSON object with a text in the field.
fn first_line_has_field(path: &Path, start: &[u8], field: &str) -> Result<bool, DataError> {
    if start.trim_ascii_start().first() != Some(&b'{') {
        return Ok(false);
    }
    let mut line = Vec::new();
    let file = File::open(path).map_err(DataError::io("open", path))?;
    let mut reader = BufReader::new(file.take(LONGEST_FIRST_LINE));
    while line.trim_ascii().is_empty() {
        if reader.read_until(b'\n', &mut line).map_err(DataError::io("read", path))? == 0 {
            return Ok(false);
        }
    }
    Ok(super::lines::text_of(&line, field).is_ok())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn content_tells_the_format() {
        let folder = tempfile::tempdir().unwrap();
        let of = |name: &str, content: &[u8]| {
            let path = folder.path().join(name);
            fs::write(&path, content).unwrap();
            Format::of(&path, "text")
        };
        assert_eq!(of("a", b"Once upon").unwrap(), Format::Text);
        assert_eq!(of("a.jsonl", b"Once upon").unwrap(), Format::JsonLines);
        assert_eq!(of("a.txt", b"\n{\"text\": \"x\"}\n").unwrap(), Format::JsonLines);
        assert_eq!(of("a.json", b"{\n  \"text\": \"x\"\n}\n").unwrap(), Format::Text);
        assert_eq!(of("b.txt", b"{\"body\": \"x\"}\n").unwrap(), Format::Text);
        assert_eq!(of("a.dat", b"QDTOKENS....").unwrap(), Format::Quadrille);
        assert_eq!(of("a.x", &20_240_520_u32.to_le_bytes()).unwrap(), Format::LlmC);
        assert_eq!(of("b.bin", &20_240_801_u32.to_le_bytes()).unwrap(), Format::LlmC);
        assert_eq!(of("c.bin", b"just text").unwrap(), Format::Text);
        assert_eq!(of("a.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR").unwrap(), Format::Binary);
        assert_eq!(of("a.safetensors", b"\x40\0\0\0\0\0\0\0{\"a\"").unwrap(), Format::Binary);
        assert_eq!(of("latin-1.txt", b"caf\xe9").unwrap(), Format::Text);
        assert!(matches!(of("d.bin", &[1, 0, 2, 0]), Err(DataError::Unrecognised(_))));
        assert_eq!(of("e.idx", b"what").unwrap(), Format::Megatron);
        assert_eq!(of("e.bin", &[1, 0, 2, 0]).unwrap(), Format::Megatron);
        assert_eq!(Format::of(&folder.path().join("e"), "text").unwrap(), Format::Megatron);
        assert!(matches!(Format::of(folder.path(), "text"), Err(DataError::NotAFile(_))));
        assert!(matches!(Format::of(&folder.path().join("none"), "text"), Err(DataError::Io { .. })));
    }
}
