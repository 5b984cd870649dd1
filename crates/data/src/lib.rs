//! Tokenizers, token files, the demo corpus and sampling.
//!
//! Text is tokenised once into a [`TokenFile`] by [`prepare()`]; training reads a [`TokenSource`], which is
//! such a file, one of Megatron-LM or llm.c, several of them, or the built-in [`DemoCorpus`]. A [`Mixture`] orders the
//! [`Windows`] of sources as a function of (seed, sample's number); [`fill_batch`] draws windows of the demo corpus as one of
//! (seed, step, sample). [`Waves`] are fields for models of patches.
//!
//! ```
//! use std::sync::Arc;
//!
//! use quadrille_data::{DemoCorpus, Documents, Mixture, SampleShape, TokenSource, Tokenizer, Windows};
//!
//! let source = Arc::new(TokenSource::Demo(DemoCorpus::new(1, Tokenizer::Bytes, 10_000)));
//! let shape = SampleShape { seq_len: 32, documents: Documents::Packed, vocab: 256 };
//! let samples = Mixture::new(vec![(Windows::new(source, 0..10_000, shape)?, 1.0)], 7)?;
//! let mut tokens = [0; 2 * 32];
//! let mut targets = [0; 2 * 32];
//! samples.fill(40, 32, &mut tokens, &mut targets)?; // samples 40 and 41 of the order that 7 keys
//! assert_eq!(tokens[1..32], targets[..31]);
//! # Ok::<(), quadrille_data::DataError>(())
//! ```

#![forbid(unsafe_code)]

mod content;
mod convert;
mod copy;
mod demo;
mod error;
mod inspect;
mod open;
mod output;
mod prepare;
mod sampling;
mod skipped;
mod survey;
mod text;
mod tokenizer;
mod tokens;
mod vocabulary;

pub use content::DataFile;
pub use convert::{Conversion, Converted, OpenConversion, TokenFormat, convert, files, files_read};
pub use copy::Ends;
pub use demo::{DemoCorpus, Waves};
pub use error::DataError;
pub use inspect::{Contents, inspect};
pub use open::{DataSource, Opening, formats, open};
pub use prepare::{Progress, prepare};
pub use sampling::{Documents, Goldfish, Mixture, Permutation, SampleIndex, SampleShape, Windows, fill_batch, split};
pub use survey::FileSurvey;
pub use text::{Format, InputFormat, LineUnit, Reading, SkippedLines, SpecialTokens, TextRules};
pub use tokenizer::{Affixes, ChatMessage, Decoder, JsonTokenizer, Tokenizer, TokenizerChoice};
pub use tokens::{Joined, LlmCFile, MegatronFile, RawFile, TokenFile, TokenSource};
pub use vocabulary::{Vocabulary, VocabularyName};
