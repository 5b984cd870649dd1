//! Layouts of which not everything is said: the rest follows from what is, from the machine and from the number of ranks.

use quadrille_cost::native::Candidate;
use quadrille_plan::best;
use quadrille_plan::local::machine;
use quadrille_plan::native::check_node;
use quadrille_spec::{
    AxisOrder, Change, Cluster, ElementType, Field, FieldValue, Grid, Layout, LayoutFile, LayoutRequest, Model,
    Recompute, Remedy, SpecError,
};
use quadrille_step::least_interval;

use crate::refusal::{Refusal, Setting};
use crate::{LayoutSpec, RunError, processors};

/// What a layout has where nobody says otherwise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayoutDefaults {
    /// Ranks of an open grid.
    pub ranks: usize,
    /// Type of the values.
    pub dtype: ElementType,
    /// Ranks that share a node; `None`: as the cluster says.
    pub per_node: Option<usize>,
    /// Sequences in a step and tokens in a sequence, of a run that goes on; `None`: two sequences for each rank, as long as
    /// the model takes.
    pub batch: Option<[usize; 2]>,
    /// What each rank's rows of a vocabulary are a multiple of.
    pub vocab_multiple: usize,
    /// In which order ranks are numbered: that of the framework that runs the layout.
    pub order: AxisOrder,
}

impl LayoutDefaults {
    /// Eight ranks that compute in f32.
    pub const USUAL: Self = Self {
        ranks: 8,
        dtype: ElementType::F32,
        per_node: None,
        batch: None,
        vocab_multiple: 1,
        order: AxisOrder::USUAL,
    };

    /// What a run has where nothing of its layout is said anew: as many ranks, the type of values, the batch.
    pub(crate) fn after(layout: &Layout) -> Self {
        let batch = Some([layout.global_batch, layout.seq_len]);
        Self { ranks: layout.grid.ranks(), dtype: layout.dtype, batch, ..Self::USUAL }
    }
}

/// What is said of a layout, and where it is to run; not yet held against a model.
///
/// ```
/// use quadrille_run::{LayoutDefaults, OpenLayout};
/// use quadrille_spec::{Cluster, LayoutFile, Model};
///
/// // No grid is said: it is the one of four ranks that steps fastest, by the prices of programs.
/// let said = LayoutFile::from_toml("global_batch = 8\nrecompute = \"full\"")?;
/// let open = OpenLayout::new(said, Some(4), None, &LayoutDefaults::USUAL, Cluster::preset("local")?)?;
/// let layout = open.resolve(&Model::preset("gpt-tiny")?)?;
/// assert_eq!((layout.grid.ranks(), layout.global_batch), (4, 8));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct OpenLayout {
    /// What is asked for; of an open grid only the number of ranks and the order of axes count.
    pub request: LayoutRequest,
    /// Whether the interval of recomputation is to be the one of the least memory.
    pub least_interval: bool,
    /// Whether the batch follows from the number of ranks.
    pub usual_batch: bool,
    /// What is said.
    pub said: LayoutFile,
    /// Where it is to run, whether or not the grid is chosen for it.
    pub cluster: Cluster,
}

impl OpenLayout {
    /// What may be said of recomputation here: all of every segment, of as many blocks as take the least memory.
    pub const LEAST_INTERVAL: &str = "full:auto";

    /// What is `said`, over the defaults. Without a grid `ranks` is the number of ranks; a `dtype` wins over that which is said.
    ///
    /// # Errors
    /// A choice that is not known; a rule that is broken whatever the model is; no rank at all.
    pub fn new(
        said: LayoutFile,
        ranks: Option<usize>,
        dtype: Option<ElementType>,
        defaults: &LayoutDefaults,
        cluster: Cluster,
    ) -> Result<Self, RunError> {
        let LayoutDefaults { dtype: usual, vocab_multiple, .. } = *defaults;
        let mut request =
            LayoutRequest { dtype: usual, vocab_multiple, ..LayoutRequest::new(Grid::new(1, 1, 1, 1)?, 1) };
        let least_interval = Self::leaves_interval(&said);
        let said = Self::with_interval(said);
        said.apply(&mut request)?;
        if said.get(Field::Order).is_none() {
            request.grid = request.grid.with_order(defaults.order);
        }
        request.dtype = dtype.unwrap_or(request.dtype);
        request.per_node = request.per_node.or(defaults.per_node);
        if said.get(Field::Grid).is_none() {
            let ranks = ranks.unwrap_or(defaults.ranks);
            if ranks == 0 {
                return Err(Refusal::of(Setting::Ranks).text(" 0: there is at least one rank").into());
            }
            request.grid = Grid::new(ranks, 1, 1, 1)?.with_order(request.grid.order());
        }
        let [sequences, tokens] = defaults.batch.map_or([None; 2], |batch| batch.map(Some));
        let batch = said.size(Field::GlobalBatch).or(sequences);
        let usual_batch = batch.is_none() && request.batch_tokens.is_none();
        request.global_batch = batch.unwrap_or_else(|| usual_batch_of(request.grid.ranks()));
        request.seq_len = request.seq_len.or(tokens);
        request.check_used()?;
        Ok(Self { request, least_interval, usual_batch, said, cluster })
    }

    /// What is asked for of a model.
    ///
    /// # Errors
    /// A batch of tokens that are no whole sequences.
    pub fn request_of(&self, model: &Model) -> Result<LayoutRequest, SpecError> {
        let mut request = self.request.in_sequences(model)?.into_owned();
        // Nobody has asked for a padding of what a model has not.
        if model.patch_values.is_some() && self.said.get(Field::VocabMultiple).is_none() {
            Field::VocabMultiple.leave(&mut request);
        }
        Ok(request)
    }

    /// Whether the interval of recomputation is left open, to the memory that is predicted.
    pub fn leaves_interval(said: &LayoutFile) -> bool {
        said.get(Field::Recompute) == Some(&FieldValue::Name(Self::LEAST_INTERVAL.to_owned()))
    }

    /// Refuses an interval that is to be found for one layout, where there are several.
    ///
    /// # Errors
    /// One that says what to give instead.
    pub fn check_interval(&self) -> Result<(), Refusal> {
        if self.least_interval {
            Err(Refusal::new(format!(
                "`layout.recompute` {}: the interval is found for one layout, and there are several here; give full:K",
                Self::LEAST_INTERVAL
            )))
        } else {
            Ok(())
        }
    }

    /// The same with some interval, which rules can be held against.
    pub(crate) fn with_interval(said: LayoutFile) -> LayoutFile {
        let full = FieldValue::Name(Recompute::Full { every: 1 }.to_string());
        if Self::leaves_interval(&said) { said.with(Field::Recompute, full) } else { said }
    }

    /// The layout that is asked for, or that of the best legal grid by the prices of its programs.
    ///
    /// # Errors
    /// A rule of layouts that is broken; a cluster for which no grid can be chosen.
    pub fn resolve(&self, model: &Model) -> Result<Layout, RunError> {
        let layout = self.with_grid(model)?;
        if self.least_interval {
            Ok(Layout { recompute: least_interval(model, &layout)?, ..layout })
        } else {
            Ok(layout)
        }
    }

    /// Makes sure that nobody has asked for more ranks in a node than those of the cluster have devices.
    ///
    /// # Errors
    /// What was said, the devices of a node, and the most ranks that a node can have of the layout.
    pub fn check_node(&self, layout: &Layout) -> Result<(), SpecError> {
        let fullest = |_| Candidate::fullest_node(layout, &self.cluster).to_string();
        check_node(&self.cluster, self.request.per_node, layout.grid.ranks(), fullest)
    }

    /// The same refusal without remedies of more ranks in a node than the cluster's have devices.
    fn in_nodes(&self, error: SpecError) -> SpecError {
        let (SpecError::Refused(mut refusal), Some(devices)) = (error.clone(), self.cluster.node_devices()) else {
            return error;
        };
        let exists = |remedy: &Remedy| match remedy.change {
            Change::Set(Field::PerNode, FieldValue::Size(ranks)) => ranks <= devices,
            _ => true,
        };
        if refusal.remedies.iter().any(exists) {
            refusal.remedies.retain(exists);
        }
        SpecError::Refused(refusal)
    }

    fn with_grid(&self, model: &Model) -> Result<Layout, RunError> {
        let Self { usual_batch, said, cluster, .. } = self;
        let request = &self.request_of(model)?;
        let ranks = request.grid.ranks();
        if said.get(Field::Grid).is_none() && ranks > 1 {
            return self.best(model);
        }
        // What follows from the number of ranks follows from that of a remedy, too.
        let with_batch = |other: &LayoutRequest| LayoutRequest {
            global_batch: if *usual_batch && other.grid.ranks() != ranks {
                usual_batch_of(other.grid.ranks())
            } else {
                other.global_batch
            },
            ..other.clone()
        };
        // Nodes that nobody has asked for hide no other fault.
        Layout::completed(model, request, with_batch).map_err(|error| self.in_nodes(error))?;
        let on_cluster = Layout::completed(model, request, |other| LayoutRequest {
            per_node: other.per_node.or_else(|| Some(cluster.ranks_of_node(other.grid.ranks()))),
            ..with_batch(other)
        });
        Ok(on_cluster.map_err(|error| self.in_nodes(error))?)
    }

    fn best(&self, model: &Model) -> Result<Layout, RunError> {
        let cluster = &self.cluster;
        let mut request = self.request_of(model)?;
        let ranks = request.grid.ranks();
        request.per_node = request.per_node.or(Some(cluster.ranks_of_node(ranks)));
        let (described, _) = machine::described(cluster.clone(), ranks, 1, processors());
        if described.device.is_none() || described.tiers.is_empty() {
            let rule = format!(
                " {}: it does not describe its device and networks, by which an open grid is chosen; give a ",
                cluster.name
            );
            let refusal = Refusal::of(Setting::Cluster).text(rule).name(Setting::Grid);
            return Err(refusal.text(", or describe them (see calibrate)").into());
        }
        Ok(best(model, &described, ranks, &request)?.0)
    }

    /// The layout of a run, which knows what nobody has said and so follows from the rest, and the name of the cluster.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub fn spec(&self, model: &Model, cluster: &str) -> Result<LayoutSpec, RunError> {
        Ok(LayoutSpec { layout: self.resolve(model)?, open: self.following(), cluster: cluster.to_owned() })
    }

    /// The choices that nobody has made, and that follow from others.
    pub fn following(&self) -> Vec<Field> {
        LayoutSpec::MAY_FOLLOW.into_iter().filter(|field| self.said.get(*field).is_none()).collect()
    }
}

/// Sequences in a step where nobody says how many.
fn usual_batch_of(ranks: usize) -> usize {
    2 * ranks
}
