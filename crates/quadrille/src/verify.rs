//! `quadrille verify`: layouts against the serial model.

use quadrille_engine::{Hyper, Tolerance, VerifyOptions, VerifyReport, verify};
use quadrille_spec::{ElementType, Grid, Layout, SpecError};
use quadrille_step::StepProgram;
use serde::Serialize;

use crate::arguments::VerifyArguments;
use crate::failure::Failure;
use crate::output::{print_json, print_text, table};
use crate::settings;

/// A step length and an epsilon with which AdamW does not blow up rounding: with an epsilon near the size of the
/// gradients' rounding, two correct runs part after few steps.
const CONSTANTS: Hyper = Hyper { learning_rate: 1e-3, epsilon: 1e-6, ..Hyper::DEFAULT };

#[derive(Serialize)]
struct Document {
    grids: Vec<VerifyReport>,
    /// Grids that the model or the batch does not allow.
    skipped: Vec<Skipped>,
}

#[derive(Serialize)]
struct Skipped {
    grid: String,
    reason: String,
}

/// Verifies every layout that was asked for.
pub fn run(arguments: &VerifyArguments) -> Result<(), Failure> {
    let settings = settings::settings(&arguments.model, "gpt-tiny", CONSTANTS)?;
    let (model, seed) = (&settings.model, arguments.run.seed);
    let hyper = settings::hyper(settings.hyper, &arguments.run, arguments.steps)?;
    let (layouts, skipped) = layouts(arguments, model)?;
    let mut grids = Vec::new();
    for layout in layouts {
        let ranks = layout.grid.ranks();
        let options = VerifyOptions {
            steps: arguments.steps,
            seed,
            hyper,
            threads: settings::threads(&arguments.run, ranks)?,
            timeout: settings::timeout(&arguments.run)?,
        };
        let program = StepProgram::new(model, &layout)?;
        let report = match layout.dtype {
            ElementType::F64 => verify::<f64>(&program, &options, Tolerance::F64)?,
            ElementType::F32 => verify::<f32>(&program, &options, Tolerance::F32)?,
        };
        grids.push(report);
    }
    let failed = grids.iter().filter(|report| !report.ok).count();
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

fn layouts(arguments: &VerifyArguments, model: &quadrille_spec::Model) -> Result<(Vec<Layout>, Vec<Skipped>), Failure> {
    if !arguments.all_grids {
        let layout = settings::layout(&arguments.layout, model, arguments.dtype, 8)?;
        return Ok((vec![layout], Vec::new()));
    }
    if arguments.layout.grid.is_some() {
        return Err(Failure::usage("--all-grids and --grid exclude each other; give --ranks with --all-grids"));
    }
    let (request, ranks, _) = settings::layout_request(&arguments.layout, arguments.dtype, 8)?;
    let (mut layouts, mut skipped) = (Vec::new(), Vec::new());
    let mut last: Option<SpecError> = None;
    for grid in Grid::all(ranks) {
        let mut request = request.clone();
        request.grid = grid.with_order(arguments.layout.order);
        match Layout::new(model, &request) {
            Ok(layout) => layouts.push(layout),
            Err(error) => {
                skipped.push(Skipped { grid: grid.to_string(), reason: error.to_string() });
                last = Some(error);
            }
        }
    }
    match last {
        Some(error) if layouts.is_empty() => Err(error.into()),
        _ => Ok((layouts, skipped)),
    }
}

fn text(grids: &[VerifyReport], skipped: &[Skipped]) -> String {
    let header = ["grid", "activations", "loss", "gradients", "norm", "weights", "ledger", "result"];
    let rows: Vec<Vec<String>> = grids
        .iter()
        .map(|report| {
            let differences = [report.loss_diff, report.grad_diff, report.norm_diff, report.weight_diff];
            let ledger = if report.ledger_equal { "equal" } else { "UNEQUAL" };
            let result = match (report.ok, report.replicas_equal) {
                (true, _) => "ok".to_owned(),
                (false, false) => "REPLICAS DIFFER".to_owned(),
                (false, true) => format!("DIFFERS ({})", report.grad_diff_in),
            };
            [report.grid.clone(), report.activations.clone()]
                .into_iter()
                .chain(differences.map(|difference| format!("{difference:.1e}")))
                .chain([ledger.to_owned(), result])
                .collect()
        })
        .collect();
    let mut text = table(&header, &rows);
    for Skipped { grid, reason } in skipped {
        text += &format!("skipped {grid}: {reason}\n");
    }
    text
}
