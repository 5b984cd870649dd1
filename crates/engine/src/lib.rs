//! Executes step programs: an interpreter per rank, parameters, optimizer, the training loop.
//!
//! # A step at a glance
//!
//! [`train()`] starts the ranks. Each builds a [`RankEngine`] and calls [`RankEngine::step`] in a loop
//! (`training/rank_run.rs`):
//!
//! ```text
//! RankEngine::step                    rank_engine.rs
//!   Pipeline::run_passes              pipeline/               for each pass of the schedule:
//!     receive                                                   activations or gradients of a neighboring stage
//!     StepState::load_samples         state/samples.rs          tokens or patches of the microbatch
//!     Interpreter::run                interpreter/section.rs    for each operation of the pass:
//!       Storages::begin               state/storages.rs           memory for values that are born
//!       Interpreter::execute          interpreter/                kernels of the backend; issue and wait of collectives
//!       Storages::end                                             memory of values that die
//!     send
//!   Interpreter::run                  interpreter/update.rs   the update: reduced gradients, their norm, AdamW (optimizer/)
//!   Backend::totals                   backend/                loss, norm and targets of the step
//! ```
//!
//! `state/` has what a rank holds and how checkpoints see it, `observe/` what is recorded of a step, `backend/` the traits of
//! devices and the processor, `generate/` passes of generation, `training/` the run around the steps, `work/` pieces of
//! work for calibration.
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
    AttentionKernels, AttentionMask, Backend, Cpu, ElementMask, EndKernels, ExpertKernels, FusedKernels, Gamma, Kind,
    LayerKernels, NoFusedKernels, NormInput, NormKernels, ParameterUpdate, Positions, RankMemory, Statistics, Totals,
    Update, UpdateRule, View, ViewMut,
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

/// Types of arithmetic: `f32`, `f64`.
pub trait Real:
    quadrille_tensor::Element + quadrille_comm::Element + quadrille_checkpoint::Number + bytemuck::Pod
{
}

impl<T: quadrille_tensor::Element + quadrille_comm::Element + quadrille_checkpoint::Number + bytemuck::Pod> Real for T {}

/// Storage types of values: `f32`, `f64`, `bf16`, `f16`.
pub trait Values: quadrille_tensor::Stored<Real: Real> + quadrille_comm::Element + bytemuck::Pod {}

impl<T: quadrille_tensor::Stored<Real: Real> + quadrille_comm::Element + bytemuck::Pod> Values for T {}
