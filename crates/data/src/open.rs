//! Files of any format as one source of tokens.

use std::path::{Path, PathBuf};

use crate::content::{ContentHashes, joined};
use crate::prepare::prepare_inputs;
use crate::text::{Format, Input, Reading, TextRules, collect};
use crate::tokens::{Element, Joined, megatron};
use crate::{DataError, DataFile, LlmCFile, MegatronFile, Progress, RawFile, TokenFile, TokenSource, Vocabulary};

/// How sources are opened.
#[derive(Debug, Clone)]
pub struct Opening<'a> {
    /// How text is read.
    pub reading: &'a Reading,
    /// Whether the user named the tokenizer: then files of tokens must be its own, and those that do not say whose tokens
    /// they hold are taken to be.
    pub named: bool,
    /// The folder for the tokens of text and for hashes of contents.
    pub cache: &'a Path,
}

/// Files as one source.
#[derive(Debug)]
pub struct DataSource {
    /// Their tokens.
    pub tokens: TokenSource,
    /// The files, in their order.
    pub files: Vec<DataFile>,
    /// Hash of the tokens: sources are equal if theirs are.
    pub content: u128,
}

/// Opens the files and folders `paths`, in their order, as one source: files of tokens as they are, text after
/// [`crate::prepare()`]. Files of tokens of other programs are read in full for the hash of their content, which is stored in
/// the cache.
///
/// # Errors
/// Those of [`crate::prepare()`], [`TokenFile::open`], [`MegatronFile::open`] and [`LlmCFile::open`];
/// [`DataError::OtherTokenizer`] where tokens of different tokenizers would be mixed.
pub fn open(paths: &[PathBuf], opening: &Opening, progress: &mut Progress) -> Result<DataSource, DataError> {
    let inputs = collect(paths, opening.reading.rules())?;
    let mut hashes = ContentHashes::open(opening.cache);
    let mut parts = Vec::new();
    let mut files = Vec::new();
    let mut contents = Vec::new();
    // Texts in a row are prepared together.
    for run in inputs.chunk_by(|a, b| !a.format.is_tokens() && !b.format.is_tokens()) {
        let (part, read, content) = match run {
            [input] if input.format.is_tokens() => {
                let part = open_tokens(input, opening.named.then(|| opening.reading.tokenizer.vocabulary()))?;
                let read = identify(&part, input, &mut hashes, progress)?;
                let content = match read.as_slice() {
                    [file] => file.content,
                    pair => joined(pair.iter().map(|file| file.content)),
                };
                (part, read, content)
            }
            texts => {
                let (tokens, read) = prepare_inputs(texts, opening.reading, opening.cache, &mut hashes, progress)?;
                let content = tokens.content();
                (tokens.into(), read, content)
            }
        };
        parts.push(part);
        files.extend(read);
        contents.push(content);
    }
    let content = match contents.as_slice() {
        [content] => *content,
        _ => joined(contents),
    };
    let tokens = one_source(parts)?;
    if tokens.is_empty() {
        let path = files.first().map_or_else(|| paths[0].clone(), |file| file.path.clone());
        return Err(DataError::Empty { path, files: files.len() });
    }
    hashes.store();
    Ok(DataSource { tokens, files, content })
}

/// The formats of the files and folders `paths`, in their order.
///
/// # Errors
/// Missing files, paths of other things, doubtful files; [`DataError::EmptyCorpus`].
pub fn formats(paths: &[PathBuf], rules: TextRules) -> Result<Vec<Format>, DataError> {
    Ok(collect(paths, rules)?.into_iter().map(|input| input.format).collect())
}

/// The files of a source of tokens with the hashes of their contents.
fn identify(
    source: &TokenSource,
    input: &Input,
    hashes: &mut ContentHashes,
    progress: &mut Progress,
) -> Result<Vec<DataFile>, DataError> {
    let Input { path, format, bytes } = input;
    if let TokenSource::File(file) = source {
        let path = path.clone();
        let content = file.content();
        return Ok(vec![DataFile { path, format: *format, bytes: *bytes, content, skipped: None }]);
    }
    let paths = match format {
        Format::Megatron => <[PathBuf; 2]>::from(megatron::pair(path)).to_vec(),
        _ => vec![path.clone()],
    };
    let hash = |path: &PathBuf| {
        let mut read = |done: u64| progress(done.min(*bytes), *bytes);
        Ok(hashes.hash(path, *format, &mut read)?.file)
    };
    paths.iter().map(hash).collect()
}

/// Sources of one tokenizer, one after the other.
fn one_source(parts: Vec<TokenSource>) -> Result<TokenSource, DataError> {
    let known = |part: &TokenSource| part.vocabulary().map(|vocabulary| (part.path_at(0).to_path_buf(), vocabulary));
    let mut known = parts.iter().filter_map(known);
    if let Some((first, expected)) = known.next()
        && let Some((path, found)) = known.find(|(_, found)| found.name != expected.name)
    {
        let expected = expected.name.to_string();
        let found = found.name.to_string();
        return Err(DataError::OtherTokenizer { path, found, expected, because: first.display().to_string() });
    }
    match <[TokenSource; 1]>::try_from(parts) {
        Ok([part]) => Ok(part),
        Err(parts) => Ok(TokenSource::Joined(Joined::new(parts)?)),
    }
}

/// Opens a file of tokens, which must be those of `vocabulary`, if it is given and the file says whose they are.
pub(crate) fn open_tokens(input: &Input, vocabulary: Option<Vocabulary>) -> Result<TokenSource, DataError> {
    let source = match input.format {
        Format::Megatron => TokenSource::Megatron(MegatronFile::open(&input.path, vocabulary)?),
        Format::LlmC => TokenSource::LlmC(LlmCFile::open(&input.path, vocabulary)?),
        Format::RawU16 => TokenSource::Raw(RawFile::open(&input.path, Element::U16, vocabulary)?),
        Format::RawU32 => TokenSource::Raw(RawFile::open(&input.path, Element::U32, vocabulary)?),
        _ => TokenSource::File(TokenFile::open(&input.path)?),
    };
    match (source.vocabulary(), vocabulary) {
        (Some(found), Some(expected)) if found.name != expected.name => Err(DataError::OtherTokenizer {
            path: input.path.clone(),
            found: found.name.to_string(),
            expected: expected.name.to_string(),
            because: "`data.tokenizer`".to_owned(),
        }),
        _ => Ok(source),
    }
}
