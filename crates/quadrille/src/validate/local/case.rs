//! What is compared, from what was typed.

use indicatif::ProgressBar;
use quadrille_engine::{Hyper, TrainOptions};
use quadrille_measure::MeasureError;
use quadrille_measure::local::{Comparison, LocalCase, check_steps};
use quadrille_plan::local::{choose, machine};
use quadrille_plan::{Grids, Skipped};
use quadrille_report::local::LocalReport;
use quadrille_run::{LayoutDefaults, StatesSpec, resources};
use quadrille_spec::{Layout, LayoutRequest};

use super::arguments::ValidateLocalArguments;
use crate::failure::Failure;
use crate::flags;
use crate::launch::Launch;
use crate::settings;

/// Layouts of one model on one machine, and what was left out.
pub struct Case {
    pub local: LocalCase,
    /// What of the cluster nobody measured.
    pub assumed: Option<String>,
    pub ranks: usize,
    pub global_batch: usize,
    pub seq_len: usize,
    /// Whether a machine has more ranks' threads than cores.
    pub crowded: bool,
    /// How many of the grids are legal.
    pub legal: usize,
    /// Grids that the model or the batch does not allow.
    pub skipped: Vec<Skipped>,
}

impl Case {
    /// Reads what was typed, predicts, and makes sure that all layouts can run.
    pub fn new(arguments: &ValidateLocalArguments, launch: &Launch) -> Result<Self, Failure> {
        check_flags(arguments)?;
        let settings = settings::settings(&arguments.model, "gpt-demo", Hyper::default())?;
        let typed = settings::typed(&arguments.layout, None, &launch.defaults(&LayoutDefaults::USUAL)?)?;
        settings::check_interval(&typed)?;
        let ranks = typed.request.grid.ranks();
        launch.check_ranks(ranks)?;
        let per_node = typed.request.per_node.or_else(|| Some(typed.cluster.per_node(ranks)));
        let request = LayoutRequest { per_node, ..typed.request };
        let Grids { legal, skipped } = Grids::all(&settings.model, &request, arguments.axes.as_deref())?;
        let skipped = flags::spelled_reasons(skipped);
        let options = TrainOptions {
            threads: settings::threads(&arguments.run, launch, ranks)?,
            timeout: settings::timeout(&arguments.run)?,
            collectives: launch.collectives(&arguments.run, &typed.cluster),
            world: launch.world.clone(),
            ..TrainOptions::new(
                arguments.steps,
                settings::hyper(settings.optimizer, &arguments.run, arguments.steps)?,
                arguments.run.seed(),
            )
        };
        let (cluster, assumed) =
            machine::described(typed.cluster, launch.ranks_here(ranks), options.threads, quadrille_run::processors());
        let chosen = choose(legal.len(), arguments.layouts.unwrap_or(legal.len()), options.seed);
        let layouts: Vec<Layout> = chosen.into_iter().map(|at| legal[at].clone()).collect();
        let (global_batch, seq_len) = (legal[0].global_batch, legal[0].seq_len);
        let crowded = launch.is_crowded(ranks, options.threads);
        let local = LocalCase::new(settings.model, cluster, layouts, options)?;
        let case = Self { local, assumed, ranks, global_batch, seq_len, crowded, legal: legal.len(), skipped };
        case.check(launch)?;
        Ok(case)
    }

    /// Refuses what gives no comparison, and what this machine cannot run.
    fn check(&self, launch: &Launch) -> Result<(), Failure> {
        self.local.check().map_err(|error| self.too_few(error))?;
        let threads = self.local.options.threads;
        self.local
            .programs()
            .try_for_each(|program| Ok(resources::check(&program?, threads, launch, &StatesSpec::Memory, 0)?))
    }

    /// Says why there is nothing to compare, of all grids.
    fn too_few(&self, error: MeasureError) -> Failure {
        let MeasureError::TooFew { predicted, refused } = error else { return error.into() };
        let refused = refused.map(|error| Failure::from(error).message());
        let why = refused.or_else(|| self.skipped.first().map(|skipped| skipped.reason.clone()));
        let why = why.map_or(String::new(), |why| format!(" ({why})"));
        Failure::usage(format!(
            "--ranks {}: {predicted} of {} grids can be predicted and run{why}; a comparison needs at least 2: use more \
             ranks, other --axes or another --global-batch",
            self.ranks,
            self.legal + self.skipped.len(),
        ))
    }

    /// Runs every layout and compares, with a bar for who watches.
    pub fn measure(&self, launch: &Launch) -> Result<Comparison, Failure> {
        let bar = ProgressBar::with_draw_target(Some(self.local.layouts.len() as u64), launch.progress());
        let comparison = self.local.measure(&mut |progress| {
            bar.set_position(progress.done as u64);
            bar.set_message(progress.next.unwrap_or_default().to_owned());
        })?;
        bar.finish_and_clear();
        Ok(comparison)
    }

    /// What is told of it.
    pub fn report<'a>(&'a self, comparison: &'a Comparison) -> LocalReport<'a> {
        let Self { local: case, assumed, ranks, global_batch, seq_len, crowded, legal, skipped } = self;
        let (assumed, cores) = (assumed.as_deref(), quadrille_run::processors());
        let (ranks, global_batch, seq_len, crowded) = (*ranks, *global_batch, *seq_len, *crowded);
        LocalReport { case, comparison, assumed, ranks, global_batch, seq_len, cores, crowded, legal: *legal, skipped }
    }
}

/// Refuses flags by themselves.
fn check_flags(arguments: &ValidateLocalArguments) -> Result<(), Failure> {
    let ValidateLocalArguments { steps, layouts, layout, .. } = arguments;
    check_steps(*steps)?;
    if let Some(layouts @ 0..=1) = layouts {
        return Err(Failure::usage(format!("--layouts {layouts}: an order is of at least 2 layouts; use 2 or more")));
    }
    if layout.grid.is_some() {
        return Err(Failure::usage(
            "--grid: every grid of --ranks ranks is compared; give --ranks, and --axes to leave axes out",
        ));
    }
    Ok(())
}
