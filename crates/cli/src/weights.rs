//! What `eval` and `generate` share: the checkpoint, the ranks that read it, and how they run.

use std::path::PathBuf;

use clap::Args;
use quadrille_checkpoint::Checkpoint;
use quadrille_run::Forward;
use quadrille_spec::{Collectives, ElementType};

use crate::device::DeviceArguments;
use crate::failure::Failure;
use crate::launch::Launch;
use crate::layout_arguments::LayoutArguments;
use crate::parse::{real, whole};

/// A checkpoint and the ranks that hold it.
#[derive(Debug, Args)]
pub struct WeightsArguments {
    /// A checkpoint, a folder of checkpoints or a run's folder: of several the newest
    #[arg(long, value_name = "DIR")]
    pub from: PathBuf,
    /// Type of the values: f32, f64, bf16 or f16; what the checkpoint holds in more digits is rounded [default: the
    /// checkpoint's]
    #[arg(long, value_name = "TYPE")]
    pub dtype: Option<ElementType>,
    #[command(flatten, next_help_heading = "Layout")]
    pub layout: LayoutArguments,
    #[command(flatten, next_help_heading = "Run")]
    pub run: RankArguments,
    #[command(flatten, next_help_heading = "Run")]
    pub device: DeviceArguments,
}

/// How ranks run that do not train.
#[derive(Debug, Args)]
pub struct RankArguments {
    /// Threads of each rank [default: cores / ranks, at least one]
    #[arg(long, value_name = "N", value_parser = whole::<usize>(..))]
    pub threads: Option<usize>,
    /// Seconds after which a collective or a message that waits for a rank stops the job
    #[arg(long, value_name = "SECONDS", default_value_t = 300.0, value_parser = real)]
    pub timeout: f64,
    /// How collectives run: ring, recursive, hierarchical, native or auto, as in `train`
    #[arg(long, value_name = "ALGORITHM", default_value = "auto")]
    pub collectives: Collectives,
}

/// Opens the checkpoint and holds the flags against its model; one rank unless they say otherwise.
///
/// # Errors
/// A path without a checkpoint, a damaged one, a layout that the model does not allow.
pub fn forward(arguments: &WeightsArguments, launch: &Launch) -> Result<Forward, Failure> {
    let checkpoint = Checkpoint::find(&arguments.from).map_err(|error| Failure::Usage(error.into()))?;
    let RankArguments { threads, timeout, collectives } = arguments.run;
    let said = arguments.layout.said(arguments.dtype);
    Ok(Forward::open(checkpoint, &said, threads, timeout, collectives, launch)?)
}
