//! The small files beside a model that say how texts become tokens.

use std::path::Path;

use quadrille_files::Document;

use crate::HuggingFaceError;
use crate::files::write_file;

/// Any of them: the largest are tokenizers.
pub const COMPANION: Document = Document::new("a file of a tokenizer", 1 << 29);
/// Files that are copied beside a model unread: a tokenizer in its forms, and how a model is usually sampled.
pub const COMPANIONS: [&str; 7] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "generation_config.json",
];

/// Copies the files of [`COMPANIONS`] that `from` has to the folder `to`; their names. One that is already there with
/// the same content stays.
///
/// # Errors
/// A file that cannot be read or written; one that is there with another content.
pub fn copy_companions(from: &Path, to: &Path) -> Result<Vec<&'static str>, HuggingFaceError> {
    let mut copied = Vec::new();
    for name in COMPANIONS {
        let (source, target) = (from.join(name), to.join(name));
        let content = match COMPANION.bytes(&source) {
            Err(error) if error.is_missing() => continue,
            content => content?,
        };
        if target.exists() {
            if COMPANION.bytes(&target)? != content {
                let rule = format!("it differs from {}", source.display());
                return Err(HuggingFaceError::folder(&target, rule, "name another folder, or remove the file"));
            }
        } else {
            write_file(&target, &content)?;
        }
        copied.push(name);
    }
    Ok(copied)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_there_is_copied_once_and_never_replaced() {
        let [from, to] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        assert!(copy_companions(from.path(), to.path()).unwrap().is_empty());
        fs::write(from.path().join("tokenizer.json"), "{}").unwrap();
        fs::write(from.path().join("other.json"), "{}").unwrap();
        for _ in 0..2 {
            assert_eq!(copy_companions(from.path(), to.path()).unwrap(), ["tokenizer.json"]);
        }
        assert_eq!(fs::read_dir(to.path()).unwrap().count(), 1);
        fs::write(to.path().join("tokenizer.json"), "[]").unwrap();
        let message = copy_companions(from.path(), to.path()).unwrap_err().to_string();
        assert!(message.contains("tokenizer.json: it differs from "), "{message}");
        assert_eq!(fs::read_to_string(to.path().join("tokenizer.json")).unwrap(), "[]");
    }
}
