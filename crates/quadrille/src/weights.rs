//! What `eval` and `generate` share: the checkpoint, the ranks that read it, and how they run.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use quadrille_checkpoint::Checkpoint;
use quadrille_engine::{ForwardOptions, Weights};
use quadrille_spec::{Collectives, ElementType, Layout, Model, RealType};

use crate::arguments::RunArguments;
use crate::failure::Failure;
use crate::launch::Launch;
use crate::layout_arguments::LayoutArguments;
use crate::settings::{self, Defaults};

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
}

/// How ranks run that do not train.
#[derive(Debug, Args)]
pub struct RankArguments {
    /// Threads of each rank [default: cores / ranks, at least one]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Seconds after which a collective or a message that waits for a rank stops the job
    #[arg(long, value_name = "SECONDS", default_value_t = 300.0)]
    pub timeout: f64,
    /// How collectives run: ring, recursive, hierarchical, native or auto, as in `train`
    #[arg(long, value_name = "ALGORITHM", default_value = "auto")]
    pub collectives: Collectives,
}

/// Weights, and the layout and options of the ranks that hold them.
pub struct Opened {
    /// What is read.
    pub checkpoint: Arc<Checkpoint>,
    /// A layout of the model; one rank unless flags say otherwise.
    pub layout: Layout,
    /// How ranks run.
    pub options: ForwardOptions,
}

impl Opened {
    /// Opens the checkpoint and holds the flags against its model.
    ///
    /// # Errors
    /// A path without a checkpoint, a damaged one, a layout that the model does not allow.
    pub fn new(arguments: &WeightsArguments, launch: &Launch) -> Result<Self, Failure> {
        let checkpoint = Checkpoint::find(&arguments.from).map_err(|error| Failure::Usage(error.into()))?;
        let about = checkpoint.about();
        let defaults =
            launch.defaults(&Defaults { ranks: 1, dtype: about.dtype.into(), per_node: None, batch: None })?;
        let mut typed = settings::typed(&arguments.layout, arguments.dtype, &defaults)?;
        typed.request.seq_len = typed.request.seq_len.or(Some(about.layout.seq_len));
        let layout = settings::resolve(&typed, &about.model)?;
        launch.check_ranks(layout.grid.ranks())?;
        let RankArguments { threads, timeout, collectives } = arguments.run;
        let run =
            RunArguments { seed: None, lr: None, threads, timeout: Some(timeout), collectives: Some(collectives) };
        let options = ForwardOptions {
            threads: settings::threads(&run, launch, layout.grid.ranks())?,
            timeout: settings::timeout(&run)?,
            collectives: launch.collectives(&run, &typed.cluster),
            world: launch.world.clone(),
        };
        let rounds = about.dtype == RealType::F64 && layout.dtype.real() == RealType::F32;
        let checkpoint = Arc::new(if rounds { checkpoint.rounding() } else { checkpoint });
        Ok(Self { checkpoint, layout, options })
    }

    /// The model of the checkpoint.
    pub fn model(&self) -> &Model {
        &self.checkpoint.about().model
    }

    /// Where ranks take their weights from.
    pub fn weights(&self) -> Weights {
        Weights::Checkpoint(Arc::clone(&self.checkpoint))
    }
}
