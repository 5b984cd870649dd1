//! A copy of the workspace in which some files are others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What is built, and what tests read.
const FOLDERS: [&str; 5] = [".ci", "benchmarks", "crates", "docs", "scripts"];
const FILES: [&str; 8] = [
    "Cargo.toml",
    "Cargo.lock",
    "Dockerfile",
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
];

/// The workspace that is tested.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Brings the copy in `target` up to date, with the texts of `changed` at their paths; returns its path. Files that are the
/// same keep their times, so that only what has changed is built again.
///
/// # Errors
/// A file that cannot be read or written.
pub fn copied_workspace(changed: &BTreeMap<PathBuf, String>, target: &Path) -> Result<PathBuf, String> {
    let workspace = workspace();
    let copy = target.join("workspace");
    let mut paths = BTreeSet::from(FILES.map(PathBuf::from));
    FOLDERS.iter().try_for_each(|folder| files(&workspace, Path::new(folder), &mut paths))?;
    for path in &paths {
        let from = workspace.join(path);
        let contents = match changed.get(path) {
            Some(text) => text.clone().into_bytes(),
            None => std::fs::read(&from).map_err(|error| format!("{}: {error}", from.display()))?,
        };
        write(&copy.join(path), &contents)?;
    }
    for (path, text) in changed.iter().filter(|(path, _)| !paths.contains(*path)) {
        write(&copy.join(path), text.as_bytes())?;
    }
    let mut copied = BTreeSet::new();
    FOLDERS.iter().try_for_each(|folder| files(&copy, Path::new(folder), &mut copied))?;
    for path in copied.iter().filter(|path| !paths.contains(*path) && !changed.contains_key(*path)) {
        std::fs::remove_file(copy.join(path)).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(copy)
}

/// The paths of all files below `folder` of `root`.
fn files(root: &Path, folder: &Path, paths: &mut BTreeSet<PathBuf>) -> Result<(), String> {
    let wrong = |error| format!("{}: {error}", root.join(folder).display());
    for entry in std::fs::read_dir(root.join(folder)).map_err(wrong)? {
        let entry = entry.map_err(wrong)?;
        let path = folder.join(entry.file_name());
        if entry.file_type().map_err(wrong)?.is_dir() {
            files(root, &path, paths)?;
        } else {
            paths.insert(path);
        }
    }
    Ok(())
}

/// Writes the file unless it holds this already.
fn write(path: &Path, contents: &[u8]) -> Result<(), String> {
    let wrong = |error| format!("{}: {error}", path.display());
    if std::fs::read(path).is_ok_and(|there| there == contents) {
        return Ok(());
    }
    path.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(wrong)?;
    std::fs::write(path, contents).map_err(wrong)
}
