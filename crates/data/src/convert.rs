//! Text and tokens of any format into a file of tokens of a chosen format.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::copy::{Ends, copy_documents};
use crate::open::open_tokens;
use crate::output::TokenWriter;
use crate::text::{Format, Input, Reading, TextRules, collect, encode_documents};
use crate::tokens::llm_c::LlmCWriter;
use crate::tokens::megatron::{MegatronWriter, pair};
use crate::tokens::quadrille::QuadrilleWriter;
use crate::{DataError, FileSurvey, Progress, SkippedLines, Vocabulary};

/// Formats that are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenFormat {
    /// This program's: checksums, documents, the tokenizer's identity. `PREFIX.tokens`.
    Quadrille,
    /// Megatron-LM's: `PREFIX.bin` and `PREFIX.idx`.
    Megatron,
    /// llm.c's, of GPT-2's tokens: `PREFIX.bin`.
    LlmC,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Converted {
    /// The files.
    pub files: Vec<PathBuf>,
    /// Tokens in them, with those between documents.
    pub tokens: u64,
    /// Documents in them.
    pub documents: u64,
    /// Ends of those that were tokens before.
    pub ends: Ends,
    /// Whose tokens they are.
    pub vocabulary: Vocabulary,
    /// Bytes that were read.
    pub bytes_read: u64,
    /// Files with lines that were skipped.
    pub skipped: Vec<(PathBuf, SkippedLines)>,
}

/// The files that [`convert`] writes.
pub fn files(out: &Path, format: TokenFormat) -> Vec<PathBuf> {
    let with = |extension: &str| {
        let mut name = match out.extension().and_then(|known| known.to_str()) {
            Some("bin" | "idx" | "tokens") => out.with_extension(""),
            _ => out.to_path_buf(),
        }
        .into_os_string();
        name.push(extension);
        PathBuf::from(name)
    };
    match format {
        TokenFormat::Quadrille => vec![with(".tokens")],
        TokenFormat::Megatron => vec![with(".bin"), with(".idx")],
        TokenFormat::LlmC => vec![with(".bin")],
    }
}

/// The files that [`convert`] would read for `paths`: those in folders, and both of a Megatron-LM pair. None may be
/// among those that are written.
///
/// # Errors
/// Files that are not there or are none; [`DataError::EmptyCorpus`].
pub fn files_read(paths: &[PathBuf], rules: TextRules) -> Result<Vec<PathBuf>, DataError> {
    let inputs = collect(paths, rules)?;
    let files = inputs.into_iter().flat_map(|input| match input.format {
        Format::Megatron => <[PathBuf; 2]>::from(pair(&input.path)).to_vec(),
        _ => vec![input.path],
    });
    Ok(files.collect())
}

/// How files are converted.
#[derive(Debug, Clone)]
pub struct Conversion<'a> {
    /// How text is read.
    pub reading: &'a Reading,
    /// Whether the user named the tokenizer, as in [`crate::Opening`].
    pub named: bool,
    /// What is written.
    pub format: TokenFormat,
    /// Whether documents of files of tokens get the end token if they lack it.
    pub append_end: bool,
}

/// Writes all documents of the files and folders `paths`, in their order, into the files that begin with `out`, in bounded
/// memory. Documents of text get the tokenizer's end token. Those of token files keep the tokens that they have: the token
/// that marks their end, or in llm.c's files their beginning, moves to where the new format has it, and is added to none
/// that lacks it unless that is asked for. Complete files replace those that have their names; after an error nothing is
/// changed.
///
/// # Errors
/// Those of [`crate::open()`]; [`DataError::NoVocabulary`] where nothing says whose the tokens are;
/// [`DataError::BeyondVocabulary`]; [`DataError::Inexpressible`] for what the format cannot hold.
pub fn convert(
    paths: &[PathBuf],
    conversion: &Conversion,
    out: &Path,
    progress: &mut Progress,
) -> Result<Converted, DataError> {
    OpenConversion::new(paths, conversion, out)?.run(progress)
}

/// A conversion of files whose formats and tokenizers are known to fit the format that is written; nothing is written yet.
pub struct OpenConversion<'a> {
    inputs: Vec<Input>,
    conversion: Conversion<'a>,
    vocabulary: Vocabulary,
    writer: Box<dyn TokenWriter>,
}

impl<'a> OpenConversion<'a> {
    /// Opens the files and folders `paths` for the first part of [`convert`].
    ///
    /// # Errors
    /// Those of [`convert`] that need no text or tokens to be read.
    pub fn new(paths: &[PathBuf], conversion: &Conversion<'a>, out: &Path) -> Result<Self, DataError> {
        let Conversion { reading, named, format, .. } = *conversion;
        let inputs = collect(paths, reading.rules())?;
        reading.check(&inputs)?;
        reading.rules().check(inputs.iter().map(|input| input.format))?;
        let vocabulary = vocabulary(&inputs, reading, named)?;
        let path = &files(out, format)[0];
        let writer: Box<dyn TokenWriter> = match format {
            TokenFormat::Quadrille => Box::new(QuadrilleWriter::create(path, vocabulary, 0)?),
            TokenFormat::Megatron => Box::new(MegatronWriter::create(path, vocabulary)?),
            TokenFormat::LlmC => Box::new(LlmCWriter::create(path, vocabulary)?),
        };
        Ok(Self { inputs, conversion: conversion.clone(), vocabulary, writer })
    }

    /// Formats, documents and skipped lines of the files, some of which are read for it.
    ///
    /// # Errors
    /// Files that cannot be read; lines without a text.
    pub fn survey(&self) -> Result<Vec<FileSurvey>, DataError> {
        self.inputs.iter().map(|input| FileSurvey::new(input, self.conversion.reading)).collect()
    }

    /// Writes the documents.
    ///
    /// # Errors
    /// Those of [`convert`]; [`DataError::Empty`].
    pub fn run(self, progress: &mut Progress) -> Result<Converted, DataError> {
        let Self { inputs, conversion, vocabulary, mut writer } = self;
        let Conversion { reading, append_end, .. } = conversion;
        let total = inputs.iter().map(|input| input.bytes).sum();
        let mut before = 0;
        let mut ends = Ends::default();
        let mut skipped = Vec::new();
        for input in &inputs {
            let mut told = |done| progress(before + done, total);
            if input.format.is_tokens() {
                ends += copy_documents(input, vocabulary, append_end, writer.as_mut(), &mut told)?;
            } else {
                let counted = encode_documents(input, reading, writer.as_mut(), &mut told)?;
                skipped.extend(counted.skipped.map(|lines| (input.path.clone(), lines)));
            }
            before += input.bytes;
        }
        let tokens = writer.tokens();
        let documents = writer.documents();
        if tokens == 0 {
            return Err(DataError::Empty { path: inputs[0].path.clone(), files: inputs.len() });
        }
        Ok(Converted { files: writer.finish()?, tokens, documents, ends, vocabulary, bytes_read: total, skipped })
    }
}

/// Whose tokens will be written: the named tokenizer's, else those of the files of tokens, else those that text becomes.
fn vocabulary(inputs: &[Input], reading: &Reading, named: bool) -> Result<Vocabulary, DataError> {
    let own = reading.tokenizer.vocabulary();
    if named || inputs.iter().all(|input| !input.format.is_tokens()) {
        return Ok(own);
    }
    let mut found = inputs.iter().any(|input| !input.format.is_tokens()).then(|| (own, "the text".to_owned()));
    for input in inputs.iter().filter(|input| input.format.is_tokens()) {
        let Some(vocabulary) = open_tokens(input, None)?.vocabulary() else {
            return Err(DataError::NoVocabulary(input.path.clone()));
        };
        match &found {
            Some((expected, because)) if expected.name != vocabulary.name => {
                let path = input.path.clone();
                let because = because.clone();
                let found = vocabulary.name.to_string();
                let expected = expected.name.to_string();
                return Err(DataError::OtherTokenizer { path, found, expected, because });
            }
            _ => found = Some((vocabulary, input.path.display().to_string())),
        }
    }
    Ok(found.map_or(own, |(vocabulary, _)| vocabulary))
}

impl fmt::Display for TokenFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Quadrille => "quadrille",
            Self::Megatron => "megatron",
            Self::LlmC => "llm.c",
        })
    }
}

impl FromStr for TokenFormat {
    type Err = DataError;

    fn from_str(name: &str) -> Result<Self, DataError> {
        [Self::Quadrille, Self::Megatron, Self::LlmC]
            .into_iter()
            .find(|format| format.to_string() == name)
            .ok_or_else(|| DataError::UnknownFormat(name.to_owned()))
    }
}
