//! Which layouts are the fastest.

use quadrille_cost::native::Framework;
use quadrille_spec::{Cluster, Imbalance, Layout, LayoutFile, Model, Planned, SpecError};

use super::count::Counts;
use super::nothing::Nothing;
use super::question::{Question, Reserve};
use super::search::{Found, Search};
use super::space::Space;

/// What is to be planned.
#[derive(Debug, Clone)]
pub struct PlanRequest<'a> {
    /// What is trained.
    pub model: &'a Model,
    /// Where.
    pub cluster: &'a Cluster,
    /// Devices of the layouts.
    pub devices: usize,
    /// Sequences in a step.
    pub global_batch: usize,
    /// Tokens in a sequence.
    pub seq_len: usize,
    /// What trains it: Megatron-LM, unless another is chosen. This program's engine is [`Framework::QUADRILLE`].
    pub framework: Framework,
    /// How unequally ranks get rows of experts that drop nothing: the fullest is priced. As many each, unless said otherwise.
    pub imbalance: Imbalance,
    /// The values that are tried of every choice.
    pub space: Space,
    /// Whether layouts are tried that the framework cannot run.
    pub any_layout: bool,
    /// What of each device's memory stays free; `None`: what [`Reserve::usual`] says.
    pub reserve: Option<Reserve>,
    /// Most devices of a node that are used; `None`: all.
    pub per_node: Option<usize>,
    /// How many of the fastest are wanted.
    pub top: usize,
    /// True if variants of a layout are wanted, which differ in neither sizes of axes nor the spreading of experts; else the best
    /// of them alone.
    pub variants: bool,
    /// Most looks of the search ([`Search::limit`](super::Search::limit)), which then ends with what it has found:
    /// [`Plan::stopped`] says so; `None`: all there are.
    pub limit: Option<u64>,
}

impl<'a> PlanRequest<'a> {
    /// The ten fastest layouts that Megatron-LM runs, in sequences of the model's length, with as much of each device
    /// kept free as [`Reserve::usual`] says.
    pub fn new(model: &'a Model, cluster: &'a Cluster, devices: usize, global_batch: usize) -> Self {
        Self {
            model,
            cluster,
            devices,
            global_batch,
            seq_len: model.seq_len,
            framework: Framework::MEGATRON,
            imbalance: Imbalance::EQUAL,
            space: Space::default(),
            any_layout: false,
            reserve: None,
            per_node: None,
            top: 10,
            variants: false,
            limit: None,
        }
    }

    /// Searches every legal layout; seconds are those of the discrete events of the program that the framework runs.
    ///
    /// # Errors
    /// What cannot be priced; no layout that is legal and fits: why, and what would help.
    pub fn plan(&self) -> Result<Plan, Nothing> {
        let question = self.question()?;
        let search = Search { distinct: !self.variants, ..question.search(self.top)? };
        let found = search.run()?;
        if found.ranked.is_empty() && self.top > 0 {
            return Err(search.why_nothing(&found));
        }
        let priced = found.ranked.iter().map(|ranked| {
            let layout = question.layout(ranked)?;
            let seconds = ranked.price.seconds;
            let bytes = ranked.price.memory.total();
            Ok(PlannedLayout { layout, planned: question.framework.planned(), seconds, bytes })
        });
        let Found { counts, stopped, too_long, .. } = found;
        Ok(Plan { layouts: priced.collect::<Result<_, SpecError>>()?, counts, stopped, too_long })
    }

    fn question(&self) -> Result<Question, SpecError> {
        let mut space = self.space.clone();
        if !self.any_layout {
            space.keep_to(&self.framework);
        }
        if self.framework.sparsity.is_some() {
            space.keep_to_pruned(self.model)?;
        }
        let model = self.model.clone();
        let cluster = self.cluster.clone();
        let open = Question::new(model, cluster, self.framework, self.devices, self.global_batch);
        let question = Question {
            imbalance: self.imbalance.clone(),
            seq_len: self.seq_len,
            space,
            per_node: self.per_node,
            reserve: self.reserve.unwrap_or(open.reserve),
            limit: self.limit,
            ..open
        };
        if !self.any_layout {
            question.check_numbers()?;
        }
        Ok(question)
    }
}

/// What was found.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The fastest that fit, fastest first: as many as were wanted, if there are so many; at least one, unless none was wanted.
    pub layouts: Vec<PlannedLayout>,
    /// How many layouts there are, and what became of them.
    pub counts: Counts,
    /// True if the limit was reached before every layout was looked at.
    pub stopped: bool,
    /// As [`Found::too_long`].
    pub too_long: usize,
}

/// A layout with its price.
#[derive(Debug, Clone)]
pub struct PlannedLayout {
    /// The layout.
    pub layout: Layout,
    /// What it was planned for.
    pub planned: Planned,
    /// Seconds of a step.
    pub seconds: f64,
    /// Bytes of memory on the device that needs most, with all that the framework reserves.
    pub bytes: u64,
}

impl PlannedLayout {
    /// The layout as a file that `quadrille train --layout` reads.
    ///
    /// # Errors
    /// None for what was planned.
    pub fn to_toml(&self) -> Result<String, SpecError> {
        LayoutFile::of(&self.layout).planned_for(self.planned.clone()).to_toml()
    }
}
