//! The small files that a run's folder keeps beside its checkpoints: with them evaluation and generation read text as the run
//! did, and conversion finds them.

use std::path::{Path, PathBuf};

use quadrille_checkpoint::Checkpoint;
use quadrille_data::{TokenizerChoice, VocabularyName};
use quadrille_engine::Start;
use quadrille_files::replace;
use quadrille_hugging_face::{
    COMPANION, COMPANIONS, GENERATION_CONFIG, Origin, check_companions, copy_companions, copy_companions_without,
};
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

/// Checks that [`carry_companions`] to the folder would replace nothing, before a checkpoint is written there.
///
/// # Errors
/// As [`carry_companions`].
pub fn check_companions_of(from: &Checkpoint, folder: &Path) -> Result<(), RunError> {
    match folder_with(from, &COMPANIONS) {
        Some(source) => Ok(check_companions(&source, folder)?),
        None => Ok(()),
    }
}

/// Record of the import for a run that begins with the values of a checkpoint; `data` is [`crate::Source::about`]. Where the
/// run reads tokens of another tokenizer than the checkpoint's, the special tokens of the import no longer count.
///
/// # Errors
/// A tokenizer that cannot be read; a record that is something else.
pub(crate) fn origin(checkpoint: &Checkpoint, data: &Value) -> Result<Option<Value>, RunError> {
    let Some(value) = &checkpoint.about().hugging_face else { return Ok(None) };
    let folder = folder_with(checkpoint, &[TOKENIZER_FILE]);
    let (Some(folder), Some(read)) = (folder, recorded(data)) else { return Ok(Some(value.clone())) };
    if is_tokenizer(&folder.join(TOKENIZER_FILE), read)? {
        return Ok(Some(value.clone()));
    }
    let origin = Origin { other_tokenizer: true, ..Origin::from_value(value)? };
    Ok(Some(origin.to_value()))
}

/// True if a file is the tokenizer of this name.
fn is_tokenizer(file: &Path, name: &str) -> Result<bool, RunError> {
    Ok(VocabularyName::of_json(&COMPANION.bytes(file)?).to_string() == name)
}

/// Where the files of a checkpoint are, if the tokenizer among them is the one whose tokens are read.
fn of_checkpoint(checkpoint: &Checkpoint, read: Option<&str>, named: bool) -> Result<Option<PathBuf>, RunError> {
    let Some(folder) = folder_with(checkpoint, &COMPANIONS) else { return Ok(None) };
    let file = folder.join(TOKENIZER_FILE);
    let same = match read {
        _ if !file.is_file() => !named,
        Some(read) => is_tokenizer(&file, read)?,
        None => true,
    };
    Ok(same.then_some(folder))
}

/// Copies a tokenizer, under its usual name, with its companions; the generation configuration is of another model and stays.
fn copy_named(file: &Path, folder: &Path) -> Result<(), RunError> {
    copy(file, &folder.join(TOKENIZER_FILE))?;
    // The parent of a name alone is empty: the working directory.
    let beside = file.with_file_name("");
    let from = if beside.as_os_str().is_empty() { Path::new(".") } else { beside.as_path() };
    Ok(copy_companions_without(&[TOKENIZER_FILE, GENERATION_CONFIG], from, folder).map(drop)?)
}

fn copy(from: &Path, to: &Path) -> Result<(), RunError> {
    let content = COMPANION.bytes(from)?;
    if !to.exists() {
        return replace(to, &content).map_err(RunError::unwritten(to));
    }
    if COMPANION.bytes(to)? == content {
        Ok(())
    } else {
        let rule = format!("{}: it differs from {}; name another folder with ", to.display(), from.display());
        Err(Refusal::new(rule).name(Setting::Out).text(", or remove the file").into())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_named_tokenizer_is_kept_with_the_files_that_belong_to_it() {
        let [from, to] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let beside = ["added_tokens.json", "vocab.json", "merges.txt", "tokenizer.model", "tokenizer_config.json"];
        for name in beside.into_iter().chain(["mine.json", TOKENIZER_FILE, GENERATION_CONFIG]) {
            fs::write(from.path().join(name), name).unwrap();
        }
        fs::create_dir(from.path().join("additional_chat_templates")).unwrap();
        fs::write(from.path().join("additional_chat_templates/tools.jinja"), "x").unwrap();
        copy_named(&from.path().join("mine.json"), to.path()).unwrap();
        assert_eq!(fs::read_to_string(to.path().join(TOKENIZER_FILE)).unwrap(), "mine.json");
        assert!(beside.iter().all(|name| to.path().join(name).is_file()));
        assert!(to.path().join("additional_chat_templates/tools.jinja").is_file());
        assert_eq!(fs::read_dir(to.path()).unwrap().count(), beside.len() + 2);
    }
}
