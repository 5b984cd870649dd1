//! Megatron-LM's indexed data sets: tokens in a `.bin`, sequences and documents in an `.idx`.
//!
//! The index, little-endian: the nine bytes `MMIDIDX\0\0`; the version 1 in 8 bytes; the code of the tokens' type in 1; the
//! number of sequences in 8; the length of the last table in 8, one more than there are documents; then for every sequence
//! its length in tokens (4 bytes), for every sequence its offset in the `.bin` (8 bytes), and for every document its first
//! sequence (8 bytes), the number of sequences at the end. (Data of several modalities have a byte for each sequence after
//! that.)

mod file;
mod writer;

use std::path::{Path, PathBuf};

use crate::tokens::Element;
pub use file::MegatronFile;
pub(crate) use writer::MegatronWriter;

/// What an index begins with.
pub(crate) const MAGIC: &[u8; 9] = b"MMIDIDX\0\0";
/// The one version.
const VERSION: u64 = 1;
/// Bytes before the tables.
const HEADER_BYTES: usize = 34;
/// What messages call it.
const FORMAT: &str = "Megatron-LM index";

/// Codes of the integer types; 6 and 7 are floating-point numbers.
const CODES: [(u8, Element); 6] =
    [(1, Element::U8), (2, Element::I8), (3, Element::I16), (4, Element::I32), (5, Element::I64), (8, Element::U16)];

/// The pair `(.bin, .idx)` that `path` names: one of the two, or what they have in common.
pub(crate) fn pair(path: &Path) -> (PathBuf, PathBuf) {
    let stem = match path.extension().and_then(|extension| extension.to_str()) {
        Some("bin" | "idx") => path.with_extension(""),
        _ => path.to_path_buf(),
    };
    // Not `with_extension`, which would take `v1.5` for `v1`.
    let with = |extension: &str| {
        let mut name = stem.clone().into_os_string();
        name.push(extension);
        PathBuf::from(name)
    };
    (with(".bin"), with(".idx"))
}
