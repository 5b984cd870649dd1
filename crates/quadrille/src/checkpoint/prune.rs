//! Fewer checkpoints.

use std::path::{Path, PathBuf};

use quadrille_checkpoint::Folder;
use quadrille_run::Lock;
use serde_json::json;

use super::{PruneArguments, failed};
use crate::failure::Failure;
use crate::output::{print_json, print_text};

/// Removes them and lists what is gone and what is kept.
pub fn run(arguments: &PruneArguments) -> Result<(), Failure> {
    let folder = Folder::of(&arguments.folder);
    let unfinished = folder.partial()?;
    if folder.list()?.is_empty() && unfinished.is_empty() {
        let path = arguments.folder.display();
        return Err(Failure::usage(format!("{path} has no checkpoints step-...; name their folder or a run's")));
    }
    // Unfinished ones may be those that someone is writing: a run's lock says whether it is.
    let _lock = match (arguments.partial, run_of(&folder)) {
        (false, _) => None,
        (true, Some(run)) => Some(Lock::of(&run)?),
        (true, None) => {
            let path = folder.path().display();
            return Err(Failure::usage(format!(
                "--partial: {path} are no checkpoints of a run (there is no run.json beside them), and nothing says \
                 whether their writer is still at work; remove the folders step-….partial yourself"
            )));
        }
    };
    let mut removed = folder.prune(arguments.keep as usize).map_err(failed)?;
    if arguments.partial {
        removed.extend(folder.clean().map_err(failed)?);
    }
    let kept: Vec<_> = folder.list()?.into_iter().map(|(_, path)| path).collect();
    let unfinished = folder.partial()?;
    if arguments.json {
        return print_json(&json!({ "removed": removed, "kept": kept, "unfinished": unfinished }));
    }
    let parts = [("removed", &removed), ("kept", &kept), ("unfinished, kept without --partial", &unfinished)];
    let lines = parts.iter().flat_map(|(what, paths)| paths.iter().map(move |path| (what, path.display())));
    print_text(&lines.map(|(what, path)| format!("{what}: {path}\n")).collect::<String>())
}

/// The folder of the run whose checkpoints these are.
fn run_of(folder: &Folder) -> Option<PathBuf> {
    let path = folder.path().canonicalize().ok()?;
    path.parent().filter(|run| run.join("run.json").is_file()).map(Path::to_path_buf)
}
