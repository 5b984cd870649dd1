//! Tokenizers, token files, the demo corpus and sampling.
//!
//! Text is tokenised once into a memory-mapped [`TokenFile`] by [`prepare()`]; training reads a [`TokenSource`], which is
//! such a file or the built-in [`DemoCorpus`]; [`fill_batch`] draws windows of it as a function of (seed, step, sample).
//! [`Waves`] are fields for models of patches.

mod demo;
mod error;
mod file;
mod header;
mod prepare;
mod sample;
mod source;
mod sources;
mod stream;
mod tokenizer;

pub use demo::{DemoCorpus, Waves};
pub use error::DataError;
pub use file::TokenFile;
pub use prepare::prepare;
pub use sample::{SampleIndex, fill_batch};
pub use source::TokenSource;
pub use tokenizer::Tokenizer;
