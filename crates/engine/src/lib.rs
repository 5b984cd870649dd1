//! Executes step programs: an interpreter per rank, parameters, optimizer, the training loop.
//!
//! The path of a training step: [`train()`] starts the ranks; each builds a [`RankEngine`] and calls
//! [`RankEngine::step`], which runs the program's pass section once per microbatch and then its update section,
//! one function per operation kind (`execute/`). Values live in `slots`, taken and given back where the program's
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

mod agreement;
mod algorithms;
mod allocate;
mod backend;
mod borrow;
mod carried;
mod choices;
mod copies;
mod device;
mod divergence;
mod error;
mod evaluate;
mod execute;
mod fusion;
mod generate;
mod hyper;
mod initial;
mod kept;
mod ledger;
mod loss_scale;
mod masks;
mod not_finite;
mod observe;
mod on_cpu;
mod optimizer;
mod options;
mod pipeline;
mod predictions;
mod queues;
mod random_batch;
mod rank;
mod rank_run;
mod readings;
mod records;
mod routed;
mod rows;
mod samples;
mod saving;
mod section;
mod shard;
mod slots;
mod state;
mod state_times;
mod states;
mod streamed;
mod tier;
mod trace;
mod train;
mod tuning;
mod weights;
mod work;

pub use algorithms::{Algorithms, ProductAlgorithm};
pub use backend::{
    AttentionKernels, AttentionMask, Backend, Cpu, ElementMask, ExpertKernels, Gamma, Kind, LayerKernels,
    ParameterUpdate, Positions, RankMemory, Statistics, Totals, Update, UpdateRule, View, ViewMut,
};
pub use choices::Chosen;
pub use device::{Device, Processor, Yardstick};
pub use divergence::{DivergencePolicy, MOST_SKIPPED, OnDivergence, WINDOW};
pub use error::EngineError;
pub use evaluate::{EvaluateOutcome, Evaluation, Evaluator, ForwardOptions, evaluate};
pub use execute::transpose;
pub use generate::{
    Finish, GenerateOptions, GenerateOutcome, GeneratedSequence, GenerationPrograms, Logits, Sampling, generate,
    logits, logits_program,
};
pub use hyper::{Hyper, schedule};
pub use initial::InitialValues;
pub use loss_scale::LossScale;
pub use masks::Masks;
pub use observe::{ObserveOptions, Observed, ObservedStep, observe};
pub use on_cpu::{
    evaluate_on_cpu, generate_on_cpu, observe_on_cpu, time_states_on_cpu, train_on_cpu, workbench_on_cpu,
};
pub use options::{Start, TrainOptions, Validation};
pub use predictions::Predictions;
pub use random_batch::{fill_randomly, random_batch, random_full_batch};
pub use rank::{Pace, RankEngine, StepOutcome};
pub use records::{DeviceUse, GraphUse, RankReport, RankStep, RunEvent, StepRecord, TrainOutcome, WAITING};
pub use routed::{Routed, loads_by_block};
pub use rows::Rows;
pub use samples::{BatchSource, OwnSamples, Samples};
pub use saving::{OnSaveFailure, Saving};
pub use shard::{Held, Run, Shard, assemble};
pub use state::{OwnTile, Restore, tensor_shapes, writers};
pub use state_times::{StateTimes, time_states};
pub use trace::{RankTrace, TracedOperation, TracedTransfer};
pub use train::train;
pub use tuning::MatmulChoices;
pub use weights::Weights;
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
