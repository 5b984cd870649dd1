//! Tokenizers, token files, the demo corpus and sampling.
//!
//! Text is tokenised once into a [`TokenFile`] by [`prepare()`]; training reads a [`TokenSource`], which is
//! such a file, one of Megatron-LM or llm.c, several of them, or the built-in [`DemoCorpus`]. A [`Mixture`] orders the
//! [`Windows`] of sources as a function of (seed, sample's number); [`fill_batch`] draws windows of the demo corpus as one of
//! (seed, step, sample). [`Waves`] are fields for models of patches.

mod convert;
mod copy;
mod demo;
mod error;
mod inspect;
mod open;
mod output;
mod prepare;
mod sampling;
mod text;
mod tokenizer;
mod tokens;
mod vocabulary;

pub use convert::{Conversion, Converted, Ends, TokenFormat, convert, files, files_read};
pub use demo::{DemoCorpus, Waves};
pub use error::DataError;
pub use inspect::{Contents, inspect};
pub use open::{Opening, open};
pub use prepare::{Progress, prepare};
pub use sampling::{Documents, Goldfish, Mixture, Permutation, SampleIndex, SampleShape, Windows, fill_batch, split};
pub use text::{Format, Reading};
pub use tokenizer::{Decoder, JsonTokenizer, Tokenizer, TokenizerChoice};
pub use tokens::{Joined, LlmCFile, MegatronFile, TokenFile, TokenSource};
pub use vocabulary::{Vocabulary, VocabularyName};
