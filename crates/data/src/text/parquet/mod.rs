//! Parquet: every row a document, in one column of strings.
//!
//! A file is read in its order, one page of the column at a time, so that neither a row group nor the file is held as a whole.
//! The crate `parquet` reads metadata and pages; its panics at damaged files are contained (`file::library`).

mod codec;
mod column;
mod delta;
mod file;
mod pages;
mod rows;
#[cfg(test)]
mod tests;

pub(super) use rows::Rows;

/// First and last bytes of a file.
const MAGIC: &[u8] = b"PAR1";

/// True if a file that begins with `start` is a Parquet file.
pub(crate) fn is_parquet(start: &[u8]) -> bool {
    start.starts_with(MAGIC)
}
