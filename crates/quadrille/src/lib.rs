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
//! [`command_line`] is the program: what it is asked in words, and its documents.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod command_line;

mod arguments;
mod bars;
mod bench;
mod calibrate;
mod checkpoint_command;
mod convert;
mod data_arguments;
mod data_command;
mod device;
mod documents;
mod evaluate;
mod explain;
mod export;
mod failure;
mod flags;
mod generate;
mod launch;
mod layout_arguments;
mod layout_flags;
mod library;
mod memorize;
mod numbers;
mod output;
mod paper;
mod parse;
mod paths;
mod plan;
mod prune;
mod quantities;
mod report;
mod serve;
mod shell;
mod sweep;
mod terminal;
mod timeline;
mod train;
mod validate;
mod verify;
mod weights;

pub use library::{
    Error, Explanation, PlanReport, PlanRequest, PricedLayout, explain, plan, plan_until, prelude, report, resume,
    train, verify,
};

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

/// The page of the book about this library, whose example runs with the others.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/reference/library.md")]
struct BookPage;
