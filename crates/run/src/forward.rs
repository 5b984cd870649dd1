//! What evaluations and generations share: weights, and the ranks that hold them.

use std::sync::Arc;

use quadrille_checkpoint::Checkpoint;
use quadrille_engine::{ForwardOptions, Weights};
use quadrille_spec::{Layout, Model, RealType};

/// The weights of a checkpoint, and the ranks that run its model forward.
pub struct Forward {
    checkpoint: Arc<Checkpoint>,
    layout: Layout,
    options: ForwardOptions,
}

impl Forward {
    /// The model of a checkpoint in a layout of it. What the checkpoint holds in f64 is rounded where the layout is of less.
    pub fn new(checkpoint: Checkpoint, layout: Layout, options: ForwardOptions) -> Self {
        let rounds = checkpoint.about().dtype == RealType::F64 && layout.dtype.real() == RealType::F32;
        let checkpoint = Arc::new(if rounds { checkpoint.rounding() } else { checkpoint });
        Self { checkpoint, layout, options }
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

    /// Where ranks take their weights from.
    pub(crate) fn weights(&self) -> Weights {
        Weights::Checkpoint(Arc::clone(&self.checkpoint))
    }
}
