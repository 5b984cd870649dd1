//! `quadrille verify`: layouts against the serial model.

use indicatif::ProgressBar;
use quadrille_engine::EngineError;
use quadrille_plan::{Grids, Skipped};
use quadrille_run::{LayoutDefaults, described, layout_json, resources};
use quadrille_spec::{ElementType, Layout, Model};
use quadrille_step::StepProgram;
use quadrille_verify::{Reference, VerifyOptions, VerifyReport, take_part_on_cpu, verify_on_cpu};
use serde::Serialize;
use serde_json::Value;

use crate::arguments::VerifyArguments;
use crate::failure::Failure;
use crate::flags;
use crate::launch::Launch;
use crate::output::{print_json, print_text, table};
use crate::settings;

const DEFAULTS: LayoutDefaults = LayoutDefaults { dtype: ElementType::F64, ..LayoutDefaults::USUAL };

#[derive(Serialize)]
struct Document {
    grids: Vec<Verified>,
    /// Grids that the model or the batch does not allow.
    skipped: Vec<Skipped>,
}

/// A layout with how far it is from the serial model.
#[derive(Serialize)]
struct Verified {
    layout: Value,
    #[serde(flatten)]
    report: VerifyReport,
}

/// Verifies every layout that was asked for.
pub fn run(arguments: &VerifyArguments, launch: &Launch) -> Result<(), Failure> {
    let settings = settings::settings(&arguments.model, "gpt-tiny", VerifyOptions::HYPER)?;
    let (model, seed) = (&settings.model, arguments.run.seed());
    let hyper = settings::hyper(settings.optimizer, &arguments.run, arguments.steps)?;
    let defaults = launch.defaults(&DEFAULTS)?;
    let (layouts, skipped) = layouts(arguments, model, &defaults)?;
    let cluster = described::cluster(arguments.layout.cluster())?;
    let options = |ranks: usize| -> Result<VerifyOptions, Failure> {
        Ok(VerifyOptions {
            steps: arguments.steps,
            seed,
            hyper,
            threads: settings::threads(&arguments.run, launch, ranks)?,
            timeout: settings::timeout(&arguments.run)?,
            collectives: launch.collectives(&arguments.run, &cluster),
            world: launch.world.clone(),
        })
    };
    let mut grids = Vec::new();
    let mut reference = None;
    let bar = ProgressBar::with_draw_target(Some(layouts.len() as u64), launch.progress());
    for layout in layouts {
        bar.set_message(layout.grid.to_string());
        let (program, options) = (StepProgram::new(model, &layout)?, options(layout.grid.ranks())?);
        launch.check_ranks(layout.grid.ranks())?;
        let forward = resources::beside_training(&program)?;
        let beside = reference_bytes(model, arguments.steps).saturating_add(forward);
        resources::check(&program, options.threads, launch, beside)?;
        // The serial model of the layout before took the first process its time.
        launch.meet()?;
        let failed = |error: EngineError| Failure::Run(anyhow::Error::from(error).context(layout.grid.to_string()));
        if !launch.is_first() {
            take_part_on_cpu(&program, &options).map_err(failed)?;
            continue;
        }
        let reference = reference.get_or_insert_with(|| Reference::new(&program, &options));
        let report = verify_on_cpu(&program, &options, reference);
        grids.push(Verified { layout: layout_json(&layout), report: report.map_err(failed)? });
        bar.inc(1);
    }
    bar.finish_and_clear();
    if !launch.is_first() {
        return Ok(());
    }
    let failed = grids.iter().filter(|verified| !verified.report.ok).count();
    let total = grids.len();
    if arguments.json {
        print_json(&Document { grids, skipped })?;
    } else {
        print_text(&text(&grids, &skipped))?;
    }
    match failed {
        0 => Ok(()),
        _ => Err(Failure::run(format!("{failed} of {total} layouts differ from the serial model or their prediction"))),
    }
}

/// At least what the serial model holds in f64: initial weights, two moments, and per step weights and gradients.
fn reference_bytes(model: &Model, steps: u64) -> u64 {
    8 * model.parameters().saturating_mul(3 + 2 * steps)
}

fn layouts(
    arguments: &VerifyArguments,
    model: &Model,
    defaults: &LayoutDefaults,
) -> Result<(Vec<Layout>, Vec<Skipped>), Failure> {
    if !arguments.all_grids {
        let layout = settings::layout(&arguments.layout, model, arguments.dtype, defaults)?;
        return Ok((vec![layout], Vec::new()));
    }
    if arguments.layout.grid.is_some() {
        return Err(Failure::usage("--all-grids and --grid exclude each other; give --ranks with --all-grids"));
    }
    let request = settings::typed(&arguments.layout, arguments.dtype, defaults)?.request;
    let Grids { legal, skipped } = Grids::all(model, &request, arguments.axes.as_deref())?;
    Ok((legal, flags::spelled_reasons(skipped)))
}

fn text(grids: &[Verified], skipped: &[Skipped]) -> String {
    let header = ["grid", "activations", "loss", "gradients", "norm", "weights", "evaluation", "ledger", "result"];
    let rows: Vec<Vec<String>> = grids
        .iter()
        .map(|Verified { report, .. }| {
            let VerifyReport { loss_diff, grad_diff, norm_diff, weight_diff, evaluation_diff, .. } = *report;
            let differences = [loss_diff, grad_diff, norm_diff, weight_diff, evaluation_diff];
            let ledger = if report.ledger_equal { "equal" } else { "UNEQUAL" };
            let result = if report.ok { "ok" } else { "DIFFERS" };
            [report.grid.clone(), report.activations.clone()]
                .into_iter()
                .chain(differences.map(|difference| format!("{difference:.1e}")))
                .chain([ledger, result].map(str::to_owned))
                .collect()
        })
        .collect();
    let mut text = table(&header, &rows);
    for Verified { report, .. } in grids {
        for failure in &report.failures {
            text += &format!("{}: {failure}\n", report.grid);
        }
    }
    for Skipped { grid, reason } in skipped {
        text += &format!("skipped {grid}: {reason}\n");
    }
    text
}
