//! Executes step programs: an interpreter per rank, parameters, optimizer, the training loop.
//!
//! The path of a training step: [`train()`] starts the ranks; each builds a [`RankEngine`] and calls
//! [`RankEngine::step`], which runs the program's pass section once per microbatch and then its update section,
//! one function per operation kind (`interpreter/`). Values live in storages, taken and given back where the program's
//! lifetimes say.
//!
//! ```
//! use quadrille_engine::{Cpu, Hyper, RunEvent, TrainOptions, random_batch, train};
//! use quadrille_spec::{Layout, LayoutRequest, Model};
//! use quadrille_step::StepProgram;
//!
//! let model = Model::preset("gpt-tiny")?;
//! let layout = Layout::new(&model, &LayoutRequest::new("x=2,data=2".parse()?, 4))?;
//! let program = StepProgram::new(&model, &layout)?;
//! let batch = random_batch(&model, 1, layout.seq_len);
//! let mut print = |event: RunEvent| {
//!     if let RunEvent::Step(record) = event {
//!         println!("step {}: loss {:.4}", record.step, record.loss);
//!     }
//!     Ok(())
//! };
//! let outcome = train::<Cpu<f32>>(&program, &TrainOptions::new(2, Hyper::default(), 1), &batch, None, &mut print)?;
//! assert_eq!(outcome.counted, Some(outcome.predicted)); // bytes, FLOPs and memory of the last step
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::print_stdout, clippy::print_stderr)
)]

mod backend;
mod communicators;
mod error;
mod evaluate;
mod generate;
mod interpreter;
mod observe;
mod optimizer;
mod pipeline;
mod rank_engine;
mod rank_program;
mod state;
mod training;
mod work;

pub use backend::algorithms::{Algorithms, ProductAlgorithm};
pub use backend::device::{Device, Processor, Yardstick};
pub use backend::on_cpu::{
    evaluate_on_cpu, generate_on_cpu, observe_on_cpu, time_states_on_cpu, train_on_cpu, workbench_on_cpu,
};
pub use backend::{
    AttentionKernels, AttentionMask, Backend, Cpu, ElementMask, ExpertKernels, Gamma, Kind, LayerKernels,
    ParameterUpdate, Positions, RankMemory, Statistics, Totals, Update, UpdateRule, View, ViewMut,
};
pub use error::EngineError;
pub use evaluate::{EvaluateOutcome, Evaluation, Evaluator, ForwardOptions, evaluate};
pub use generate::{
    Finish, GenerateOptions, GenerateOutcome, GeneratedSequence, GenerationPrograms, Logits, Sampling, generate,
    logits, logits_program,
};
pub use interpreter::matmul_choices::MatmulChoices;
pub use interpreter::transpose;
pub use observe::choices::Chosen;
pub use observe::observed_run::{ObserveOptions, Observed, ObservedStep, observe};
pub use observe::predictions::Predictions;
pub use observe::routed::{Routed, loads_by_block};
pub use observe::state_times::{StateTimes, time_states};
pub use observe::trace::{RankTrace, TracedOperation, TracedTransfer};
pub use optimizer::hyper::{Hyper, schedule};
pub use optimizer::loss_scale::LossScale;
pub use pipeline::Pace;
pub use rank_engine::{RankEngine, StepOutcome};
pub use state::checkpoint_tiles::{OwnTile, Restore, tensor_shapes, writers};
pub use state::initial::InitialValues;
pub use state::masks::Masks;
pub use state::random_batch::{fill_randomly, random_batch, random_full_batch};
pub use state::rows::Rows;
pub use state::samples::{BatchSource, OwnSamples, Samples};
pub use state::shard::{Held, Run, Shard, assemble};
pub use state::weights::Weights;
pub use training::divergence::{DivergencePolicy, MOST_SKIPPED, OnDivergence, WINDOW};
pub use training::options::{Start, TrainOptions, Validation};
pub use training::records::{DeviceUse, GraphUse, RankReport, RankStep, RunEvent, StepRecord, TrainOutcome, WAITING};
pub use training::saving::{OnSaveFailure, Saving};
pub use training::train::train;
pub use work::{Prepared, Sweep, Work, Workbench, exchange, second_elements, workbench};

/// What ranks compute in: `f32`, `f64`.
pub trait Real:
    quadrille_tensor::Element + quadrille_comm::Element + quadrille_checkpoint::Number + bytemuck::Pod
{
}

impl<T: quadrille_tensor::Element + quadrille_comm::Element + quadrille_checkpoint::Number + bytemuck::Pod> Real for T {}

/// What ranks store values in: `f32`, `f64`, `bf16`, `f16`.
pub trait Values: quadrille_tensor::Stored<Real: Real> + quadrille_comm::Element + bytemuck::Pod {}

impl<T: quadrille_tensor::Stored<Real: Real> + quadrille_comm::Element + bytemuck::Pod> Values for T {}
