//! The small files beside a model that say how texts become tokens.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use quadrille_files::{Document, create_folders};

use crate::HuggingFaceError;
use crate::files::write_file;

/// Any of them: the largest are tokenizers.
pub const COMPANION: Document = Document::new("a file of a tokenizer", 1 << 29);
/// The file that says how a model is usually sampled, and which tokens end its texts.
pub const GENERATION_CONFIG: &str = "generation_config.json";
/// Files that are copied beside a model unread: a tokenizer in its forms, its chat template, and how the model is usually
/// sampled.
pub const COMPANIONS: [&str; 14] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tokenizer.model",
    "spiece.model",
    "tiktoken.model",
    "tekken.json",
    "chat_template.jinja",
    "chat_template.json",
    GENERATION_CONFIG,
];

/// Folder of chat templates besides the usual one, which is copied, too.
const TEMPLATES: &str = "additional_chat_templates";

/// Copies the files of [`COMPANIONS`] that `from` has to the folder `to`; their names. One that is already there with
/// the same content stays.
///
/// # Errors
/// A file that cannot be read or written; one that is there with another content.
pub fn copy_companions(from: &Path, to: &Path) -> Result<Vec<String>, HuggingFaceError> {
    copy_companions_without(&[], from, to)
}

/// [`copy_companions`] without the files of these names.
///
/// # Errors
/// As [`copy_companions`].
pub fn copy_companions_without(left_out: &[&str], from: &Path, to: &Path) -> Result<Vec<String>, HuggingFaceError> {
    let mut copied = Vec::new();
    for name in COMPANIONS.into_iter().filter(|name| !left_out.contains(name)) {
        if copy(&from.join(name), &to.join(name))? {
            copied.push(name.to_owned());
        }
    }
    if copy_templates(&from.join(TEMPLATES), &to.join(TEMPLATES))? {
        copied.push(TEMPLATES.to_owned());
    }
    Ok(copied)
}

/// Checks that a copy of the companions of `from` replaces nothing in `to`.
///
/// # Errors
/// As [`copy_companions`].
pub fn check_companions(from: &Path, to: &Path) -> Result<(), HuggingFaceError> {
    for name in COMPANIONS {
        match COMPANION.bytes(&from.join(name)) {
            Err(error) if error.is_missing() => {}
            content => check(&from.join(name), &content?, &to.join(name))?,
        }
    }
    Ok(())
}

/// Removes from `folder` what [`copy_companions`] has copied there.
pub(crate) fn remove_companions(folder: &Path) {
    for name in COMPANIONS {
        let _ = fs::remove_file(folder.join(name));
    }
    let _ = fs::remove_dir_all(folder.join(TEMPLATES));
}

/// Copies the templates of a folder; returns true if it has any.
fn copy_templates(from: &Path, to: &Path) -> Result<bool, HuggingFaceError> {
    let entries = match fs::read_dir(from) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(false),
        Err(error) => return Err(HuggingFaceError::io("read", from)(error)),
    };
    let mut is_copied = false;
    for entry in entries {
        let path = entry.map_err(HuggingFaceError::io("read", from))?.path();
        let Some(name) = path.file_name().filter(|_| path.extension().is_some_and(|end| end == "jinja")) else {
            continue;
        };
        create_folders(to).map_err(HuggingFaceError::io("create", to))?;
        is_copied |= copy(&path, &to.join(name))?;
    }
    Ok(is_copied)
}

/// Copies a file, byte for byte; returns false without a source.
fn copy(source: &Path, target: &Path) -> Result<bool, HuggingFaceError> {
    let content = match COMPANION.bytes(source) {
        // A link whose target is missing is a download that did not end.
        Err(error) if error.is_missing() && fs::symlink_metadata(source).is_err() => return Ok(false),
        content => content?,
    };
    check(source, &content, target)?;
    if !target.exists() {
        write_file(target, &content)?;
    }
    Ok(true)
}

/// Refuses a target that is there with another content than its source.
fn check(source: &Path, content: &[u8], target: &Path) -> Result<(), HuggingFaceError> {
    if target.exists() && COMPANION.bytes(target)? != content {
        let rule = format!("it differs from {}", source.display());
        return Err(HuggingFaceError::folder(target, rule, "name another folder, or remove the file"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_copied_once_and_never_replaced() {
        let [from, to] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        assert!(copy_companions(from.path(), to.path()).unwrap().is_empty());
        fs::write(from.path().join("tokenizer.json"), "{}").unwrap();
        fs::write(from.path().join("other.json"), "{}").unwrap();
        fs::create_dir(from.path().join(TEMPLATES)).unwrap();
        fs::write(from.path().join(TEMPLATES).join("tools.jinja"), "{{ tools }}").unwrap();
        for _ in 0..2 {
            assert_eq!(copy_companions(from.path(), to.path()).unwrap(), ["tokenizer.json", TEMPLATES]);
        }
        assert_eq!(fs::read_dir(to.path()).unwrap().count(), 2);
        assert_eq!(fs::read_to_string(to.path().join(TEMPLATES).join("tools.jinja")).unwrap(), "{{ tools }}");
        fs::write(to.path().join("tokenizer.json"), "[]").unwrap();
        for copied in [check_companions(from.path(), to.path()), copy_companions(from.path(), to.path()).map(drop)] {
            let message = copied.unwrap_err().to_string();
            assert!(message.contains("tokenizer.json: it differs from "), "{message}");
        }
        check_companions(from.path(), from.path()).unwrap();
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink("blobs/missing", from.path().join("merges.txt")).unwrap();
            let message = copy_companions(from.path(), tempfile::tempdir().unwrap().path()).unwrap_err().to_string();
            assert!(message.contains("merges.txt"), "{message}");
        }
        assert_eq!(fs::read_to_string(to.path().join("tokenizer.json")).unwrap(), "[]");
    }
}
