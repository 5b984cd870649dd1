//! Refusals of input that cannot be used.

use std::fs;
use std::path::Path;

use crate::common::run;

/// Names and sizes of all files and folders below `folder`.
fn files(folder: &Path) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let metadata = entry.metadata().unwrap();
        if metadata.is_dir() {
            found.push((entry.path().display().to_string(), 0));
            found.extend(files(&entry.path()));
        } else {
            found.push((entry.path().display().to_string(), metadata.len()));
        }
    }
    found.sort();
    found
}

/// Runs `line` in `folder`, which must stay as it is, and holds its refusal against the words of the message.
pub fn refused_in(folder: &Path, line: &str, words: &[&str]) {
    let before = files(folder);
    let output = run(folder, line);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{line}: {message}");
    assert!(output.stdout.is_empty(), "{line} printed {}", String::from_utf8_lossy(&output.stdout));
    assert!(message.starts_with("error: ") && message.len() < 1200, "{line}: {message}");
    assert!(!message.contains("panicked") && !message.contains("backtrace"), "{line}: {message}");
    for word in words {
        assert!(message.contains(word), "{line}: '{word}' is not in: {message}");
    }
    assert_eq!(files(folder), before, "{line}");
}

/// The same in an empty folder.
pub fn refused(line: &str, words: &[&str]) {
    refused_in(tempfile::tempdir().unwrap().path(), line, words);
}

/// A file of that name and content in a new folder.
pub fn folder_with(name: &str, content: impl AsRef<[u8]>) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(name), content).unwrap();
    folder
}
