//! `quadrille checkpoint`: what checkpoints hold, whether they are whole, one file of many, and fewer of them.

pub mod arguments;

use quadrille_checkpoint::{Checkpoint, CheckpointError, Folder, Merge, Verdict, merge};
use quadrille_report::checkpoint::{CheckpointReport, KeptCheckpoints, MergeReport, VerdictsReport};
use quadrille_run::{Lock, carry_companions, check_companions_of};
use quadrille_spec::counted;

use self::arguments::{CheckpointArguments, InfoArguments, MergeArguments, PruneArguments, Task, VerifyArguments};
use crate::bars;
use crate::failure::Failure;
use crate::flags;
use crate::output::{print_json, print_text};

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
    let report = CheckpointReport::new(&checkpoint)?;
    if arguments.json { print_json(&report) } else { print_text(report.text()) }
}

/// Prints what was found of every byte; damage is a failure, after all checkpoints have been read.
fn verify(arguments: &VerifyArguments) -> Result<(), Failure> {
    let verdicts = bars::waiting("reading every byte", || verdicts(arguments))?;
    let report = VerdictsReport::new(&verdicts);
    if arguments.json {
        print_json(&report)?;
    } else {
        print_text(report.text())?;
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
    let report = MergeReport::new(&from, &written);
    if arguments.json { print_json(&report) } else { print_text(report.text()) }
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
    let report = KeptCheckpoints::new(&removed, &kept, &unfinished);
    if arguments.json { print_json(&report) } else { print_text(flags::spelled(&report.text())) }
}
