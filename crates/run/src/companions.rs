//! The small files that a run's folder keeps beside its checkpoints: with them evaluation and generation read text as the run
//! did, and conversion finds them.

use std::path::{Path, PathBuf};

use quadrille_checkpoint::Checkpoint;
use quadrille_data::{Tokenizer, TokenizerChoice};
use quadrille_engine::Start;
use quadrille_files::replace;
use quadrille_hugging_face::{COMPANION, COMPANIONS, copy_companions};
use serde_json::Value;

use crate::refusal::{Refusal, Setting};
use crate::tokenizer_rule::{TOKENIZER_FILE, folder_with, recorded};
use crate::{RunError, RunSpec};

/// Copies to `folder` what belongs to the checkpoint that the run begins with, unless the run reads tokens of another
/// tokenizer; else the `tokenizer.json` that was named. A run that goes on has them. `data` is [`crate::Source::about`].
///
/// # Errors
/// Files of other content that are there already; the system's.
pub(crate) fn keep(spec: &RunSpec, start: &Start, data: &Value, folder: &Path) -> Result<(), RunError> {
    let named = match &spec.data.tokenizer {
        Some(TokenizerChoice::File(path)) if path.is_dir() => Some(path.join(TOKENIZER_FILE)),
        Some(TokenizerChoice::File(path)) => Some(path.clone()),
        _ => None,
    };
    let read = recorded(data);
    match start {
        Start::Resumed(_) => Ok(()),
        Start::Values(checkpoint) => match (of_checkpoint(checkpoint, read, named.is_some())?, named) {
            (Some(from), _) => Ok(copy_companions(&from, folder).map(drop)?),
            (None, Some(file)) => copy_named(&file, folder),
            (None, None) => Ok(()),
        },
        Start::Drawn => named.map_or(Ok(()), |file| copy_named(&file, folder)),
    }
}

/// Copies what belongs to a checkpoint beside another one that is made of it, into its folder.
///
/// # Errors
/// Files of other content that are there already; the system's.
pub fn carry_companions(from: &Checkpoint, folder: &Path) -> Result<(), RunError> {
    match folder_with(from, &COMPANIONS) {
        Some(source) => Ok(copy_companions(&source, folder).map(drop)?),
        None => Ok(()),
    }
}

/// Where the files of a checkpoint are, if the tokenizer among them is the one whose tokens are read.
fn of_checkpoint(checkpoint: &Checkpoint, read: Option<&str>, named: bool) -> Result<Option<PathBuf>, RunError> {
    let Some(folder) = folder_with(checkpoint, &COMPANIONS) else { return Ok(None) };
    let file = folder.join(TOKENIZER_FILE);
    let same = match read {
        _ if !file.is_file() => !named,
        Some(read) => Tokenizer::from_file(&file)?.vocabulary().name.to_string() == read,
        None => true,
    };
    Ok(same.then_some(folder))
}

/// Copies a tokenizer, whatever its file is called, and the files beside it that name its special tokens and the form of chats.
fn copy_named(file: &Path, folder: &Path) -> Result<(), RunError> {
    const BESIDE: [&str; 3] = ["tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"];
    copy(file, &folder.join(TOKENIZER_FILE))?;
    let beside = BESIDE.map(|name| (file.with_file_name(name), folder.join(name)));
    beside.iter().filter(|(from, _)| from.is_file()).try_for_each(|(from, to)| copy(from, to))
}

fn copy(from: &Path, to: &Path) -> Result<(), RunError> {
    let content = COMPANION.bytes(from)?;
    if !to.exists() {
        return replace(to, &content).map_err(RunError::unwritten(to));
    }
    match COMPANION.bytes(to)? == content {
        true => Ok(()),
        false => {
            let rule = format!("{}: it differs from {}; name another folder with ", to.display(), from.display());
            Err(Refusal::new(rule).name(Setting::Out).text(", or remove the file").into())
        }
    }
}
