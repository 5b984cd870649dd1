//! Reports: one documented type for each document, which serializes and deserializes, and has a JSON schema ([`schemas`]). Text,
//! tables, rows of comma-separated values and pages are views of reports.
//!
//! - [`explained`]: a layout, of which [`ledger`] and [`simulation`] are parts; [`recomputation`]; [`lesson`]: the communication of a
//!   rank, and the reasons for it.
//! - [`plan`](mod@plan): searches; [`papers`]: those of the published planners, and printed figures beside ours.
//! - [`published`] and [`local`]: predicted beside measured steps; [`calibration`], [`import`], [`collectives`] and
//!   [`bench`](mod@bench): measurements.
//! - [`verification`]: layouts held against the serial model; [`evaluation`] and [`generation`]: what a checkpoint's model says.
//! - [`mod@checkpoint`] and [`contents`]: what checkpoints and files of tokens hold; [`conversion`]s of both.
//! - [`run`]: a run's folder; [`sweep`]: the best layouts by one or two numbers; [`curve`](mod@curve): values over steps.
//!
//! Documents are what pages draw (crate `pages`). [`summary`] tells models and layouts in words,
//! [`candidate`] those that a search has found. A [`Text`] is prose and [tables](fn@table), which are laid out when they are
//! shown, for a terminal or in full ([`Style`]); [`csv`](fn@csv) is for other programs; [`plain`](mod@plain) makes text that
//! quotes files fit for a terminal. Nothing here prints or writes a file.
//!
//! ```
//! use std::ops::ControlFlow;
//!
//! use quadrille_report::run::{Prediction, Run, RunPage};
//! use quadrille_run::{Host, Prepared, RunSpec};
//! use quadrille_spec::{Cluster, Layout, LayoutRequest, Model};
//!
//! let model = Model::gpt(1, 8, 2, 256, 16);
//! let layout = Layout::new(&model, &LayoutRequest::new("x=2,data=2".parse()?, 4))?;
//! let spec = RunSpec { steps: 4, threads: Some(1), ..RunSpec::new(model, layout) };
//! let folder = tempfile::tempdir()?;
//! let out = folder.path().join("run");
//! Prepared::begin(spec, Some(&out), &Host::default())?.run(&mut |_| ControlFlow::Continue(()))?;
//!
//! let run = Run::read(&out)?;
//! assert_eq!(run.steps.len(), 4);
//! let prediction = Prediction::of(&run, Cluster::preset("local")?);
//! let page = RunPage::new(&run, &prediction);
//! assert_eq!((page.steps, page.ledger.equal), (4, Some(true)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod bench;
mod by_name;
pub mod calibration;
pub mod candidate;
pub mod checkpoint;
pub mod collectives;
pub mod contents;
pub mod conversion;
mod csv;
pub mod curve;
mod error;
pub mod evaluation;
pub mod explained;
pub mod generation;
pub mod import;
pub mod ledger;
pub mod lesson;
mod loads;
pub mod local;
pub mod papers;
pub mod plain;
pub mod plan;
pub mod published;
pub mod recomputation;
pub mod run;
pub mod schemas;
pub mod simulation;
pub mod sources;
mod style;
pub mod summary;
pub mod sweep;
mod sweep_text;
mod table;
mod text;
pub mod verification;

pub use by_name::ByName;
pub use csv::csv;
pub use error::ReportError;
pub use loads::{LoadedWork, UnequalLoads};
pub use quadrille_run::ReportVersion;
pub use style::{Role, Style};
pub use sweep_text::sweep_text;
pub use table::{Table, table};
pub use text::Text;
