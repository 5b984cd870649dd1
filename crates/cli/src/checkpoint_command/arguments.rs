//! The flags of `quadrille checkpoint` and their help.

use std::path::PathBuf;

use crate::parse::whole;
use clap::{Args, Subcommand};
use quadrille_spec::RealType;

const EXAMPLES: &str = "Examples:
  quadrille checkpoint info runs/a                               the newest checkpoint of a run
  quadrille checkpoint info runs/a/checkpoints/step-000000000400 --json
  quadrille checkpoint verify runs/a --all                       every byte of every checkpoint
  quadrille checkpoint merge runs/a --out model --weights-only   one file of whole tensors
  quadrille checkpoint prune runs/a --keep 3

DIR is a checkpoint (a folder with manifest.json), a folder of checkpoints (step-...) or a
run's folder, which has one called checkpoints. Of several checkpoints the newest counts.";

/// Look at checkpoints, verify them, merge their tiles, remove old ones.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CheckpointArguments {
    #[command(subcommand)]
    pub task: Task,
}

#[derive(Debug, Subcommand)]
pub enum Task {
    /// Print what a checkpoint is of, its tensors and its files
    Info(InfoArguments),
    /// Read every byte and hold it against its checksum; count numbers that are not finite. Exit code 1 if there is damage
    Verify(VerifyArguments),
    /// Write a checkpoint as one file of whole tensors, which any tool for safetensors reads, and any run
    Merge(MergeArguments),
    /// Remove all but the newest checkpoints of a run
    Prune(PruneArguments),
}

#[derive(Debug, Args)]
pub struct InfoArguments {
    /// A checkpoint, a folder of checkpoints or a run's folder
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct VerifyArguments {
    /// A checkpoint, a folder of checkpoints or a run's folder
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Verify all checkpoints of the folder, newest first
    #[arg(long)]
    pub all: bool,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct MergeArguments {
    /// A checkpoint, a folder of checkpoints or a run's folder
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// The folder to be written; it must not exist
    #[arg(long, value_name = "FOLDER")]
    pub out: PathBuf,
    /// Type of the written numbers, f32 or f64; f32 rounds what is f64 [default: as they are]
    #[arg(long, value_name = "TYPE")]
    pub dtype: Option<RealType>,
    /// Leave out the optimizer's moments: a third of the size, and no run goes on from it
    #[arg(long)]
    pub weights_only: bool,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct PruneArguments {
    /// A folder of checkpoints or a run's folder
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// How many of the newest are kept, at least 1; where none of them can be opened, the newest that can be is kept too
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..))]
    pub keep: u32,
    /// Remove unfinished checkpoints of a run as well; refused while it is writing
    #[arg(long)]
    pub partial: bool,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}
