//! What evaluations and generations share: weights, and the ranks that hold them.

use std::sync::Arc;

use quadrille_checkpoint::Checkpoint;
use quadrille_engine::{Device, ForwardOptions, Processor, Weights};
use quadrille_spec::{Collectives, Layout, Model, RealType};

use crate::{LayoutDefaults, Processes, RunError, SaidLayout};

/// The weights of a checkpoint, and the ranks that run its model forward.
pub struct Forward {
    checkpoint: Arc<Checkpoint>,
    layout: Layout,
    options: ForwardOptions,
    device: &'static dyn Device,
}

impl Forward {
    /// The model of a checkpoint in a layout of it, on the processor. What the checkpoint holds in f64 is rounded where the layout is of less.
    pub fn new(checkpoint: Checkpoint, layout: Layout, options: ForwardOptions) -> Self {
        let rounds = checkpoint.about().dtype == RealType::F64 && layout.dtype.real() == RealType::F32;
        let checkpoint = Arc::new(if rounds { checkpoint.rounding() } else { checkpoint });
        Self { checkpoint, layout, options, device: &Processor }
    }

    /// The same of what is said of a layout, one rank where nothing is; with so many threads for each rank, or as many as its
    /// share of the cores, and a time limit of so many seconds.
    ///
    /// # Errors
    /// A layout that the model does not allow; other ranks than there are processes.
    pub fn open(
        checkpoint: Checkpoint,
        said: &SaidLayout,
        threads: Option<usize>,
        timeout: f64,
        collectives: Collectives,
        processes: &Processes,
    ) -> Result<Self, RunError> {
        let about = checkpoint.about();
        let usual = LayoutDefaults { ranks: 1, dtype: about.dtype.into(), ..LayoutDefaults::USUAL };
        let mut open = said.open(&processes.defaults(&usual)?)?;
        open.request.seq_len = open.request.seq_len.or(Some(about.layout.seq_len));
        let layout = open.resolve(&about.model)?;
        processes.check_ranks(layout.grid.ranks())?;
        let options = ForwardOptions {
            threads: processes.threads(threads, layout.grid.ranks())?,
            timeout: crate::timeout(timeout)?,
            collectives: processes.collectives(collectives, &open.cluster.tiers),
            world: processes.world.clone(),
        };
        Ok(Self { device: processes.device, ..Self::new(checkpoint, layout, options) })
    }

    /// What is read.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// The model of the checkpoint.
    pub fn model(&self) -> &Model {
        &self.checkpoint.about().model
    }

    /// The layout of the ranks.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// How ranks run.
    pub fn options(&self) -> &ForwardOptions {
        &self.options
    }

    /// What ranks compute on.
    pub(crate) fn device(&self) -> &'static dyn Device {
        self.device
    }

    /// Where ranks take their weights from.
    pub(crate) fn weights(&self) -> Weights {
        Weights::Checkpoint(Arc::clone(&self.checkpoint))
    }
}
