//! Plans, runs and proves the parallel training of transformers.
//!
//! One description of a training step, the step program, is priced by the planner, executed by the engine and held against a
//! serial model. The questions to ask of a model and a layout are functions:
//!
//! | function | answers |
//! |---|---|
//! | [`plan`](fn@plan) | which layouts of a cluster's devices are the fastest, how long a step takes, whether it fits |
//! | [`explain`](fn@explain) | what one layout does and when: its program, its bytes and FLOPs by rank, its timeline |
//! | [`verify`](fn@verify) | whether a layout computes what the serial model computes |
//! | [`train`](fn@train), [`resume`] | a run, with a callback for what happens |
//! | [`report`](fn@report) | the page of a run |
//!
//! ```
//! use quadrille::prelude::*;
//!
//! // The fastest layouts of eight devices for 64 sequences a step, as this program's engine runs them.
//! let request = PlanRequest {
//!     framework: Some("quadrille".to_owned()),
//!     ..PlanRequest::new("gpt2-124m", "dgx-a100", 8, 64)
//! };
//! let best = &plan(&request)?.plans[0];
//! println!("{}: {:.3} s a step, {} bytes on the fullest device", best.notation, best.time_s, best.memory_bytes);
//!
//! // The price of another layout, in detail.
//! let model = Model::preset("gpt2-124m")?;
//! let cluster = Cluster::preset("dgx-a100")?;
//! let layout = Layout::new(&model, &LayoutRequest::new("x=2,data=4".parse()?, 64))?;
//! let explained = explain(&model, &cluster, Framework::QUADRILLE, &layout)?;
//! assert!(explained.price.seconds >= best.time_s);
//! println!("rank 0 sends {} bytes a step\n{}", explained.bytes_sent(0), explained.timeline(100));
//! # Ok::<(), Error>(())
//! ```
//!
//! A layout is proven and trained in the same words:
//!
//! ```
//! use quadrille::prelude::*;
//!
//! let model = Model::gpt(2, 32, 2, 256, 16); // two blocks of 32 columns and two heads, for bytes in sequences of 16
//! let proven = LayoutRequest { dtype: ElementType::F64, ..LayoutRequest::new("x=2,pipe=2".parse()?, 4) };
//! assert!(verify(&model, &Layout::new(&model, &proven)?, 2)?.ok);
//!
//! let layout = Layout::new(&model, &LayoutRequest::new("x=2,pipe=2".parse()?, 4))?;
//! let spec = RunSpec { steps: 3, threads: Some(1), ..RunSpec::new(model, layout) };
//! let outcome = train(spec, None, &mut |event| {
//!     if let RunEvent::Step(step) = event {
//!         println!("step {}: loss {:.3}", step.step, step.loss);
//!     }
//!     ControlFlow::Continue(())
//! })?;
//! outcome.check()?; // bytes, FLOPs and memory were those that were predicted
//! # Ok::<(), Error>(())
//! ```
//!
//! The crates below are here under their short names, for what these functions do not cover: [`spec`] (models, layouts,
//! clusters), [`step`] (the step program), [`cost`] (prices and simulations), [`search`] (the planner), [`comm`] (ranks and
//! collectives; ranks as processes by [`comm_mpi`]), [`engine`], [`run`] (what decides a run; evaluations and generations of
//! checkpoints), [`measure`] (calibration and benches), [`study`] (what models learn by heart), [`findings`] (what was found, as
//! text, documents and rows), [`pages`] (the same in a browser), [`proof`], [`checkpoint`], [`hugging_face`], [`data`].
//!
//! The program `quadrille` is the crate `quadrille-cli`; this library has no command line, no server and no progress bars.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

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

pub use quadrille_checkpoint as checkpoint;
pub use quadrille_comm as comm;
pub use quadrille_comm_mpi as comm_mpi;
pub use quadrille_cost as cost;
pub use quadrille_data as data;
pub use quadrille_engine as engine;
pub use quadrille_hugging_face as hugging_face;
pub use quadrille_measure as measure;
pub use quadrille_pages as pages;
pub use quadrille_plan as search;
pub use quadrille_report as findings;
pub use quadrille_run as run;
pub use quadrille_spec as spec;
pub use quadrille_step as step;
pub use quadrille_study as study;
pub use quadrille_verify as proof;

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

/// The page of the book about this library, whose example runs with the others.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/reference/library.md")]
struct BookPage;
