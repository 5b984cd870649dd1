//! What is known of a run, or of a checkpoint, for who looks at its layout without running it.

use std::path::Path;

use quadrille_checkpoint::Checkpoint;
use quadrille_spec::{Field, Layout, LayoutFile, Model};
use quadrille_step::KeptCounts;

use crate::folder::DESCRIPTION;
use crate::refusal::{Refusal, Setting};
use crate::{Description, LayoutDefaults, LayoutSpec, OpenLayout, RunError, SaidLayout};

/// The model and the layout that a folder tells of.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownRun {
    /// What is trained.
    pub model: Model,
    /// How its last part is spread over ranks, or how the run was that wrote the checkpoint.
    pub layout: LayoutSpec,
    /// Whether weights are pruned.
    pub is_pruned: bool,
    /// How many elements of a tile ranks have room for in that layout, by tensor that is pruned, where a run says so.
    pub kept: KeptCounts,
}

impl KnownRun {
    /// Of a run's folder; else of a checkpoint, or the newest in a folder of some.
    ///
    /// # Errors
    /// A folder that is neither; files that say what no run writes.
    pub fn read(folder: &Path) -> Result<Self, RunError> {
        // A link to nothing is a run's that is damaged, and no checkpoint's.
        if folder.join(DESCRIPTION).symlink_metadata().is_err() {
            return Self::of_checkpoint(&Checkpoint::find(folder)?);
        }
        let description = Description::read(folder)?;
        let broken = |reason| Refusal::new(format!("{}: {reason}", folder.join(DESCRIPTION).display()));
        let model = description.model().map_err(broken)?;
        let layout = description.layout(&model).map_err(broken)?;
        // What nobody has chosen, and the cluster, are said of the layout that decides the run.
        let decided = description.spec.map(|spec| spec.layout).filter(|decided| decided.layout == layout);
        let kept = description.known.kept;
        Ok(Self { model, layout: decided.unwrap_or(LayoutSpec::of(layout)), is_pruned: !kept.is_empty(), kept })
    }

    fn of_checkpoint(checkpoint: &Checkpoint) -> Result<Self, RunError> {
        let about = checkpoint.about();
        let is_pruned = (0..checkpoint.tensors().len()).any(|tensor| checkpoint.is_pruned(tensor));
        let (model, layout) = (about.model.clone(), LayoutSpec::of(about.layout.clone()));
        Ok(Self { model, layout, is_pruned, kept: KeptCounts::new() })
    }

    /// The layout with what is said over it, for this model, against which it is not yet held. A cluster alone moves it there as it is.
    /// Of what nobody had chosen the grid stays, unless another number of ranks is said, and the rest follows from what is said.
    ///
    /// # Errors
    /// As [`SaidLayout::open`].
    pub fn open(&self, said: &SaidLayout, model: &Model) -> Result<OpenLayout, RunError> {
        let LayoutSpec { layout, open, cluster } = &self.layout;
        let follows = |field| open.contains(&field);
        let kept = match (&said.file, said.says_layout() || *model != self.model) {
            // A whole layout in a file leaves nothing of the one before but its batch.
            (Some(_), _) => LayoutFile::default(),
            (None, true) if said.ranks.is_none() => self.layout.made().with(Field::Grid, Field::Grid.of(layout)),
            (None, true) => self.layout.made(),
            (None, false) if said.cluster.is_some() && follows(Field::PerNode) => {
                self.layout.all().without(Field::PerNode)
            }
            (None, false) => self.layout.all(),
        };
        let batch = Some([layout.global_batch, layout.seq_len]);
        let ranks = layout.grid.ranks();
        let usual = LayoutDefaults { ranks, dtype: layout.dtype, batch, ..LayoutDefaults::USUAL };
        // Gradients of the type before may be none of another type of values.
        let kept = if said.dtype.is_some() { kept.without(Field::Gradients) } else { kept };
        said.open_over(&usual, said.cluster.as_deref().unwrap_or(cluster), &kept)
    }

    /// How many elements of a tile ranks have room for, if a program of this model and layout is the run's.
    ///
    /// # Errors
    /// It is another one of a pruned model: what its tiles keep nobody has counted.
    pub fn kept(&self, model: &Model, layout: &Layout) -> Result<&KeptCounts, Refusal> {
        let is_own = (model, layout) == (&self.model, &self.layout.layout);
        let is_counted = is_own && !self.kept.is_empty();
        match self.is_pruned && !is_counted {
            false => Ok(&self.kept),
            true => Err(Refusal::of(Setting::From).text(
                ": the weights are pruned, and how many of them ranks keep is known of a run in its own layout alone; say which part is pruned, \
                 e.g. `search.sparsity` 0.9",
            )),
        }
    }
}
