//! `quadrille checkpoint`: what checkpoints hold, whether they are whole, one file of many, and fewer of them.

pub mod arguments;

use quadrille_checkpoint::{Checkpoint, CheckpointError, Folder, Merge, Verdict, merge};
use quadrille_report::checkpoint::{contents_document, contents_text, verdicts_document, verdicts_text};
use quadrille_run::{Lock, carry_companions, check_companions_of};
use quadrille_spec::counted;
use serde_json::json;

use self::arguments::{CheckpointArguments, InfoArguments, MergeArguments, PruneArguments, Task, VerifyArguments};
use crate::bars;
use crate::failure::Failure;
use crate::output::{bytes, print_json, print_text};

/// Runs one of the tasks.
pub fn run(arguments: &CheckpointArguments) -> Result<(), Failure> {
    match &arguments.task {
        Task::Info(arguments) => info(arguments),
        Task::Verify(arguments) => verify(arguments),
        Task::Merge(arguments) => merge_tiles(arguments),
        Task::Prune(arguments) => prune(arguments),
    }
}

/// Prints what a checkpoint is of, its tensors and its files.
fn info(arguments: &InfoArguments) -> Result<(), Failure> {
    let checkpoint = Checkpoint::find(&arguments.folder)?;
    if arguments.json {
        return print_json(&contents_document(&checkpoint)?);
    }
    print_text(contents_text(&checkpoint)?)
}

/// Prints what was found of every byte; damage is a failure, after all checkpoints have been read.
fn verify(arguments: &VerifyArguments) -> Result<(), Failure> {
    let verdicts = bars::waiting("reading every byte", || verdicts(arguments))?;
    if arguments.json {
        print_json(&verdicts_document(&verdicts))?;
    } else {
        print_text(verdicts_text(&verdicts))?;
    }
    match verdicts.iter().filter(|verdict| !verdict.is_sound()).count() {
        0 => Ok(()),
        damaged => Err(Failure::run(format!("{damaged} of {} damaged", counted(verdicts.len(), "checkpoint")))),
    }
}

fn verdicts(arguments: &VerifyArguments) -> Result<Vec<Verdict>, Failure> {
    let folder = &arguments.folder;
    if !arguments.all {
        return match Checkpoint::find(folder) {
            Ok(checkpoint) => Ok(vec![Verdict::of(&checkpoint)]),
            // What is no checkpoint cannot be a damaged one.
            Err(error @ (CheckpointError::Foreign { .. } | CheckpointError::Io { .. })) => Err(error.into()),
            Err(error) => Err(Failure::Run(error.into())),
        };
    }
    match Folder::of(folder).listed() {
        Ok(listed) => Ok(listed.into_iter().map(|(_, path)| Verdict::at(path)).collect()),
        Err(error @ CheckpointError::Empty(_)) => Err(Failure::usage(format!("--all: {error}"))),
        Err(error) => Err(error.into()),
    }
}

/// Writes a checkpoint as one file of whole tensors and says where.
fn merge_tiles(arguments: &MergeArguments) -> Result<(), Failure> {
    let source = Checkpoint::find(&arguments.folder)?;
    let from = source.path().to_path_buf();
    check_companions_of(&source, &arguments.out)?;
    let options = Merge { dtype: arguments.dtype, weights_only: arguments.weights_only };
    let merged = bars::waiting("merging", || merge(source, &arguments.out, options));
    let path = merged.map_err(Failure::of_checkpoints)?;
    carry_companions(&Checkpoint::find(&from)?, &path)?;
    let written = Checkpoint::open(&path).map_err(Failure::of_checkpoints)?;
    let tensors = written.tensors().len();
    let size = written.bytes();
    let dtype = written.about().dtype;
    if arguments.json {
        return print_json(&json!({ "from": from, "path": path, "tensors": tensors, "bytes": size, "dtype": dtype }));
    }
    let from = from.display();
    let path = path.display();
    print_text(format!("{from}: {tensors} whole tensors in {dtype}, {}, written to {path}\n", bytes(size)))
}

/// Removes old checkpoints and lists what is gone and what is kept.
fn prune(arguments: &PruneArguments) -> Result<(), Failure> {
    let folder = Folder::of(&arguments.folder);
    if folder.partial()?.is_empty() {
        folder.listed()?;
    }
    let _lock = arguments.partial.then(|| Lock::of_checkpoints(&folder)).transpose()?;
    let mut removed = folder.prune(arguments.keep as usize).map_err(Failure::of_checkpoints)?;
    if arguments.partial {
        removed.extend(folder.clean().map_err(Failure::of_checkpoints)?);
    }
    let kept: Vec<_> = folder.list()?.into_iter().map(|(_, path)| path).collect();
    let unfinished = folder.partial()?;
    if arguments.json {
        return print_json(&json!({ "removed": removed, "kept": kept, "unfinished": unfinished }));
    }
    let parts = [("removed", &removed), ("kept", &kept), ("unfinished, kept without --partial", &unfinished)];
    let lines = parts.iter().flat_map(|(what, paths)| paths.iter().map(move |path| (what, path.display())));
    print_text(lines.map(|(what, path)| format!("{what}: {path}\n")).collect::<String>())
}
