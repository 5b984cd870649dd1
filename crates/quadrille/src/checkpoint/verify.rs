//! Every byte of checkpoints, held against checksums.

use std::path::PathBuf;

use quadrille_checkpoint::{Checkpoint, CheckpointError, Folder, Summary};
use serde_json::{Value, json};

use super::VerifyArguments;
use crate::failure::Failure;
use crate::output::{bytes, print_json, print_text};

/// A checkpoint, what of it is sound and what is not.
struct Verdict {
    path: PathBuf,
    summary: Option<Summary>,
    faults: Vec<String>,
}

/// Prints what was found; damage is a failure, after all checkpoints have been read.
pub fn run(arguments: &VerifyArguments) -> Result<(), Failure> {
    let verdicts = verdicts(arguments)?;
    if arguments.json {
        print_json(&json!({ "checkpoints": verdicts.iter().map(document).collect::<Vec<_>>() }))?;
    } else {
        print_text(&verdicts.iter().map(text).collect::<String>())?;
    }
    match verdicts.iter().filter(|verdict| !verdict.faults.is_empty()).count() {
        0 => Ok(()),
        damaged => Err(Failure::run(format!("{damaged} of {} checkpoint(s) are damaged", verdicts.len()))),
    }
}

fn verdicts(arguments: &VerifyArguments) -> Result<Vec<Verdict>, Failure> {
    if !arguments.all {
        return match Checkpoint::find(&arguments.folder) {
            Ok(checkpoint) => Ok(vec![verdict(&checkpoint)]),
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
    let each = listed.into_iter().map(|(_, path)| match Checkpoint::open(&path) {
        Ok(checkpoint) => verdict(&checkpoint),
        Err(error) => Verdict { path, summary: None, faults: vec![told(error)] },
    });
    Ok(each.collect())
}

fn verdict(checkpoint: &Checkpoint) -> Verdict {
    let (summary, faults) = checkpoint.faults();
    let faults = faults.into_iter().map(told).collect();
    Verdict { path: checkpoint.path().to_path_buf(), summary: Some(summary), faults }
}

/// An error with its causes.
fn told(error: CheckpointError) -> String {
    format!("{:#}", anyhow::Error::from(error))
}

fn document(verdict: &Verdict) -> Value {
    json!({
        "path": verdict.path,
        "sound": verdict.faults.is_empty(),
        "summary": verdict.summary,
        "faults": verdict.faults,
    })
}

fn text(verdict: &Verdict) -> String {
    let mut text = format!("{}\n", verdict.path.display());
    let mut tell = |line: String| text += &format!("  {line}\n");
    if let Some(Summary { tensors, files, tiles, bytes: size, not_finite }) = &verdict.summary {
        let size = bytes(*size);
        let sound = if verdict.faults.is_empty() { "all sound" } else { "sound of them" };
        tell(format!(
            "{sound}: {tiles} tiles, {size}; {tensors} tensors in {files} file(s), each number in exactly one tile"
        ));
        for found in not_finite {
            tell(format!("not finite: {} numbers of {} ({})", found.numbers, found.tensor, found.quantity));
        }
    }
    verdict.faults.iter().for_each(|fault| tell(format!("damaged: {fault}")));
    text
}
