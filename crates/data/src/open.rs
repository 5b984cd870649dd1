//! Files of any format as one source of tokens.

use std::path::{Path, PathBuf};

use crate::prepare::prepare_inputs;
use crate::text::{Format, Input, Reading, collect};
use crate::tokens::Joined;
use crate::{DataError, LlmCFile, MegatronFile, Progress, TokenFile, TokenSource, Vocabulary};

/// How sources are opened.
#[derive(Debug, Clone)]
pub struct Opening<'a> {
    /// How text is read.
    pub reading: &'a Reading,
    /// Whether the user named the tokenizer: then files of tokens must be its own, and those that do not say whose tokens
    /// they hold are taken to be.
    pub named: bool,
    /// Where the tokens of text are kept.
    pub cache: &'a Path,
}

/// Opens the files and folders `paths`, in their order, as one source: files of tokens as they are, text after
/// [`crate::prepare()`].
///
/// # Errors
/// Those of [`crate::prepare()`], [`TokenFile::open`], [`MegatronFile::open`] and [`LlmCFile::open`];
/// [`DataError::OtherTokenizer`] where tokens of different tokenizers would be mixed.
pub fn open(paths: &[PathBuf], opening: &Opening, progress: &mut Progress) -> Result<TokenSource, DataError> {
    let inputs = collect(paths, &opening.reading.text_field)?;
    let mut parts: Vec<TokenSource> = Vec::new();
    // Texts in a row are prepared together.
    for run in inputs.chunk_by(|a, b| !a.format.is_tokens() && !b.format.is_tokens()) {
        parts.push(match run {
            [input] if input.format.is_tokens() => {
                open_tokens(input, opening.named.then(|| opening.reading.tokenizer.vocabulary()))?
            }
            texts => prepare_inputs(texts, opening.reading, opening.cache, progress)?.into(),
        });
    }
    let known = |part: &TokenSource| part.vocabulary().map(|vocabulary| (part.path_at(0).to_path_buf(), vocabulary));
    let mut known = parts.iter().filter_map(known);
    if let Some((first, expected)) = known.next()
        && let Some((path, found)) = known.find(|(_, found)| found.name != expected.name)
    {
        let (expected, found) = (expected.name.to_string(), found.name.to_string());
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
