//! The small files that a run's folder keeps beside its checkpoints: with them `eval`, `generate` and `convert` read text
//! as the run did.

use std::path::{Path, PathBuf};

use quadrille_checkpoint::Checkpoint;
use quadrille_data::{Tokenizer, TokenizerChoice};
use quadrille_engine::Start;
use quadrille_hugging_face::{COMPANION, COMPANIONS, copy_companions};

use super::arguments::TrainArguments;
use super::prepare::Prepared;
use crate::failure::Failure;
use crate::files;
use crate::tokenizer_rule::{TOKENIZER_FILE, folder_with, recorded};

/// Copies to `folder` what belongs to the checkpoint that the run begins with, unless the run reads tokens of another
/// tokenizer; else the `tokenizer.json` that was named. A run that goes on has them.
///
/// # Errors
/// Files of other content that are there already; the system's.
pub fn keep(prepared: &Prepared, arguments: &TrainArguments, folder: &Path) -> Result<(), Failure> {
    let named = match &arguments.data.tokenizer {
        Some(TokenizerChoice::File(path)) if path.is_dir() => Some(path.join(TOKENIZER_FILE)),
        Some(TokenizerChoice::File(path)) => Some(path.clone()),
        _ => None,
    };
    let read = recorded(prepared.source.about());
    match &prepared.beginning.start {
        Start::Resumed(_) => Ok(()),
        Start::Values(checkpoint) => match (of_checkpoint(checkpoint, read, named.is_some())?, named) {
            (Some(from), _) => Ok(copy_companions(&from, folder).map(drop)?),
            (None, Some(file)) => copy_named(&file, folder),
            (None, None) => Ok(()),
        },
        Start::Drawn => named.map_or(Ok(()), |file| copy_named(&file, folder)),
    }
}

/// Where the files of a checkpoint are, if the tokenizer among them is the one whose tokens are read.
fn of_checkpoint(checkpoint: &Checkpoint, read: Option<&str>, named: bool) -> Result<Option<PathBuf>, Failure> {
    let Some(folder) = folder_with(checkpoint, &COMPANIONS) else { return Ok(None) };
    let file = folder.join(TOKENIZER_FILE);
    let same = match read {
        _ if !file.is_file() => !named,
        Some(read) => Tokenizer::from_file(&file)?.vocabulary().name.to_string() == read,
        None => true,
    };
    Ok(same.then_some(folder))
}

/// Copies a tokenizer, whatever its file is called, and the `tokenizer_config.json` beside it.
fn copy_named(file: &Path, folder: &Path) -> Result<(), Failure> {
    const CONFIGURATION: &str = "tokenizer_config.json";
    copy(file, &folder.join(TOKENIZER_FILE))?;
    let configuration = file.with_file_name(CONFIGURATION);
    if configuration.is_file() { copy(&configuration, &folder.join(CONFIGURATION)) } else { Ok(()) }
}

fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    let content = COMPANION.bytes(from)?;
    if !to.exists() {
        return files::replace(to, &content).map_err(|error| Failure::run(files::unwritable("", to, &error)));
    }
    match COMPANION.bytes(to)? == content {
        true => Ok(()),
        false => Err(Failure::usage(format!(
            "{}: it differs from {}; name another folder with --out, or remove the file",
            to.display(),
            from.display()
        ))),
    }
}
