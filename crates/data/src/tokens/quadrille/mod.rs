//! This program's own token files: with the documents' index, checksums, and the tokenizer's identity.

mod file;
mod header;
mod writer;

pub use file::TokenFile;
pub(crate) use header::{MAGIC, VERSION};
pub(crate) use writer::QuadrilleWriter;
