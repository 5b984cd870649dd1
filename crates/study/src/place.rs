//! Where a run's weights go from training to generation.

use std::fs;
use std::path::{Path, PathBuf};

use quadrille_checkpoint::Folder;
use quadrille_files::reason;
use quadrille_run::Processes;
use tempfile::TempDir;

use crate::refusal::{Refusal, Setting};
use crate::{StudyError, StudySpec};

/// The folder of a run's checkpoint.
pub enum Place {
    /// Removed at the end.
    Temporary(TempDir),
    Kept(PathBuf),
}

impl Place {
    /// Of the run of that name.
    pub fn new(spec: &StudySpec, name: &str, processes: &Processes) -> Result<Self, StudyError> {
        let Some(out) = &spec.out else {
            let folder = tempfile::Builder::new().prefix("quadrille-memorize-").tempdir();
            return folder.map(Place::Temporary).map_err(|error| {
                let rule = format!("cannot make a folder for a checkpoint: {error}; name one with ");
                StudyError::NoFolder(Refusal::new(rule).name(Setting::Out))
            });
        };
        let path = out.join(name);
        processes.first_then_others(|| {
            fs::create_dir_all(&path).map_err(|error| {
                let why = format!(" {}: {}", path.display(), reason(&error));
                StudyError::from(Refusal::new("cannot write ").name(Setting::Out).text(why))
            })
        })?;
        Ok(Self::Kept(path))
    }

    pub fn path(&self) -> &Path {
        match self {
            Self::Temporary(folder) => folder.path(),
            Self::Kept(path) => path,
        }
    }
}

/// Refuses a folder that holds an earlier study, and none where processes need one.
pub fn check(spec: &StudySpec, processes: &Processes) -> Result<(), StudyError> {
    let Some(out) = &spec.out else {
        return match processes.world {
            None => Ok(()),
            Some(_) => Err(Refusal::new(
                "weights go from training to generation through a checkpoint, which all processes read; name a folder that \
                 they share with ",
            )
            .name(Setting::Out)
            .into()),
        };
    };
    for name in ["plain", "goldfish"] {
        let path = out.join(name);
        if !Folder::new(&path).list()?.is_empty() {
            let holds =
                format!(" {}: {} holds checkpoints already; name another folder", out.display(), path.display());
            return Err(Refusal::of(Setting::Out).text(holds).into());
        }
    }
    Ok(())
}
