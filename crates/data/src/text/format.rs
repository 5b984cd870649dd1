//! What a file holds, by its content.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;

use quadrille_files::is_lfs_pointer;
use serde::{Deserialize, Serialize};

use super::first_line::FirstLine;
use super::kind::known_kind;
use super::{TextRules, parquet};
use crate::DataError;
use crate::tokens::{llm_c, megatron, quadrille};

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
    /// Parquet, one column of which holds the texts of documents.
    Parquet,
    /// Tokens in this program's format.
    Quadrille,
    /// Tokens in Megatron-LM's format.
    Megatron,
    /// Tokens in llm.c's format.
    LlmC,
    /// Tokens of 2 bytes without a header, as nanoGPT writes them.
    RawU16,
    /// Tokens of 4 bytes without a header.
    RawU32,
}

/// Formats in which files are read that do not show theirs, as tokens with a header do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InputFormat {
    /// By name and first line; a doubtful file is refused.
    #[default]
    Auto,
    /// Each file is a document, whatever it looks like.
    Text,
    /// Each line is a JSON object.
    JsonLines,
    /// Each row of a table is a document.
    Parquet,
    /// Token ids of 2 bytes without a header.
    RawU16,
    /// Token ids of 4 bytes without a header.
    RawU32,
}

impl InputFormat {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Auto, Self::Text, Self::JsonLines, Self::Parquet, Self::RawU16, Self::RawU32];

    /// True if a file of text is read in it.
    fn is_text(self) -> bool {
        matches!(self, Self::Text | Self::JsonLines)
    }

    /// True for token ids without a header.
    pub(super) fn is_raw(self) -> bool {
        matches!(self, Self::RawU16 | Self::RawU32)
    }
}

impl Format {
    /// Whether it holds tokens, not text.
    pub fn is_tokens(self) -> bool {
        !matches!(self, Self::Text | Self::Binary | Self::JsonLines | Self::Parquet)
    }

    /// True if one of several fields holds the text.
    pub fn has_fields(self) -> bool {
        matches!(self, Self::JsonLines | Self::Parquet)
    }

    /// True if it holds tokens without a header.
    pub fn is_raw(self) -> bool {
        matches!(self, Self::RawU16 | Self::RawU32)
    }

    /// True if the places of documents need not be found by reading all tokens.
    pub fn lists_documents(self) -> bool {
        !matches!(self, Self::LlmC) && !self.is_raw()
    }

    /// What the file, or the pair of files, at `path` holds. Where content leaves a choice, the extension counts: what is
    /// called `.tokens`, `.idx` or `.bin` is no text unless it looks like it.
    ///
    /// # Errors
    /// [`DataError::Io`]; [`DataError::NotAFile`]; [`DataError::Unrecognised`] for a `.bin` that is none of these;
    /// [`DataError::LfsPointer`]; [`DataError::Doubtful`] for JSON that is not JSON lines with the text field;
    /// [`DataError::NoIds`] for other things than ids without a header, where these are named.
    pub fn of(path: &Path, rules: TextRules) -> Result<Self, DataError> {
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
        if is_lfs_pointer(&start) && !rules.format.is_text() {
            return Err(DataError::LfsPointer(path.to_path_buf()));
        }
        if start.starts_with(quadrille::MAGIC) || extension == "tokens" {
            return Ok(Self::Quadrille);
        }
        if start.starts_with(megatron::MAGIC) || extension == "idx" || (extension == "bin" && has_index) {
            return Ok(Self::Megatron);
        }
        if llm_c::is_llm_c(&start) {
            return Ok(Self::LlmC);
        }
        if parquet::is_parquet(&start) && !rules.format.is_text() {
            return Ok(Self::Parquet);
        }
        match rules.format {
            InputFormat::Parquet => return Ok(Self::Parquet),
            InputFormat::RawU16 => return Self::RawU16.of_ids(path, &start),
            InputFormat::RawU32 => return Self::RawU32.of_ids(path, &start),
            InputFormat::Auto | InputFormat::Text | InputFormat::JsonLines => {}
        }
        if extension == "bin" && !looks_like_text(&start) && known_kind(&start).is_none() {
            return Err(DataError::Unrecognised(path.to_path_buf()));
        }
        if start.contains(&0) || known_kind(&start).is_some() {
            return Ok(Self::Binary);
        }
        match rules.format {
            InputFormat::Text => Ok(Self::Text),
            InputFormat::JsonLines => Ok(Self::JsonLines),
            _ if matches!(extension, "jsonl" | "ndjson") => Ok(Self::JsonLines),
            _ if extension == "parquet" => Err(DataError::Doubtful {
                path: path.to_path_buf(),
                content: "it is called Parquet, and does not begin as such files do".to_owned(),
                remedy: "bring the whole file",
            }),
            _ => Self::by_first_line(path, &start, rules),
        }
    }

    /// The format of ids without a header, for a file that begins with `start`. Ids below 2^15 can look like text: a file that is
    /// called `.bin` is read whatever it looks like.
    fn of_ids(self, path: &Path, start: &[u8]) -> Result<Self, DataError> {
        let kind = match known_kind(start) {
            Some((kind, _)) => kind,
            None if !start.is_empty() && looks_like_text(start) => "text",
            None => return Ok(self),
        };
        if is_called_bin(path) { Ok(self) } else { Err(DataError::NoIds { path: path.to_path_buf(), kind }) }
    }

    /// JSON lines under another name, or text; refuses what could be either.
    fn by_first_line(path: &Path, start: &[u8], rules: TextRules) -> Result<Self, DataError> {
        let doubtful = |content: String, remedy| Err(DataError::Doubtful { path: path.to_path_buf(), content, remedy });
        match FirstLine::read(path, start, rules.field)? {
            FirstLine::Document => Ok(Self::JsonLines),
            FirstLine::Text => Ok(Self::Text),
            // A bad line like others: its file is refused if all are bad.
            FirstLine::OtherJson(_) if rules.skip_bad_lines => Ok(Self::JsonLines),
            FirstLine::OtherJson(reason) => doubtful(
                format!("its first line looks like JSON lines, but {reason}"),
                "correct the line, name the field that holds the text with `data.text_field`, skip such lines with \
                 `data.skip_bad_lines`",
            ),
            FirstLine::Object => doubtful(
                "it looks like a JSON object over several lines, of which no text is taken".to_owned(),
                "write each object on a line of its own",
            ),
            FirstLine::Array => doubtful(
                "it looks like a JSON array, of which no text is taken".to_owned(),
                "write each of its objects on a line of its own",
            ),
        }
    }
}

/// The kind of a file that is no text, with a remedy; `None` where only a zero byte shows it.
pub(crate) fn kind_of(path: &Path) -> Option<(&'static str, &'static str)> {
    known_kind(&first_bytes(path).ok()?)
}

impl fmt::Display for InputFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Auto => "auto",
            Self::Text => "text",
            Self::JsonLines => "json-lines",
            Self::Parquet => "parquet",
            Self::RawU16 => "raw-u16",
            Self::RawU32 => "raw-u32",
        })
    }
}

impl FromStr for InputFormat {
    type Err = DataError;

    fn from_str(name: &str) -> Result<Self, DataError> {
        let found = Self::ALL.into_iter().find(|format| format.to_string() == name);
        found.ok_or_else(|| DataError::UnknownInputFormat(name.to_owned()))
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Text => "text",
            Self::Binary => "binary",
            Self::JsonLines => "json-lines",
            Self::Parquet => "parquet",
            Self::Quadrille => "quadrille",
            Self::Megatron => "megatron",
            Self::LlmC => "llm.c",
            Self::RawU16 => "raw-u16",
            Self::RawU32 => "raw-u32",
        })
    }
}

fn is_called_bin(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "bin")
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
            Format::of(&path, TextRules::default())
        };
        let doubtful = |name: &str, content: &[u8], words: &[&str]| {
            let error = of(name, content).unwrap_err().to_string();
            assert!(words.iter().all(|word| error.contains(word)), "{words:?}: {error}");
            assert!(error.contains(name) && error.contains("`data.format`"), "{error}");
            for (format, expected) in [(InputFormat::Text, Format::Text), (InputFormat::JsonLines, Format::JsonLines)] {
                let rules = TextRules { format, ..TextRules::default() };
                assert_eq!(Format::of(&folder.path().join(name), rules).unwrap(), expected, "{name}");
            }
        };
        assert_eq!(of("a", b"Once upon").unwrap(), Format::Text);
        assert_eq!(of("a.jsonl", b"Once upon").unwrap(), Format::JsonLines);
        assert_eq!(of("a.txt", b"\n{\"text\": \"x\"}\n").unwrap(), Format::JsonLines);
        assert_eq!(of("a.json", b"{\n  \"text\": x\n}\n").unwrap(), Format::Text);
        assert_eq!(of("b.txt", b"\xef\xbb\xbf{\"text\": \"x\"}\n").unwrap(), Format::JsonLines);
        doubtful("c.txt", b"{\"body\": \"x\", \"id\": 3}\n", &["no field `text`", "body, id", "`data.text_field`"]);
        doubtful("d.json", b"\n{\"text\": \"x\", \"score\": NaN}\n{\"text\": \"y\"}\n", &["expected value"]);
        doubtful("e.txt", b"{\"text\": null}\n", &["null", "`data.skip_bad_lines`"]);
        let skipping = TextRules { skip_bad_lines: true, ..TextRules::default() };
        assert_eq!(Format::of(&folder.path().join("e.txt"), skipping).unwrap(), Format::JsonLines);
        doubtful("f.json", b"[\n  {\"text\": \"x\"}\n]\n", &["JSON array", "a line of its own"]);
        doubtful("f.json", b"{\n  \"text\": \"x\"\n}\n", &["JSON object over several lines", "a line of its own"]);
        doubtful("f.parquet", b"<html>not found</html>\n", &["called Parquet", "bring the whole file"]);
        doubtful("g", b"[\"one\", \"two\"]", &["JSON array"]);
        doubtful("h.txt", b"version https://git-lfs.github.com/spec/v1\noid sha256:4d\nsize 9\n", &["Git LFS"]);
        for text in [&b"[Chorus]\nla"[..], b"[1] A citation", b"{ let x = 1; }", b"{{template}}", b"fn f() {}"] {
            assert_eq!(of("i.txt", text).unwrap(), Format::Text);
        }
        assert_eq!(of("a.gz", b"\x1f\x8b\x08\x08abc").unwrap(), Format::Binary);
        assert_eq!(of("pytorch_model.bin", b"PK\x03\x04\0\0\x08\x08").unwrap(), Format::Binary);
        assert_eq!(of("a.parquet", b"PAR1\x15\x04").unwrap(), Format::Parquet);
        assert_eq!(of("a.data", b"PAR1\x15\x04").unwrap(), Format::Parquet);
        assert_eq!(of("b.parquet", b"PARE\x15\x04").unwrap(), Format::Binary);
        let as_text = TextRules { format: InputFormat::Text, ..TextRules::default() };
        assert_eq!(Format::of(&folder.path().join("a.data"), as_text).unwrap(), Format::Binary);
        assert_eq!(of("a.dat", b"QDTOKENS....").unwrap(), Format::Quadrille);
        assert_eq!(of("a.x", &20_240_520_u32.to_le_bytes()).unwrap(), Format::LlmC);
        assert_eq!(of("b.bin", &20_240_801_u32.to_le_bytes()).unwrap(), Format::LlmC);
        assert_eq!(of("c.bin", b"just text").unwrap(), Format::Text);
        assert_eq!(of("a.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR").unwrap(), Format::Binary);
        assert_eq!(of("a.safetensors", b"\x40\0\0\0\0\0\0\0{\"a\"").unwrap(), Format::Binary);
        assert_eq!(of("latin-1.txt", b"caf\xe9").unwrap(), Format::Text);
        let error = of("d.bin", &[1, 0, 2, 0]).unwrap_err();
        assert!(matches!(error, DataError::Unrecognised(_)) && error.to_string().contains("`data.format` raw-u16"));
        for (format, expected) in [(InputFormat::RawU16, Format::RawU16), (InputFormat::RawU32, Format::RawU32)] {
            let raw = |name: &str| Format::of(&folder.path().join(name), TextRules { format, ..TextRules::default() });
            assert_eq!(raw("d.bin").unwrap(), expected);
            // Known headers count for more; a pointer is no file of tokens.
            assert_eq!((raw("a.x").unwrap(), raw("a.dat").unwrap()), (Format::LlmC, Format::Quadrille));
            assert!(matches!(raw("h.txt"), Err(DataError::LfsPointer(_))));
            // Text and other things are no ids, unless their name says it: small ids may look like text.
            for (name, words) in
                [("latin-1.txt", "looks like text"), ("i.txt", "looks like text"), ("a.gz", "a gzip archive")]
            {
                let message = raw(name).unwrap_err().to_string();
                assert!(message.contains(words) && message.contains("ends in .bin"), "{message}");
            }
            assert_eq!(raw("c.bin").unwrap(), expected);
        }
        assert_eq!(of("e.idx", b"what").unwrap(), Format::Megatron);
        assert_eq!(of("e.bin", &[1, 0, 2, 0]).unwrap(), Format::Megatron);
        assert_eq!(Format::of(&folder.path().join("e"), TextRules::default()).unwrap(), Format::Megatron);
        assert!(matches!(Format::of(folder.path(), TextRules::default()), Err(DataError::NotAFile(_))));
        assert!(matches!(Format::of(&folder.path().join("none"), TextRules::default()), Err(DataError::Io { .. })));
    }
}
