//! The checkpoints of a run.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::draft::PARTIAL;
use crate::{Checkpoint, CheckpointError, disk, manifest};

/// A folder whose entries are checkpoints, `step-000000000010` and so on. It need not exist.
#[derive(Debug, Clone)]
pub struct Folder {
    path: PathBuf,
    /// What messages call it: as its user does.
    named: PathBuf,
}

impl Folder {
    /// The folder of checkpoints at `path`.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_path_buf(), named: path.to_path_buf() }
    }

    /// The folder of checkpoints that a user means by `path`: that of a run, which is called `checkpoints`, or itself.
    pub fn of(path: &Path) -> Self {
        let inner = path.join("checkpoints");
        Self { path: if inner.is_dir() { inner } else { path.to_path_buf() }, named: path.to_path_buf() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the checkpoint of a step is or would be.
    pub fn path_of(&self, step: u64) -> PathBuf {
        self.path.join(format!("step-{step:012}"))
    }

    /// Steps and paths of all finished checkpoints, newest first. None is opened.
    ///
    /// # Errors
    /// The system's; a folder that is not there has no checkpoints.
    pub fn list(&self) -> Result<Vec<(u64, PathBuf)>, CheckpointError> {
        let step = |name: &str| name.strip_prefix("step-").and_then(|step| step.parse().ok());
        let named = self.names()?.into_iter().filter_map(|name| Some((step(&name)?, name)));
        let mut found: Vec<(u64, PathBuf)> = named
            .map(|(step, name)| (step, self.path.join(name)))
            .filter(|(step, path)| *path == self.path_of(*step) && path.is_dir())
            .collect();
        found.sort_unstable_by(|a, b| b.cmp(a));
        Ok(found)
    }

    /// All finished checkpoints with their steps, newest first, opened.
    ///
    /// # Errors
    /// None at all; one that does not open; the system's.
    pub fn open_all(&self) -> Result<Vec<(u64, Checkpoint)>, CheckpointError> {
        let listed = self.listed()?;
        listed.into_iter().map(|(step, path)| Ok((step, Checkpoint::open(&path)?))).collect()
    }

    /// As [`Self::list`], of a folder that is to have some.
    ///
    /// # Errors
    /// None at all; the system's.
    pub fn listed(&self) -> Result<Vec<(u64, PathBuf)>, CheckpointError> {
        let listed = self.list()?;
        if listed.is_empty() { Err(CheckpointError::Empty(self.named.clone())) } else { Ok(listed) }
    }

    /// Folders of checkpoints that were never finished, or were about to be removed.
    ///
    /// # Errors
    /// The system's.
    pub fn partial(&self) -> Result<Vec<PathBuf>, CheckpointError> {
        let unfinished = |name: &String| name.starts_with("step-") && name.ends_with(PARTIAL);
        let mut found: Vec<PathBuf> =
            self.names()?.iter().filter(|name| unfinished(name)).map(|n| self.path.join(n)).collect();
        found.retain(|path| path.is_dir());
        found.sort_unstable();
        Ok(found)
    }

    fn names(&self) -> Result<Vec<String>, CheckpointError> {
        let entries = match fs::read_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(CheckpointError::io("read", &self.path))?,
        };
        let names = entries.map(|entry| Ok(entry?.file_name().into_string().ok()));
        let names: io::Result<Vec<Option<String>>> = names.collect();
        Ok(names.map_err(CheckpointError::io("read", &self.path))?.into_iter().flatten().collect())
    }

    /// Removes what a crashed writer has left and returns its paths. Nobody may be writing: the caller holds the run's lock.
    ///
    /// # Errors
    /// The system's.
    pub fn clean(&self) -> Result<Vec<PathBuf>, CheckpointError> {
        let found = self.partial()?;
        for path in &found {
            let removed = disk::remove_folder(path);
            // What pruning has renamed is in nobody's way.
            if !path.to_string_lossy().ends_with(".removed.partial") {
                removed?;
            }
        }
        Ok(found)
    }

    /// The newest checkpoint; `None` if there is none at all.
    ///
    /// # Errors
    /// A newest one that cannot be used is never passed over silently: [`CheckpointError::Unusable`] says what is wrong
    /// with it and which is the newest before it that opens.
    pub fn newest(&self) -> Result<Option<Checkpoint>, CheckpointError> {
        match self.list()?.first() {
            Some((_, newest)) => Checkpoint::open(newest).map(Some).map_err(|error| unusable(newest, error)),
            None => Ok(None),
        }
    }

    /// Removes all but the newest `keep` checkpoints, at least one, and returns the removed paths. Where none of those
    /// opens, the newest one that does is kept as well. Folders without a manifest are none, and stay.
    ///
    /// # Errors
    /// The system's.
    pub fn prune(&self, keep: usize) -> Result<Vec<PathBuf>, CheckpointError> {
        let mut listed = self.list()?;
        listed.retain(|(_, path)| path.join(manifest::NAME).symlink_metadata().is_ok());
        let (kept, mut old) = listed.split_at(keep.max(1).min(listed.len()));
        let opens = |(_, path): &(u64, PathBuf)| Checkpoint::open(path).is_ok();
        let spared = if old.is_empty() || kept.iter().any(opens) { None } else { old.iter().position(opens) };
        let mut removed = Vec::new();
        while let Some((first, rest)) = old.split_first() {
            if spared != Some(listed.len() - kept.len() - old.len()) {
                self.remove(&first.1)?;
                removed.push(first.1.clone());
            }
            old = rest;
        }
        Ok(removed)
    }

    /// Under another name first: what is left of it after a crash is then no checkpoint.
    fn remove(&self, path: &Path) -> Result<(), CheckpointError> {
        let mut name = path.as_os_str().to_owned();
        name.push(".removed");
        name.push(PARTIAL);
        let doomed = PathBuf::from(name);
        disk::remove_folder(&doomed)?;
        match fs::rename(path, &doomed) {
            // Another process has removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            renamed => renamed.map_err(CheckpointError::io("remove", path))?,
        }
        quadrille_files::sync_folder(&self.path).map_err(CheckpointError::io("remove", path))?;
        disk::remove_folder(&doomed)
    }
}

/// An error of the checkpoint at `path`, with the one to fall back on where it is one of a run's.
pub(crate) fn unusable(path: &Path, error: CheckpointError) -> CheckpointError {
    let folder = path.parent().map(Folder::new);
    let listed = folder.and_then(|folder| folder.list().ok()).unwrap_or_default();
    let earlier = listed.iter().map(|(_, path)| path.as_path()).skip_while(|listed| *listed != path).skip(1);
    let previous = earlier.into_iter().find(|path| Checkpoint::open(path).is_ok()).map(Path::to_path_buf);
    CheckpointError::Unusable { path: path.to_path_buf(), previous, source: Box::new(error) }
}
