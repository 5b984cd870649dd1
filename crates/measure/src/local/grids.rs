//! All grids of a number of ranks of this machine, or some of them, as a comparison of their layouts.

use std::time::Duration;

use quadrille_engine::{Hyper, LossScale, TrainOptions};
use quadrille_plan::local::{choose, machine};
use quadrille_plan::{Grids, Skipped};
use quadrille_run::{OpenLayout, Processes, StatesSpec, processors, resources};
use quadrille_spec::{Axis, Cluster, Collectives, Layout, LayoutRequest, Model};

use super::case::{LocalCase, check_steps};
use crate::{MeasureError, Refusal, Setting};

/// Which grids are compared, and how their layouts run.
#[derive(Clone)]
pub struct GridsSpec {
    /// The model.
    pub model: Model,
    /// What all layouts have in common; of its grid the number of ranks counts, and the order of its axes.
    pub layout: OpenLayout,
    /// The axes of the grids; `None`: x, y, z and data.
    pub axes: Option<Vec<Axis>>,
    /// How many of the legal grids, chosen by the seed; `None`: all.
    pub layouts: Option<usize>,
    /// The constants of training, for the number of steps.
    pub hyper: Hyper,
    /// Steps of each layout, of which the first two do not count.
    pub steps: u64,
    /// Keys the choice of grids, their order, initial values and samples.
    pub seed: u64,
    /// Threads of each rank; `None`: as many as its share of the cores.
    pub threads: Option<usize>,
    /// After so long a collective that waits for a rank stops the job.
    pub timeout: Duration,
    /// How collectives run.
    pub collectives: Collectives,
    /// Where ranks live.
    pub processes: Processes,
}

/// Layouts of one model on one machine, which it can run, and what was left out.
#[derive(Debug)]
pub struct LocalGrids {
    /// What is compared.
    pub case: LocalCase,
    /// What of the cluster nobody measured.
    pub assumed: Option<String>,
    /// Ranks of each layout.
    pub ranks: usize,
    /// Sequences in a step.
    pub global_batch: usize,
    /// Tokens in a sequence.
    pub seq_len: usize,
    /// What ranks compute on; `None`: the processor.
    pub device: Option<String>,
    /// Whether a machine has more ranks' threads than cores.
    pub crowded: bool,
    /// How many of the grids are legal; [`Self::case`] may have fewer.
    pub legal: usize,
    /// Grids that the model or the batch does not allow.
    pub skipped: Vec<Skipped>,
}

impl GridsSpec {
    /// Refuses numbers of steps and layouts of which nothing follows.
    ///
    /// # Errors
    /// See above.
    pub fn check_numbers(steps: u64, layouts: Option<usize>) -> Result<(), Refusal> {
        check_steps(steps)?;
        match layouts {
            Some(layouts @ 0..=1) => {
                let rule = format!(" {layouts}: an order is of at least 2 layouts; use 2 or more");
                Err(Refusal::of(Setting::Layouts).text(rule))
            }
            _ => Ok(()),
        }
    }

    /// Enumerates the grids, predicts their steps, and makes sure that all can run.
    ///
    /// # Errors
    /// No legal grid, fewer than two predictions; another number of ranks than there are processes; a layout that this machine
    /// cannot run.
    pub fn prepare(self) -> Result<LocalGrids, MeasureError> {
        Self::check_numbers(self.steps, self.layouts)?;
        let Self { model, layout: OpenLayout { request, cluster, .. }, processes, .. } = self;
        let ranks = request.grid.ranks();
        processes.check_ranks(ranks)?;
        let device = processes.device.name()?;
        check_cluster(&cluster, device.as_deref())?;
        let per_node = request.per_node.or_else(|| Some(cluster.ranks_of_node(ranks)));
        let request = LayoutRequest { per_node, ..request };
        let Grids { legal, skipped } = Grids::all(&model, &request, self.axes.as_deref())?;
        let options = TrainOptions {
            threads: processes.threads(self.threads, ranks)?,
            timeout: self.timeout,
            collectives: processes.collectives(self.collectives, &cluster.tiers),
            world: processes.world.clone(),
            loss_scale: LossScale::usual(request.dtype),
            ..TrainOptions::new(self.steps, self.hyper, self.seed)
        };
        let (cluster, assumed) =
            machine::described(cluster, processes.ranks_here(ranks), options.threads, processors());
        let chosen = choose(legal.len(), self.layouts.unwrap_or(legal.len()), options.seed);
        let layouts: Vec<Layout> = chosen.into_iter().map(|at| legal[at].clone()).collect();
        let global_batch = legal[0].global_batch;
        let seq_len = legal[0].seq_len;
        let crowded = processes.is_crowded(ranks, options.threads);
        let case = LocalCase::new(model, cluster, layouts, options)?;
        let legal = legal.len();
        let grids = LocalGrids { case, assumed, ranks, global_batch, seq_len, device, crowded, legal, skipped };
        grids.check(&processes)?;
        Ok(grids)
    }
}

/// Refuses a device for which nothing is predicted: the preset of this machine is a processor of assumed rates.
fn check_cluster(cluster: &Cluster, device: Option<&str>) -> Result<(), Refusal> {
    match device {
        Some(device) if cluster.name == "local" && cluster.device.is_none() => {
            let rule =
                format!(" local: it is a processor of assumed rates, and ranks compute on {device}; use a file that");
            Err(Refusal::of(Setting::Cluster).text(rule).text(" calibration has written on such a device"))
        }
        _ => Ok(()),
    }
}

impl LocalGrids {
    /// Refuses what gives no comparison, and what this machine cannot run.
    fn check(&self, processes: &Processes) -> Result<(), MeasureError> {
        self.case.check().map_err(|error| self.too_few(error))?;
        let threads = self.case.options.threads;
        self.case
            .programs()
            .try_for_each(|program| Ok(resources::check(&program?, threads, processes, &StatesSpec::Memory, 0)?))
    }

    /// Says why there is nothing to compare, of all grids.
    fn too_few(&self, error: MeasureError) -> MeasureError {
        let MeasureError::TooFew { predicted, refused } = error else { return error };
        let refused = refused.map(|error| error.to_string());
        let why = refused.or_else(|| self.skipped.first().map(|skipped| skipped.reason.clone()));
        let why = why.map_or(String::new(), |why| format!(" ({why})"));
        let of = self.legal + self.skipped.len();
        let rule = format!(" {}: {predicted} of {of} grids can be predicted and run{why}", self.ranks);
        let refusal =
            Refusal::of(Setting::Ranks).text(rule).text("; a comparison needs at least 2: use more ranks, other ");
        refusal.name(Setting::Axes).text(" or another ").name(Setting::GlobalBatch).into()
    }
}
