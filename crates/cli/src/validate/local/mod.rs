//! `quadrille validate local`: steps of many layouts, predicted by the native model and measured on this machine.
//!
//! The layouts are `quadrille_measure`'s, what was found is told by the crate `report`; [`publish`] alone prints and writes.

mod arguments;

use quadrille_engine::Hyper;
use quadrille_measure::local::GridsSpec;
use quadrille_pages::local_page;
use quadrille_report::local::LocalReport;
use quadrille_run::LayoutDefaults;

pub use self::arguments::ValidateLocalArguments;
use crate::failure::Failure;
use crate::launch::Launch;
use crate::output::{check_writable, csv, json_value, print_json, print_text, write_file};
use crate::{bars, flags, paths};

/// Predicts, measures, compares.
pub fn run(arguments: &ValidateLocalArguments, launch: &Launch) -> Result<(), Failure> {
    // Measuring takes its time: files that cannot be written are found before.
    let written = paths::asked([("--csv", &arguments.csv), ("--html", &arguments.html)]);
    paths::check_described(&written, &arguments.model, &arguments.layout)?;
    if launch.is_first() {
        written.iter().try_for_each(|(flag, path)| check_writable(flag, path))?;
    }
    let mut grids = spec(arguments, launch)?.prepare()?;
    grids.skipped = flags::spelled_reasons(grids.skipped);
    let bar = bars::counted(launch, grids.case.layouts.len());
    let comparison = grids.case.measure(launch.device, &mut |progress| {
        bar.set_position(progress.done as u64);
        bar.set_message(progress.next.unwrap_or_default().to_owned());
    })?;
    bar.finish_and_clear();
    if launch.is_first() {
        let cores = quadrille_run::processors();
        publish(arguments, &LocalReport { grids: &grids, comparison: &comparison, cores })?;
    }
    Ok(comparison.check_ledgers()?)
}

/// What flags say.
fn spec(arguments: &ValidateLocalArguments, launch: &Launch) -> Result<GridsSpec, Failure> {
    let ValidateLocalArguments { model, layout, run, steps, .. } = arguments;
    GridsSpec::check_numbers(*steps, arguments.layouts)?;
    if layout.grid.is_some() {
        return Err(Failure::usage(
            "--grid: every grid of --ranks ranks is compared; give --ranks, and --axes to leave axes out",
        ));
    }
    let settings = model.settings("gpt-demo", Hyper::default())?;
    let layout = layout.said(arguments.dtype).open(&launch.defaults(&LayoutDefaults::USUAL)?)?;
    layout.check_interval()?;
    Ok(GridsSpec {
        model: settings.model,
        layout,
        axes: arguments.axes.clone(),
        layouts: arguments.layouts,
        hyper: run.hyper(settings.optimizer, *steps)?,
        steps: *steps,
        seed: run.seed(),
        threads: run.threads,
        timeout: run.timeout()?,
        collectives: run.collectives(),
        processes: launch.processes().clone(),
    })
}

/// Writes the files and prints: all that a run of the command leaves.
fn publish(arguments: &ValidateLocalArguments, report: &LocalReport) -> Result<(), Failure> {
    if let Some(path) = &arguments.csv {
        write_file("--csv", path, csv(report.rows()?)?.as_bytes())?;
    }
    if let Some(path) = &arguments.html {
        write_file("--html", path, local_page(&json_value(&report.page())?).as_bytes())?;
    }
    if arguments.json {
        return print_json(&report.document());
    }
    print_text(report.text())
}
