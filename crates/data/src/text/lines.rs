//! JSON lines: every line an object, one field of which is a document.

use std::borrow::Cow;
use std::fmt;
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};

use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::bad_lines::{BadLines, LineUnit};
use super::{Piece, SkippedLines, TextRules};
use crate::DataError;

/// The mark that some programs write before UTF-8.
pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Bytes of a line at most.
const LONGEST_LINE: usize = 1 << 28;

/// The documents of a file of JSON lines; empty lines and empty texts are left out.
pub(super) struct Lines<R> {
    path: PathBuf,
    input: R,
    field: String,
    /// Where the next line begins.
    offset: u64,
    /// Number of the line read last, from 1 on.
    line: u64,
    /// Bytes of a line at most.
    longest: usize,
    bad: BadLines,
}

impl<R: BufRead> Lines<R> {
    /// `path` is for messages.
    pub fn new(path: &Path, input: R, rules: TextRules) -> Self {
        let path = path.to_path_buf();
        let field = rules.field.to_owned();
        Self {
            path,
            input,
            field,
            offset: 0,
            line: 0,
            longest: LONGEST_LINE,
            bad: BadLines::new(rules, LineUnit::Line),
        }
    }

    /// Bytes read so far.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Lines that were skipped so far.
    pub fn skipped(&self) -> Option<&SkippedLines> {
        self.bad.skipped()
    }

    /// The next document.
    pub fn next(&mut self) -> Result<Option<Piece>, DataError> {
        loop {
            let mut bytes = Vec::new();
            let offset = self.offset;
            let mut limited = self.input.by_ref().take(self.longest as u64 + 1);
            let read = limited.read_until(b'\n', &mut bytes).map_err(DataError::io("read", &self.path))?;
            if read == 0 {
                return Ok(None);
            }
            self.offset += read as u64;
            self.line += 1;
            let failed = |reason: String| DataError::Line {
                path: self.path.clone(),
                line: self.line,
                offset,
                reason,
                remedy: "correct or remove the line, name the field that holds the text with `data.text_field`, or skip such lines with \
                         `data.skip_bad_lines`",
            };
            if read > self.longest {
                self.bad.add(self.line, format!("it is longer than {} bytes", self.longest), failed)?;
                if !bytes.ends_with(b"\n") {
                    self.offset += self.input.skip_until(b'\n').map_err(DataError::io("read", &self.path))? as u64;
                }
                continue;
            }
            if offset == 0 && bytes.starts_with(BYTE_ORDER_MARK) {
                bytes.drain(..BYTE_ORDER_MARK.len());
            }
            if bytes.trim_ascii().is_empty() {
                continue;
            }
            // Without its end: an incomplete object would end on the next line.
            let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
            match text_of(line.strip_suffix(b"\r").unwrap_or(line), &self.field) {
                Ok(text) if text.is_empty() => {}
                Ok(text) => return Ok(Some(Piece::document(text.into_owned(), offset))),
                Err(error) => self.bad.add(self.line, words(&error, &self.field), failed)?,
            }
        }
    }
}

/// An error of one line without the number of the line, which is always 1.
pub(super) fn words(error: &serde_json::Error, field: &str) -> String {
    let message = error.to_string();
    let column = error.column();
    let message = message.split(" at line 1").next().unwrap_or(&message);
    match error.classify() {
        serde_json::error::Category::Data => message.to_owned(),
        _ => format!("it is not a JSON object with a field `{field}`: {message} at its byte {column}"),
    }
}

/// The text in the field of the object in `line`.
pub(super) fn text_of<'a>(line: &'a [u8], field: &str) -> serde_json::Result<Cow<'a, str>> {
    let mut deserializer = serde_json::Deserializer::from_slice(line);
    let text = Field(field).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(text)
}

/// Takes the text of this field, and looks at nothing else.
struct Field<'f>(&'f str);

/// A text that need not be copied if nothing in it is escaped.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> DeserializeSeed<'a> for Field<'_> {
    type Value = Cow<'a, str>;

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for Field<'_> {
    type Value = Cow<'a, str>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "an object with a text in the field `{}`", self.0)
    }

    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut found = None;
        let mut others = Vec::new();
        while let Some(Text(key)) = map.next_key()? {
            if key != self.0 {
                map.next_value::<IgnoredAny>()?;
                others.push(key.into_owned());
            } else if found.is_some() {
                return Err(M::Error::custom(format!("the field `{key}` occurs twice")));
            } else {
                found = Some(map.next_value::<Text>()?.0);
            }
        }
        found.ok_or_else(|| {
            others.truncate(12);
            let fields = if others.is_empty() { "none".to_owned() } else { others.join(", ") };
            M::Error::custom(format!("it has no field `{}`; its fields: {fields}", self.0))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places and texts.
    type Documents = Vec<(u64, String)>;

    fn read(content: &[u8]) -> Result<Documents, DataError> {
        read_by(content, TextRules::default()).map(|(found, _)| found)
    }

    fn read_by(content: &[u8], rules: TextRules) -> Result<(Documents, Option<SkippedLines>), DataError> {
        let mut lines = Lines::new(Path::new("a.jsonl"), content, rules);
        let mut found = Vec::new();
        while let Some(piece) = lines.next()? {
            assert!(piece.ends);
            found.push((piece.offset, String::from_utf8(piece.bytes).unwrap()));
        }
        assert_eq!(lines.offset(), content.len() as u64);
        Ok((found, lines.skipped().cloned()))
    }

    #[test]
    fn every_line_is_a_document() {
        let content = "\u{feff}{\"id\": 1, \"text\": \"one\"}\n\n{\"text\": \"a\\nb \\u00e9\", \"meta\": {\"text\": [2]}}\r\n\
                       {\"text\": \"\"}\n{\"text\":\"last\"}";
        let found = read(content.as_bytes()).unwrap();
        let texts: Vec<&str> = found.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts, ["one", "a\nb é", "last"]);
        assert!(found[1..].iter().all(|(offset, _)| content.as_bytes()[*offset as usize] == b'{'));
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped_to_its_end() {
        let long = format!("{{\"text\": \"{}\"}}\n", "x".repeat(60));
        let content = format!("{{\"text\": \"one\"}}\n{long}{{\"text\": \"two\"}}\n{}", long.trim_end());
        for (are_skipped, expected) in [(false, Err(2)), (true, Ok((vec!["one", "two"], 2)))] {
            let rules = TextRules { skip_bad_lines: are_skipped, ..TextRules::default() };
            let mut lines = Lines { longest: 40, ..Lines::new(Path::new("a.jsonl"), content.as_bytes(), rules) };
            let mut texts = Vec::new();
            let mut error = None;
            loop {
                match lines.next() {
                    Ok(Some(piece)) => texts.push(String::from_utf8(piece.bytes).unwrap()),
                    Ok(None) => break,
                    Err(DataError::Line { line, reason, .. }) => {
                        assert!(reason.contains("longer than 40 bytes"), "{reason}");
                        error = Some(line);
                        break;
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            match expected {
                Err(line) => assert_eq!(error, Some(line)),
                Ok((expected, count)) => {
                    assert_eq!((texts, error), (expected.iter().map(ToString::to_string).collect(), None));
                    assert_eq!(lines.skipped().map(|skipped| (skipped.count, skipped.first)), Some((count, 2)));
                    assert_eq!(lines.offset(), content.len() as u64);
                }
            }
        }
    }

    #[test]
    fn a_bad_line_is_named_with_the_remedy_or_skipped_and_counted() {
        for (line, words) in [
            (&b"{\"body\": \"x\", \"id\": 3}"[..], &["no field `text`", "body, id"][..]),
            (b"{\"text\": 3}", &["invalid type: integer"]),
            (b"{\"text\": null}", &["invalid type: null"]),
            (b"no JSON", &["not a JSON object"]),
            (b"{\"text\": \"x\"", &["not a JSON object", "EOF"]),
            (b"{\"text\": \"x\"} 7", &["trailing characters"]),
            (b"{\"text\": \"x\", \"text\": \"y\"}", &["occurs twice"]),
            (b"[1]", &["an object with a text in the field `text`"]),
            (b"{\"text\": \"\xff\"}", &["invalid unicode"]),
        ] {
            let content = [b"{\"text\": \"fine\"}\n", line].concat();
            let error = read(&content).unwrap_err().to_string();
            assert!(error.contains("a.jsonl, line 2 (byte 17)") && error.contains("`data.text_field`"), "{error}");
            assert!(error.contains("`data.skip_bad_lines`"), "{error}");
            assert!(words.iter().all(|word| error.contains(word)), "{words:?}: {error}");
            // The same line twice between good ones.
            let content = [b"{\"text\": \"fine\"}\n", line, b"\n", line, b"\n{\"text\": \"last\"}"].concat();
            let (found, skipped) =
                read_by(&content, TextRules { skip_bad_lines: true, ..TextRules::default() }).unwrap();
            let texts: Vec<&str> = found.iter().map(|(_, text)| text.as_str()).collect();
            let skipped = skipped.unwrap();
            assert_eq!((texts, skipped.count, skipped.first), (vec!["fine", "last"], 2, 2));
            assert!(error.contains(&skipped.reason), "{skipped:?}: {error}");
        }
    }
}
