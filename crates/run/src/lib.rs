//! A training run: what decides it, its folder, its data, how it begins, goes on and ends.
//!
//! A [`RunSpec`] says everything that decides a run. [`Prepared::begin`] holds it against files, folders and the machine,
//! [`Prepared::run`] takes the steps and tells a callback what happens, [`RunOutcome`] says what came of them. A run with a
//! folder keeps its records there ([`Recorded`]), and its specification, so that [`Prepared::resume`] goes on with it;
//! [`RunChanges`] say what is to be other from then on.
//!
//! ```
//! use std::ops::ControlFlow;
//!
//! use quadrille_engine::RunEvent;
//! use quadrille_run::{Ended, Host, Prepared, Recorded, RunChanges, RunSpec};
//! use quadrille_spec::{Layout, LayoutRequest, Model};
//!
//! let model = Model::gpt(1, 8, 2, 256, 16);
//! let layout = Layout::new(&model, &LayoutRequest::new("x=2,data=2".parse()?, 4))?;
//! let spec = RunSpec { steps: 4, threads: Some(1), ..RunSpec::new(model, layout) };
//! let folder = tempfile::tempdir()?;
//! let out = folder.path().join("run");
//!
//! let mut seen = Vec::new();
//! let outcome = Prepared::begin(spec, Some(&out), &Host::default())?.run(&mut |event| {
//!     if let RunEvent::Step(record) = event {
//!         seen.push(record.step);
//!     }
//!     ControlFlow::Continue(())
//! })?;
//! assert_eq!((outcome.check()?.ended, seen), (Ended::Whole, vec![1, 2, 3, 4]));
//!
//! // Two steps more, of the same run.
//! let more = RunChanges { steps: Some(6), ..RunChanges::default() };
//! Prepared::resume(&out, more, &Host::default())?.run(&mut |_| ControlFlow::Continue(()))?;
//! assert_eq!(Recorded::read(&out)?.steps.len(), 6);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`described`] reads models, layouts and clusters as users name them; [`Settings`] are a model with fields in place of its own,
//! a [`SaidLayout`] is what is said of a layout, and an [`OpenLayout`] one of which not everything is said.
//!
//! Nothing here prints, reads a command line or ends the process. Errors are [`RunError`]s, which know what is at fault
//! ([`RunError::blame`]); a [`Refusal`] of what was asked for knows the choices that it names, so that a command line can
//! call them by its flags ([`Refusal::spelled`]).
//!
//! An [`Evaluation`] says the loss of a checkpoint's model, a [`Generation`] continues texts with it; both run the model
//! [`Forward`]. They and other studies share what runs have: [`Source`] is what is read, [`TokenizerRule`] says by which
//! tokenizer, [`resources`] whether the machine is large enough, [`Processes`] where ranks live.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod begin;
mod companions;
pub mod described;
pub mod documents;
mod error;
mod evaluation;
mod execute;
mod folder;
mod forward;
mod generation;
mod imbalance;
mod known;
mod loads;
mod open_layout;
mod outputs;
mod paths;
mod prepare;
mod processes;
mod refusal;
pub mod resources;
mod said_layout;
mod same_data;
mod settings;
mod signals;
mod source;
mod spec;
mod summary;
mod tokenizer_rule;
mod trace;
mod tuned;
pub mod units;
mod version;

pub use companions::{carry_companions, check_companions_of};
pub use error::RunError;
pub use evaluation::Evaluation;
pub use execute::{Ended, OnEvent, RunOutcome};
pub use folder::{Description, Event, FILES, Known, Lock, Recorded, checkpoints};
pub use forward::Forward;
pub use generation::{ChatSpec, Generation, GenerationSpec};
pub use imbalance::imbalance;
pub use known::KnownRun;
pub use loads::ExpertLoads;
pub use open_layout::{LayoutDefaults, OpenLayout};
pub use paths::written_over;
pub use prepare::{Host, Prepared, ProgramRun};
pub use processes::{Processes, cores, processors, timeout};
pub use refusal::{Refusal, Setting};
pub use said_layout::SaidLayout;
pub use settings::{ModelSource, Settings, assignments};
pub use signals::Signals;
pub use source::{DEMO_TOKENS, OnPreparation, SkippedFile, Source, SourceOverview, describe_tokenizer, open_files};
pub use spec::{
    CheckpointSpec, CollectivesSpec, DataChanges, DataComparison, DataPath, DataSpec, HeldOut, LayoutSpec,
    OptimizerSpec, OutputSpec, RunChanges, RunSpec, StartSpec, StatesSpec, TuningSpec, ValidationSpec, Warmup,
    layout_of_json, shown_layout,
};
pub use summary::{TrainLedgers, TrainSummary};
pub use tokenizer_rule::{TokenizerOrigin, TokenizerRule, recorded_special};
pub use trace::{create_trace, write_trace};
pub use version::ReportVersion;
