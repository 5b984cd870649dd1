//! The header of a safetensors file of tiles: 8 bytes of length, then JSON that names every tensor's type, shape and place.
//! `__metadata__` holds strings; ours say which step and writer the file is of, and the tiles' checksums.

use std::fmt::Write;

use quadrille_spec::RealType;
use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use crate::{Quantity, Tile};

/// The name of the format, in headers and manifests.
pub(crate) const FORMAT: &str = "quadrille-checkpoint";
/// What readers of safetensors accept.
const MAX_HEADER: u64 = 100_000_000;
/// Bytes of the length before the JSON.
pub(crate) const LENGTH_BYTES: usize = 8;
/// Bytes before the first tile's, at most.
pub(crate) const LONGEST: u64 = MAX_HEADER + LENGTH_BYTES as u64;
/// Hexadecimal digits of a checksum.
const DIGITS: usize = 16;

/// What the header of a file of tiles says.
#[derive(Debug, PartialEq)]
pub(crate) struct Header {
    /// The checkpoint's step.
    pub step: u64,
    /// The rank that wrote the file.
    pub writer: usize,
    /// Type of all numbers.
    pub element: RealType,
    /// In the order of their bytes, which follow each other without gaps.
    pub tiles: Vec<Tile>,
    /// Checksums of the tiles' bytes (XXH3, 64 bits).
    pub checksums: Vec<u64>,
}

/// The name of the type in safetensors files.
fn type_name(quantity: Quantity, element: RealType) -> &'static str {
    match element {
        _ if quantity == Quantity::Kept => "U8",
        RealType::F32 => "F32",
        RealType::F64 => "F64",
    }
}

impl Header {
    /// The file's bytes before the first tile's. Their number does not depend on the checksums.
    ///
    /// # Errors
    /// More tiles than the format has room for; numbers beyond all numbers.
    pub fn to_bytes(&self) -> Result<Vec<u8>, String> {
        let step = self.step;
        let writer = self.writer;
        let mut checksums = String::with_capacity(self.checksums.len() * DIGITS);
        self.checksums.iter().for_each(|checksum| push(&mut checksums, format_args!("{checksum:016x}")));
        let mut json = format!(
            "{{\"__metadata__\":{{\"format\":\"{FORMAT}\",\"step\":\"{step}\",\"writer\":\"{writer}\",\
             \"xxh3\":\"{checksums}\"}}"
        );
        let mut start = 0_u64;
        for tile in &self.tiles {
            let kind = type_name(tile.quantity, self.element);
            let end = tile_bytes(tile, self.element).and_then(|bytes| start.checked_add(bytes));
            let end = end.ok_or_else(|| format!("tile {} ends beyond 2^64 bytes", tile.name()))?;
            let name = serde_json::Value::String(tile.name());
            let shape = format!("[{},{}]", tile.rows, tile.cols);
            push(
                &mut json,
                format_args!(",{name}:{{\"dtype\":\"{kind}\",\"shape\":{shape},\"data_offsets\":[{start},{end}]}}"),
            );
            start = end;
        }
        json.push('}');
        // The tiles' bytes begin at a multiple of 8.
        json.extend(std::iter::repeat_n(' ', json.len().next_multiple_of(LENGTH_BYTES) - json.len()));
        let length = json.len() as u64;
        if length > MAX_HEADER {
            let tiles = self.tiles.len();
            return Err(format!(
                "its {tiles} tiles need a header of {length} bytes, and a file has at most {MAX_HEADER}"
            ));
        }
        Ok([&length.to_le_bytes()[..], json.as_bytes()].concat())
    }

    /// Reads the header of a file of `length` bytes, of which `bytes` are the first, and the place of the first tile's.
    ///
    /// # Errors
    /// What is not as [`Self::to_bytes`] writes it.
    pub fn parse(bytes: &[u8], length: u64) -> Result<(Self, usize), String> {
        let data = bytes_before_tiles(bytes, length)?;
        let json = bytes.get(LENGTH_BYTES..data).ok_or("it ends within its header")?;
        let parsed: Parsed =
            serde_json::from_slice(json).map_err(|error| format!("its header cannot be read: {error}"))?;
        let header = parsed.check()?;
        let end =
            header.tiles.iter().try_fold(data as u64, |end, tile| end.checked_add(tile_bytes(tile, header.element)?));
        if end != Some(length) {
            let said = end.map_or("more".to_owned(), |end| end.to_string());
            return Err(format!("its tiles end at byte {said}, and the file at {length}"));
        }
        Ok((header, data))
    }
}

/// Bytes before the first tile's, as a file of `length` bytes says that begins with `start`.
pub(crate) fn bytes_before_tiles(start: &[u8], length: u64) -> Result<usize, String> {
    let json = start.first_chunk().map(|json| u64::from_le_bytes(*json));
    let json = json.ok_or("it ends within the length of its header")?;
    match json.checked_add(LENGTH_BYTES as u64) {
        Some(bytes) if bytes <= LONGEST && bytes <= length => Ok(bytes as usize),
        _ => Err(format!("its header has {json} bytes, and the file {length}")),
    }
}

/// Bytes of a tile; `None` beyond 64 bits.
pub(crate) fn tile_bytes(tile: &Tile, element: RealType) -> Option<u64> {
    (tile.place().numbers()? as u64).checked_mul(tile.quantity.bytes(element) as u64)
}

/// Writing to a string cannot fail.
fn push(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(arguments);
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Metadata {
    format: String,
    step: String,
    writer: String,
    xxh3: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (u64, u64),
}

/// The JSON as it is.
struct Parsed {
    metadata: Option<Metadata>,
    /// In the order of the file.
    entries: Vec<(String, Entry)>,
}

impl<'de> Deserialize<'de> for Parsed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Parsed;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("tensors by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Parsed, A::Error> {
                let mut parsed = Parsed { metadata: None, entries: Vec::new() };
                while let Some(name) = map.next_key::<String>()? {
                    if name != "__metadata__" {
                        parsed.entries.push((name, map.next_value()?));
                    } else if parsed.metadata.replace(map.next_value()?).is_some() {
                        return Err(A::Error::custom("__metadata__ twice"));
                    }
                }
                // Nothing follows a map; this consumes what a foreign deserializer might still have.
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(parsed)
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

impl Parsed {
    fn check(self) -> Result<Header, String> {
        let foreign = "it is a safetensors file of another program";
        let metadata = self.metadata.filter(|metadata| metadata.format == FORMAT).ok_or(foreign)?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("its header says '{text}' for a number"));
        let step = number(&metadata.step)?;
        let writer = number(&metadata.writer)?;
        let of_element = |element| type_name(Quantity::Value, element);
        // Values come first.
        let kind = self.entries.first().map_or("", |(_, entry)| &entry.dtype);
        let element = [RealType::F32, RealType::F64].into_iter().find(|element| of_element(*element) == kind);
        let element = element.ok_or_else(|| format!("its numbers are of type '{kind}', not F32 or F64"))?;
        let mut tiles = Vec::with_capacity(self.entries.len());
        let mut start = 0;
        for (name, entry) in &self.entries {
            let tile = match entry.shape[..] {
                [rows, cols] => Tile::parse(name, rows, cols),
                _ => None,
            };
            let tile = tile.ok_or_else(|| format!("'{name}' of shape {:?} is no tile", entry.shape))?;
            let end = tile_bytes(&tile, element).and_then(|bytes| bytes.checked_add(start));
            if entry.dtype != type_name(tile.quantity, element)
                || end.is_none_or(|end| entry.data_offsets != (start, end))
            {
                return Err(format!("the type or the place of tile {name} is not what its shape asks for"));
            }
            start = entry.data_offsets.1;
            tiles.push(tile);
        }
        let checksums = read_checksums(&metadata.xxh3).filter(|checksums| checksums.len() == tiles.len());
        let checksums = checksums.ok_or("its header does not have a checksum for every tile")?;
        Ok(Header { step, writer: writer as usize, element, tiles, checksums })
    }
}

fn read_checksums(text: &str) -> Option<Vec<u64>> {
    let (digits, rest) = text.as_bytes().as_chunks::<DIGITS>();
    let read = |digits: &[u8; DIGITS]| read_checksum(std::str::from_utf8(digits).ok()?);
    rest.is_empty().then(|| digits.iter().map(read).collect()).flatten()
}

/// The checksum in 16 hexadecimal digits.
pub(crate) fn read_checksum(text: &str) -> Option<u64> {
    let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (text.len() == DIGITS && text.bytes().all(digit)).then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        let tile = |tensor: &str, quantity, row, col, rows, cols| Tile {
            tensor: tensor.to_owned(),
            quantity,
            row,
            col,
            rows,
            cols,
        };
        let tiles =
            vec![tile("a.weight", Quantity::Value, 0, 32, 2, 3), tile("a.weight", Quantity::SecondMoment, 7, 0, 1, 5)];
        Header { step: 10, writer: 3, element: RealType::F32, tiles, checksums: vec![1, u64::MAX] }
    }

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let mut bytes = header().to_bytes().unwrap();
        let data = bytes.len();
        assert!(data.is_multiple_of(8));
        bytes.resize(data + 4 * 11, 0);
        let length = bytes.len() as u64;
        assert_eq!(Header::parse(&bytes, length).unwrap(), (header(), data));
        // What follows it need not be read.
        assert_eq!(Header::parse(&bytes[..data], length).unwrap(), (header(), data));
        assert!(Header::parse(&bytes[..data - 1], length).unwrap_err().contains("ends within its header"));
        bytes.pop();
        assert!(Header::parse(&bytes, length - 1).unwrap_err().contains("and the file at"));
    }

    #[test]
    fn what_is_not_ours_is_refused() {
        let text = |json: &str| {
            let length = (json.len() as u64).to_le_bytes();
            Header::parse(&[&length[..], json.as_bytes()].concat(), 8 + json.len() as u64).unwrap_err()
        };
        let ours =
            "\"__metadata__\":{\"format\":\"quadrille-checkpoint\",\"step\":\"1\",\"writer\":\"0\",\"xxh3\":\"\"}";
        assert!(text("{}").contains("another program"));
        assert!(text("[]").contains("cannot be read"));
        assert!(text(&format!("{{{ours},{ours}}}")).contains("twice"));
        assert!(text(&format!("{{{ours}}}")).contains("type ''"));
        let entry = |entry: &str| text(&format!("{{{ours},{entry}}}"));
        assert!(
            entry("\"x\":{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[0,4]}").contains("'x' of shape [1, 1]")
        );
        assert!(entry("\"x@0,0\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}").contains("is no tile"));
        assert!(entry("\"x@0,0\":{\"dtype\":\"F16\",\"shape\":[1,1],\"data_offsets\":[0,2]}").contains("'F16'"));
        assert!(entry("\"x@0,0\":{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[4,8]}").contains("the place of"));
        assert!(entry("\"x@0,0\":{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[0,4]}").contains("a checksum"));
        let huge = "\"x@0,0\":{\"dtype\":\"F32\",\"shape\":[18446744073709551615,2],\"data_offsets\":[0,4]}";
        assert!(entry(huge).contains("the place of"));
        assert!(Header::parse(&u64::MAX.to_le_bytes(), 8).unwrap_err().contains("and the file 8"));
        assert!(Header::parse(b"abc", 3).unwrap_err().contains("ends within"));
    }
}
