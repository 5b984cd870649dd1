//! The questions of the library: each is a library's below, here with one error and one prelude.

mod error;
pub mod prelude;

use std::path::Path;

pub use error::Error;
pub use quadrille_cost::Explanation;
use quadrille_cost::native::{Framework, Learned};
use quadrille_pages::run_page;
pub use quadrille_plan::native::PlanRequest;
use quadrille_plan::native::{Answer, Cancel, Resolved};
pub use quadrille_report::plan::{PlanReport, PricedLayout};
use quadrille_report::run::{Prediction, Run, RunPage};
use quadrille_run::{Host, OnEvent, Prepared, RunChanges, RunError, RunOutcome, RunSpec};
use quadrille_spec::{Cluster, Layout, Model};
use quadrille_step::StepProgram;
use quadrille_verify::{Reference, VerifyOptions, VerifyReport, verify_on_cpu};

/// Searches every legal layout; seconds are those of the discrete events of the program that the framework runs.
///
/// ```
/// use quadrille::prelude::*;
///
/// let report = plan(&PlanRequest { top: Some(3), ..PlanRequest::new("llama2-7b", "dgx-h100", 16, 128) })?;
/// let best = &report.plans[0];
/// println!("{} of {} grids are legal", report.counts.legal_grids, report.counts.grids);
/// println!("{}: {:.3} s a step", best.notation, best.time_s);
/// println!("{}", report.layout_file(best)?); // for `quadrille train --layout`
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// A field that breaks its rule; a layout that cannot be priced; no layout that is legal and fits, with reasons and remedies.
pub fn plan(request: &PlanRequest) -> Result<PlanReport, Error> {
    plan_until(request, &Cancel::default())
}

/// Searches as [`plan`] does, until the search is cancelled.
///
/// # Errors
/// As [`plan`]; a search that was cancelled.
pub fn plan_until(request: &PlanRequest, cancel: &Cancel) -> Result<PlanReport, Error> {
    let Resolved { question, wanted } = request.resolve(cancel, &Learned::default())?;
    Ok(PlanReport::new(&Answer::new(&question, &wanted)?)?)
}

/// Explains a layout of a model on a cluster, as a framework runs it.
///
/// # Errors
/// A layout that has no program, or does not lie on the cluster.
pub fn explain(model: &Model, cluster: &Cluster, framework: Framework, layout: &Layout) -> Result<Explanation, Error> {
    Ok(quadrille_cost::explain(model, cluster, framework, layout)?)
}

/// Takes so many steps of a layout on ranks that are threads, on random samples, and holds them against the serial model: to
/// 1e-11 where the layout is of f64; of f32, values to 5e-5 and what the update makes of the gradients to 1e-6.
/// [`VerifyReport::ok`] says whether they are equal, and counted ledgers as predicted.
///
/// # Errors
/// A layout that has no program; a rank that failed.
pub fn verify(model: &Model, layout: &Layout, steps: u64) -> Result<VerifyReport, Error> {
    let program = StepProgram::new(model, layout)?;
    let options = VerifyOptions::new(steps, 1);
    Ok(verify_on_cpu(&program, &options, &mut Reference::new(&program, &options))?)
}

/// Trains as a specification says, on ranks that are threads. With a folder, which holds no run yet, records and
/// checkpoints are kept in it. [`RunOutcome::check`] says whether all was as predicted.
///
/// # Errors
/// A specification that cannot be run; a rank that failed; a record that cannot be written.
pub fn train(spec: RunSpec, folder: Option<&Path>, on_event: OnEvent) -> Result<RunOutcome, Error> {
    Ok(Prepared::begin(spec, folder, &Host::default())?.run(on_event)?)
}

/// Goes on with the run in a folder, from its newest checkpoint, as its own specification says but for the changes.
///
/// # Errors
/// As [`train`]; a folder without a run, or changes that the run cannot take.
pub fn resume(folder: &Path, changes: RunChanges, on_event: OnEvent) -> Result<RunOutcome, Error> {
    Ok(Prepared::resume(folder, changes, &Host::default())?.run(on_event)?)
}

/// The page of the run in a folder, as HTML that loads nothing from elsewhere: its curves, its ledgers, where the time of a
/// step goes, beside what was predicted for a cluster.
///
/// # Errors
/// A folder without a run, or one that cannot be read.
pub fn report(folder: &Path, cluster: &Cluster) -> Result<String, Error> {
    let run = Run::read(folder)?;
    let page = RunPage::new(&run, &Prediction::of(&run, cluster.clone()));
    let page = serde_json::to_value(page).map_err(RunError::Document)?;
    Ok(run_page(&page))
}
