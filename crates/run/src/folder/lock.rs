//! One run at a time writes a folder.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

use quadrille_checkpoint::Folder;

use crate::{Refusal, RunError};

/// Held as long as the run lasts. The system gives it back when the process ends, however it ends.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Locks the run whose checkpoints these are: what is unfinished among them may be what it is writing.
    ///
    /// # Errors
    /// As [`Self::of`]; checkpoints of no run.
    pub fn of_checkpoints(folder: &Folder) -> Result<Self, RunError> {
        let path = folder.path();
        let real = path.canonicalize().ok();
        match real.as_deref().and_then(Path::parent).filter(|run| run.join("run.json").is_file()) {
            Some(run) => Self::of(run),
            None => Err(Refusal::new(format!(
                "`checkpoints.partial`: {} are no checkpoints of a run (there is no run.json beside them), and nothing says \
                 whether their writer is still at work; remove the folders step-….partial yourself",
                path.display()
            ))
            .into()),
        }
    }

    /// Locks a folder that exists.
    ///
    /// # Errors
    /// Another process holds it; the system's.
    pub fn of(folder: &Path) -> Result<Self, RunError> {
        let path = folder.join(super::LOCK);
        let failure = |error| Refusal::new(format!("cannot lock {}: {error}", path.display()));
        let mut file =
            OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path).map_err(failure)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::Error(error)) => return Err(failure(error).into()),
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // Only for the message.
                let _ = file.take(32).read_to_string(&mut holder);
                let holder = if holder.trim().is_empty() { "unknown" } else { holder.trim() };
                return Err(Refusal::new(format!(
                    "another run writes {} (process {holder}); wait for it, or name another folder",
                    folder.display()
                ))
                .into());
            }
        }
        let written =
            file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
        written.map_err(failure)?;
        Ok(Self { _file: file })
    }
}
