//! `quadrille verify`: layouts against the serial model.

use std::path::Path;

use clap::{Arg, Args};
use quadrille_engine::EngineError;
use quadrille_plan::{Grids, Skipped};
use quadrille_report::verification::{VerificationReport, VerifiedLayout};
use quadrille_run::{LayoutDefaults, described, resources};
use quadrille_spec::{Axis, ElementType, Layout, Model, Sparsity};
use quadrille_step::StepProgram;
use quadrille_verify::{Reference, VerifyOptions, take_part_on, verify_on};
use serde_json::Value;

use crate::arguments::{ModelArguments, RunArguments};
use crate::device::DeviceArguments;
use crate::failure::Failure;
use crate::launch::Launch;
use crate::layout_arguments::LayoutArguments;
use crate::layout_flags::offload_to_folder;
use crate::output::{json_value, print_json, print_text};
use crate::parse::whole;
use crate::{bars, flags};

const LIMITS: &str = "Both sides take the model's description, the samples and the words of the random generator from \
the same place: what is wrong there is wrong on both sides. ARCHITECTURE.md says which tests guard it.";

#[derive(Debug, Args)]
#[command(
    mut_arg("model", model_help),
    mut_arg("lr", rate_help),
    mut_arg("offload", offload_to_folder),
    after_help = LIMITS
)]
pub struct VerifyArguments {
    #[command(flatten)]
    pub model: ModelArguments,
    /// Every grid of --ranks ranks over x, y, z and data
    #[arg(long)]
    pub all_grids: bool,
    /// With --all-grids: every grid over these axes, e.g. --axes x,context,pipe [default: x,y,z,data]
    #[arg(long, value_name = "AXES", value_delimiter = ',', requires = "all_grids")]
    pub axes: Option<Vec<Axis>>,
    /// Optimizer steps to compare: four have the warm-up, the peak, the decay and the end of the learning rate
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = whole::<u64>(..))]
    pub steps: u64,
    /// f64 to 1e-11; f32 to 5e-5, where weights are held to 1e-6 against an update by the layout's own gradients; bf16 and
    /// f16, where gradients are held to what rounding does in small models: f64 proves that no sum is missing [default: f64]
    #[arg(long, value_name = "TYPE")]
    pub dtype: Option<ElementType>,
    /// Prune this part of all matrices and tables, by chance, on both sides: only kept weights have gradients and states
    #[arg(long, value_name = "PART")]
    pub sparsity: Option<Sparsity>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    #[command(flatten, next_help_heading = "Layout")]
    pub layout: LayoutArguments,
    #[command(flatten, next_help_heading = "Run")]
    pub run: RunArguments,
    #[command(flatten, next_help_heading = "Run")]
    pub device: DeviceArguments,
}

fn model_help(argument: Arg) -> Arg {
    argument.help("A preset's name or a TOML file [default: gpt-tiny]")
}

fn rate_help(argument: Arg) -> Arg {
    argument.help("Peak learning rate [default: 1e-3]")
}

/// The model where none is named.
const MODEL: &str = "gpt-tiny";

const DEFAULTS: LayoutDefaults = LayoutDefaults { dtype: ElementType::F64, ..LayoutDefaults::USUAL };

/// Verifies every layout that was asked for.
pub fn run(arguments: &VerifyArguments, launch: &Launch) -> Result<(), Failure> {
    let report = verified(arguments, launch)?;
    if !launch.is_first() {
        return Ok(());
    }
    if arguments.json {
        print_json(&report)?;
    } else {
        print_text(report.text())?;
    }
    match (report.failed(), report.grids.len()) {
        (0, _) => Ok(()),
        (failed, total) => {
            Err(Failure::run(format!("{failed} of {total} layouts differ from the serial model or their prediction")))
        }
    }
}

/// The report as a document, which says of every layout whether it is equal.
pub fn document(arguments: &VerifyArguments, launch: &Launch) -> Result<Value, Failure> {
    json_value(&verified(arguments, launch)?)
}

/// Compares layout after layout with the serial model, in the first process.
fn verified(arguments: &VerifyArguments, launch: &Launch) -> Result<VerificationReport, Failure> {
    let settings = arguments.model.settings(MODEL, VerifyOptions::HYPER)?;
    let model = &settings.model;
    let seed = arguments.run.seed();
    let hyper = arguments.run.hyper(settings.optimizer, arguments.steps)?;
    let defaults = launch.defaults(&DEFAULTS)?;
    let (layouts, skipped) = layouts(arguments, model, &defaults)?;
    let cluster = described::cluster(arguments.layout.cluster())?;
    let states = arguments.layout.states();
    let options = |ranks: usize| -> Result<VerifyOptions, Failure> {
        Ok(VerifyOptions {
            steps: arguments.steps,
            seed,
            sparsity: arguments.sparsity,
            hyper,
            states: states.folder().map(Path::to_owned),
            threads: launch.threads(arguments.run.threads, ranks)?,
            timeout: arguments.run.timeout()?,
            collectives: launch.collectives(arguments.run.collectives(), &cluster.tiers),
            world: launch.world.clone(),
        })
    };
    let mut verified = Vec::new();
    let mut reference = None;
    let bar = bars::counted(launch, layouts.len());
    for layout in layouts {
        bar.set_message(layout.grid.to_string());
        let options = options(layout.grid.ranks())?;
        let program = options.pruned(StepProgram::new(model, &layout)?)?;
        launch.check_ranks(layout.grid.ranks())?;
        let forward = resources::beside_training(&program)?;
        let beside = Reference::bytes(model, arguments.steps).saturating_add(forward);
        resources::check(&program, options.threads, launch, &states, beside)?;
        // The serial model of the layout before took the first process its time.
        launch.meet()?;
        let failed = |error: EngineError| Failure::Run(anyhow::Error::from(error).context(layout.grid.to_string()));
        if !launch.is_first() {
            take_part_on(launch.device, &program, &options).map_err(failed)?;
            continue;
        }
        let reference = reference.get_or_insert_with(|| Reference::new(&program, &options));
        let report = verify_on(launch.device, &program, &options, reference);
        verified.push(VerifiedLayout::new(&layout, report.map_err(failed)?));
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(VerificationReport::new(arguments.sparsity, verified, skipped))
}

fn layouts(
    arguments: &VerifyArguments,
    model: &Model,
    defaults: &LayoutDefaults,
) -> Result<(Vec<Layout>, Vec<Skipped>), Failure> {
    if !arguments.all_grids {
        let layout = arguments.layout.said(arguments.dtype).open(defaults)?.resolve(model);
        return Ok((vec![arguments.layout.held(&arguments.model, MODEL, layout)?], Vec::new()));
    }
    if arguments.layout.grid.is_some() {
        return Err(Failure::usage("--all-grids and --grid exclude each other; give --ranks with --all-grids"));
    }
    let typed = arguments.layout.said(arguments.dtype).open(defaults)?;
    typed.check_interval()?;
    let Grids { legal, skipped } = Grids::all(model, &typed.request_of(model)?, arguments.axes.as_deref())?;
    Ok((legal, flags::spelled_reasons(skipped)))
}
