//! What is compared: layouts with their predictions, and how they are run.

use indicatif::ProgressBar;
use quadrille_cost::native::{Framework, Problem};
use quadrille_engine::{Cpu, Hyper, TrainOptions, random_batch, train};
use quadrille_plan::local::{Measured, Predicted, RankStep, WARM_UP_STEPS, choose, machine, shuffled};
use quadrille_run::resources;
use quadrille_spec::{Cluster, ElementType, Layout, LayoutRequest, Model};
use quadrille_step::StepProgram;

use super::arguments::ValidateLocalArguments;
use super::comparison::{Comparison, Row};
use crate::failure::Failure;
use crate::grids::{Grids, Skipped};
use crate::launch::Launch;
use crate::settings;

/// Layouts of one model on one machine.
pub struct Case {
    pub model: Model,
    /// What steps are predicted for.
    pub cluster: Cluster,
    /// What of it nobody measured.
    pub assumed: Option<String>,
    pub ranks: usize,
    pub global_batch: usize,
    pub seq_len: usize,
    pub options: TrainOptions,
    /// Whether a machine has more ranks' threads than cores.
    pub crowded: bool,
    /// How many of the grids are legal.
    pub legal: usize,
    pub layouts: Vec<Predictable>,
    /// Grids that the model or the batch does not allow.
    pub skipped: Vec<Skipped>,
}

/// A layout that is to be run.
pub struct Predictable {
    pub layout: Layout,
    /// Its prediction, or why there is none.
    pub predicted: Result<Predicted, String>,
}

impl Case {
    /// Reads what was typed, predicts, and makes sure that all layouts can run.
    pub fn new(arguments: &ValidateLocalArguments, launch: &Launch) -> Result<Self, Failure> {
        check_flags(arguments)?;
        let settings = settings::settings(&arguments.model, "gpt-demo", Hyper::default())?;
        let typed = settings::typed(&arguments.layout, None, &launch.defaults(&settings::Defaults::USUAL)?)?;
        if typed.request.dtype != ElementType::F32 {
            return Err(Failure::usage(format!(
                "dtype = {}: the native model predicts this program's steps in f32; use dtype = \"f32\" in the layout file",
                typed.request.dtype
            )));
        }
        let ranks = typed.request.grid.ranks();
        launch.check_ranks(ranks)?;
        let per_node = typed.request.per_node.or_else(|| Some(typed.cluster.per_node(ranks)));
        let request = LayoutRequest { per_node, ..typed.request };
        let Grids { legal, skipped } = Grids::all(&settings.model, &request, arguments.axes.as_deref())?;
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
            machine::described(typed.cluster, launch.ranks_here(ranks), options.threads, settings::processors());
        let chosen = choose(legal.len(), arguments.layouts.unwrap_or(legal.len()), options.seed);
        let (global_batch, seq_len) = (legal[0].global_batch, legal[0].seq_len);
        let mut case = Self {
            model: settings.model,
            cluster,
            assumed,
            ranks,
            global_batch,
            seq_len,
            crowded: launch.is_crowded(ranks, options.threads),
            options,
            legal: legal.len(),
            layouts: Vec::new(),
            skipped,
        };
        case.predict(chosen.into_iter().map(|at| legal[at].clone()))?;
        case.check(launch)?;
        Ok(case)
    }

    /// Prices the layouts.
    fn predict(&mut self, layouts: impl Iterator<Item = Layout>) -> Result<(), Failure> {
        let Self { model, cluster, .. } = &*self;
        let problem = Problem::new(model, cluster, Framework::QUADRILLE, self.global_batch, self.seq_len)?;
        let price =
            |layout: &Layout| -> Result<Predicted, Failure> { Ok(Predicted::from(&problem.price_layout(layout)?)) };
        let layouts = layouts.map(|layout| {
            let predicted = price(&layout).map_err(|failure| failure.message());
            Predictable { layout, predicted }
        });
        self.layouts = layouts.collect();
        Ok(())
    }

    /// Refuses what gives no comparison, and what this machine cannot run.
    fn check(&self, launch: &Launch) -> Result<(), Failure> {
        let predicted = self.layouts.iter().filter(|layout| layout.predicted.is_ok()).count();
        if predicted < 2 {
            let refused = self.layouts.iter().find_map(|layout| layout.predicted.as_ref().err());
            let reasons = self.skipped.iter().map(|skipped| &skipped.reason);
            let why = refused.into_iter().chain(reasons).next().map_or(String::new(), |why| format!(" ({why})"));
            return Err(Failure::usage(format!(
                "--ranks {}: {predicted} of {} grids can be predicted and run{why}; a comparison needs at least 2: use more \
                 ranks, other --axes or another --global-batch",
                self.ranks,
                self.legal + self.skipped.len(),
            )));
        }
        let program = |layout: &Predictable| StepProgram::new(&self.model, &layout.layout);
        let threads = self.options.threads;
        self.layouts.iter().try_for_each(|layout| Ok(resources::check(&program(layout)?, threads, launch, 0)?))
    }

    /// Runs every layout and compares. The order is shuffled: what disturbs the machine for some time meets layouts that have
    /// nothing in common, where neighbours of the enumeration are alike.
    pub fn measure(&self, launch: &Launch) -> Result<Comparison, Failure> {
        let bar = ProgressBar::with_draw_target(Some(self.layouts.len() as u64), launch.progress());
        let run = |of: &Predictable| -> Result<Row, Failure> {
            bar.set_message(of.layout.grid.to_string());
            let (measured, ledger_equal) = self.run(&of.layout).map_err(|failure| match failure {
                Failure::Run(error) => Failure::Run(error.context(of.layout.grid.to_string())),
                usage => usage,
            })?;
            bar.inc(1);
            let predicted = of.predicted.clone();
            Ok(Row { layout: of.layout.clone(), predicted, measured, ledger_equal, places: [None; 2] })
        };
        let order = shuffled(self.layouts.len(), self.options.seed);
        let rows = order.into_iter().map(|at| Ok((at, run(&self.layouts[at])?)));
        let mut rows = rows.collect::<Result<Vec<_>, Failure>>()?;
        bar.finish_and_clear();
        // Layouts that are predicted to be equal keep the order of their enumeration.
        rows.sort_by_key(|(at, _)| *at);
        Comparison::new(rows.into_iter().map(|(_, row)| row).collect())
    }

    /// Trains for the steps; their times, and whether all transfers were the predicted ones.
    fn run(&self, layout: &Layout) -> Result<(Measured, bool), Failure> {
        let program = StepProgram::new(&self.model, layout)?;
        let batch = random_batch(&self.model, self.options.seed, layout.seq_len);
        let outcome = train::<Cpu<f32>>(&program, &self.options, &batch, None, &mut |_| Ok(()))?;
        let step = |step: &quadrille_engine::RankStep| RankStep {
            seconds: step.seconds,
            operations: step.operations,
            waiting: step.waiting,
        };
        let ranks: Vec<Vec<RankStep>> =
            outcome.ranks.iter().map(|rank| rank.steps.iter().map(step).collect()).collect();
        let measured = Measured::of(&ranks).ok_or_else(|| Failure::run("no step was measured"))?;
        Ok((measured, outcome.difference.is_none()))
    }
}

/// Refuses flags by themselves.
fn check_flags(arguments: &ValidateLocalArguments) -> Result<(), Failure> {
    let ValidateLocalArguments { steps, layouts, layout, .. } = arguments;
    let least = WARM_UP_STEPS + 1;
    if *steps < least as u64 {
        return Err(Failure::usage(format!(
            "--steps {steps}: the first {WARM_UP_STEPS} steps do not count; use at least {least}"
        )));
    }
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
