//! The text files of a corpus: found in a fixed order, and named by a hash.

use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use xxhash_rust::xxh3::xxh3_128;

use crate::{DataError, Tokenizer, header};

/// Token files end in this; folders are searched without them.
pub(crate) const TOKEN_FILE_EXTENSION: &str = "tokens";

/// One text file, which is one document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    /// Absolute path without symbolic links.
    pub path: PathBuf,
    /// Size in bytes.
    pub bytes: u64,
    /// Time of the last change in nanoseconds since 1970, negative before.
    modified: i128,
}

/// The non-empty files named by `paths`: files in the order given, folders in the order of their entries' names, with
/// their subfolders. In folders, hidden entries, token files, links to folders and what is not a regular file are
/// skipped. A file named twice is read once.
pub(crate) fn collect(paths: &[PathBuf]) -> Result<Vec<Source>, DataError> {
    let mut sources = Vec::new();
    for path in paths {
        let metadata = fs::metadata(path).map_err(DataError::io("read", path))?;
        if metadata.is_dir() {
            collect_folder(path, &mut sources)?;
        } else if !metadata.is_file() {
            return Err(DataError::NotAFile(path.clone()));
        } else if is_token_file(path) {
            return Err(DataError::AlreadyTokens(path.clone()));
        } else {
            sources.push(Source::new(path, &metadata)?);
        }
    }
    let mut seen = HashSet::new();
    sources.retain(|source| source.bytes > 0 && seen.insert(source.path.clone()));
    if sources.is_empty() {
        let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        let paths = if names.is_empty() { "an empty list of paths".to_string() } else { names.join(", ") };
        return Err(DataError::EmptyCorpus { paths });
    }
    Ok(sources)
}

fn collect_folder(folder: &Path, sources: &mut Vec<Source>) -> Result<(), DataError> {
    let read = DataError::io("read", folder);
    let mut entries = fs::read_dir(folder).and_then(|entries| entries.collect::<Result<Vec<_>, _>>()).map_err(read)?;
    entries.sort_by_key(|entry| entry.file_name());
    for entry in entries {
        let path = entry.path();
        if entry.file_name().as_encoded_bytes().starts_with(b".") || is_token_file(&path) {
            continue;
        }
        let kind = entry.file_type().map_err(DataError::io("read", &path))?;
        if kind.is_dir() {
            collect_folder(&path, sources)?;
            continue;
        }
        let metadata = fs::metadata(&path).map_err(DataError::io("read", &path))?;
        if metadata.is_file() {
            sources.push(Source::new(&path, &metadata)?);
        }
    }
    Ok(())
}

fn is_token_file(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == TOKEN_FILE_EXTENSION)
}

impl Source {
    fn new(path: &Path, metadata: &Metadata) -> Result<Self, DataError> {
        let modified = metadata.modified().map_err(DataError::io("read", path))?;
        let modified = match modified.duration_since(UNIX_EPOCH) {
            Ok(after) => after.as_nanos() as i128,
            Err(before) => -(before.duration().as_nanos() as i128),
        };
        let path = path.canonicalize().map_err(DataError::io("read", path))?;
        Ok(Self { path, bytes: metadata.len(), modified })
    }
}

/// What a token file of `sources` is named by: a hash of the format, the tokenizer and each file's path, size and time
/// of change.
pub(crate) fn corpus_key(tokenizer: Tokenizer, sources: &[Source]) -> u128 {
    let mut text = format!("{} {tokenizer}", header::VERSION).into_bytes();
    for source in sources {
        let path = source.path.as_os_str().as_encoded_bytes();
        text.extend((path.len() as u64).to_le_bytes());
        text.extend(path);
        text.extend(source.bytes.to_le_bytes());
        text.extend(source.modified.to_le_bytes());
    }
    xxh3_128(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, name: &str, text: &str) {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn names(root: &Path, sources: &[Source]) -> Vec<String> {
        let root = root.canonicalize().unwrap();
        sources.iter().map(|source| source.path.strip_prefix(&root).unwrap().display().to_string()).collect()
    }

    #[test]
    fn folders_are_searched_in_the_order_of_names() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for name in ["b.txt", "a/z.md", "a/b/c", "c.txt", ".hidden", ".git/config", "old.tokens", "sub/.x/y"] {
            write(root, name, name);
        }
        write(root, "empty", "");
        let sources = collect(&[root.to_path_buf()]).unwrap();
        assert_eq!(names(root, &sources), ["a/b/c", "a/z.md", "b.txt", "c.txt"]);
        let sources = collect(&[root.join("c.txt"), root.to_path_buf(), root.join(".hidden")]).unwrap();
        assert_eq!(names(root, &sources), ["c.txt", "a/b/c", "a/z.md", "b.txt", ".hidden"]);
    }

    #[test]
    fn the_key_changes_with_the_tokenizer_and_with_each_file() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(root, "a", "one");
        write(root, "b", "two");
        let both = collect(&[root.to_path_buf()]).unwrap();
        let mut keys = vec![
            corpus_key(Tokenizer::Gpt2, &both),
            corpus_key(Tokenizer::Bytes, &both),
            corpus_key(Tokenizer::Bytes, &both[..1]),
            corpus_key(Tokenizer::Bytes, &[both[1].clone(), both[0].clone()]),
        ];
        for change in [|source: &mut Source| source.bytes += 1, |source: &mut Source| source.modified -= 1] {
            let mut changed = both.clone();
            change(&mut changed[1]);
            keys.push(corpus_key(Tokenizer::Bytes, &changed));
        }
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), 6);
        assert_eq!(keys[0], corpus_key(Tokenizer::Gpt2, &collect(&[root.to_path_buf()]).unwrap()));
    }

    #[test]
    fn nothing_to_read_is_an_error_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(root, "empty", "");
        for paths in [vec![], vec![root.to_path_buf()], vec![root.join("empty")]] {
            let error = collect(&paths).unwrap_err();
            assert!(matches!(error, DataError::EmptyCorpus { .. }), "{error}");
        }
        let error = collect(&[root.join("absent.txt")]).unwrap_err();
        assert!(matches!(error, DataError::Io { .. }) && error.to_string().contains("absent.txt"), "{error}");
        write(root, "x.tokens", "tokens");
        assert!(matches!(collect(&[root.join("x.tokens")]), Err(DataError::AlreadyTokens(_))));
        assert!(matches!(collect(&[PathBuf::from("/dev/null")]), Err(DataError::NotAFile(_))));
    }
}
