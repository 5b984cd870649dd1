//! What is known of a run, or of a checkpoint, for who looks at its layout without running it.

use std::path::Path;

use quadrille_checkpoint::Checkpoint;
use quadrille_cost::native::Framework;
use quadrille_spec::{AxisOrder, Cluster, Field, Layout, LayoutFile, Model};
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
    /// Whether the folder is a run's, and no checkpoint.
    pub is_run: bool,
    /// Whether weights are pruned.
    pub is_pruned: bool,
    /// How many elements of a tile ranks have room for in that layout, by tensor that is pruned, where a run says so.
    pub kept: KeptCounts,
}

/// A layout of which nobody tells what was chosen: what would follow from the rest, all the same, counts as not chosen, but for the grid.
fn following(layout: Layout, model: &Model) -> Result<LayoutSpec, RunError> {
    let cluster = Cluster::preset(LayoutSpec::CLUSTER)?;
    let mut spec = LayoutSpec::of(layout);
    for field in LayoutSpec::MAY_FOLLOW.into_iter().filter(|field| *field != Field::Grid) {
        let rest = spec.made().without(field);
        let open = OpenLayout::new(rest, None, None, &LayoutDefaults::USUAL, cluster.clone());
        let followed = open.and_then(|open| open.resolve(model));
        if followed.is_ok_and(|followed| followed == spec.layout) {
            spec.open.push(field);
        }
    }
    Ok(spec)
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
        let decided = Some(description.spec.layout).filter(|decided| decided.layout == layout);
        let kept = description.known.kept;
        let layout = decided.map_or_else(|| following(layout, &model), Ok)?;
        Ok(Self { model, layout, is_run: true, is_pruned: !kept.is_empty(), kept })
    }

    fn of_checkpoint(checkpoint: &Checkpoint) -> Result<Self, RunError> {
        let about = checkpoint.about();
        let is_pruned = (0..checkpoint.tensors().len()).any(|tensor| checkpoint.is_pruned(tensor));
        let layout = following(about.layout.clone(), &about.model)?;
        Ok(Self { model: about.model.clone(), layout, is_run: false, is_pruned, kept: KeptCounts::new() })
    }

    /// The layout with what is said over it, for this model and what trains it, against which it is not yet held. A cluster alone moves
    /// it there as it is. Of what nobody had chosen the grid stays, unless a number of ranks is said, and the rest follows from what is
    /// said. Types of values and gradients, the padding of vocabularies and the usual order of ranks are those of this program's engine:
    /// another framework has its own.
    ///
    /// # Errors
    /// As [`SaidLayout::open`]; pruned weights, and a framework that trains none.
    pub fn open(&self, said: &SaidLayout, model: &Model, framework: &Framework) -> Result<OpenLayout, RunError> {
        let before = &self.layout;
        let changes = said.says_layout() || *model != self.model;
        let kept = if changes && said.ranks.is_none() {
            before.made().with(Field::Grid, Field::Grid.of(&before.layout))
        } else if changes {
            before.made()
        } else if said.cluster.is_some() && before.open.contains(&Field::PerNode) {
            before.all().without(Field::PerNode)
        } else {
            before.all()
        };
        let usual = LayoutDefaults::after(&before.layout);
        if framework.is_own() {
            return said.open_after(before, kept, &usual);
        }
        if self.is_pruned {
            let rule = format!(
                ": the weights are pruned, and {} trains no pruned models; give `search.framework` quadrille",
                framework.name
            );
            return Err(Refusal::of(Setting::From).text(rule).into());
        }
        let is_usual = before.layout.grid.order() == AxisOrder::USUAL;
        let kept = [Field::Dtype, Field::Gradients, Field::VocabMultiple]
            .into_iter()
            .chain(is_usual.then_some(Field::Order))
            .fold(kept, LayoutFile::without);
        let vocab_multiple = framework.vocab_multiple;
        let order = framework.order();
        let dtype = LayoutDefaults::USUAL.dtype;
        said.open_after(before, kept, &LayoutDefaults { dtype, vocab_multiple, order, ..usual })
    }

    /// How many elements of a tile ranks have room for, if a program of this model and layout is the run's.
    ///
    /// # Errors
    /// It is another one of a pruned model: what its tiles keep nobody has counted.
    pub fn kept(&self, model: &Model, layout: &Layout) -> Result<&KeptCounts, Refusal> {
        let is_own = (model, layout) == (&self.model, &self.layout.layout);
        let is_counted = is_own && !self.kept.is_empty();
        if self.is_pruned && !is_counted {
            Err(Refusal::of(Setting::From).text(
                ": the weights are pruned, and how many of them ranks keep is known of a run in its own layout alone; say which part is pruned, \
                 e.g. `search.sparsity` 0.9",
            ))
        } else {
            Ok(&self.kept)
        }
    }
}
