//! Every byte of checkpoints, held against checksums.

use quadrille_checkpoint::{Checkpoint, CheckpointError, Folder, Verdict};
use quadrille_report::checkpoint::{verdicts_document, verdicts_text};

use super::VerifyArguments;
use crate::failure::Failure;
use crate::output::{print_json, print_text};

/// Prints what was found; damage is a failure, after all checkpoints have been read.
pub fn run(arguments: &VerifyArguments) -> Result<(), Failure> {
    let verdicts = verdicts(arguments)?;
    if arguments.json {
        print_json(&verdicts_document(&verdicts))?;
    } else {
        print_text(&verdicts_text(&verdicts))?;
    }
    match verdicts.iter().filter(|verdict| !verdict.is_sound()).count() {
        0 => Ok(()),
        damaged => Err(Failure::run(format!("{damaged} of {} checkpoint(s) are damaged", verdicts.len()))),
    }
}

fn verdicts(arguments: &VerifyArguments) -> Result<Vec<Verdict>, Failure> {
    if !arguments.all {
        return match Checkpoint::find(&arguments.folder) {
            Ok(checkpoint) => Ok(vec![Verdict::of(&checkpoint)]),
            // What is no checkpoint cannot be a damaged one.
            Err(error @ (CheckpointError::Foreign { .. } | CheckpointError::Io { .. })) => Err(error.into()),
            Err(error) => Err(Failure::Run(error.into())),
        };
    }
    let listed = Folder::of(&arguments.folder).list()?;
    if listed.is_empty() {
        let folder = arguments.folder.display();
        return Err(Failure::usage(format!(
            "--all: {folder} has no checkpoints step-...; name their folder or a run's"
        )));
    }
    Ok(listed.into_iter().map(|(_, path)| Verdict::at(path)).collect())
}
