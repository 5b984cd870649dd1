//! Executes step programs: an interpreter per rank, parameters, optimizer, the training loop, and the proof that a
//! layout computes what the serial model computes.
//!
//! The path of a training step: [`train()`] starts the ranks; each builds a [`RankEngine`] and calls
//! [`RankEngine::step`], which runs the program's pass section once per microbatch and then its update section,
//! one function per operation kind (`execute/`). Values live in `slots`, taken and given back where the program's
//! lifetimes say.

mod agreement;
mod backend;
mod borrow;
mod comparison;
mod divergence;
mod error;
mod evaluate;
mod execute;
mod generate;
mod hyper;
mod initial;
mod ledger;
mod not_finite;
mod pipeline;
mod random_batch;
mod rank;
mod rank_run;
mod reference;
mod rows;
mod samples;
mod saving;
mod shard;
mod slots;
mod state;
mod trace;
mod train;
mod tuning;
mod verify;
mod weights;

pub use backend::{
    AttentionMask, Backend, Cpu, ElementMask, Gamma, Positions, Statistics, Totals, Update, UpdateRule, View, ViewMut,
};
pub use comparison::VerifyReport;
pub use divergence::{DivergencePolicy, OnDivergence, WINDOW};
pub use error::EngineError;
pub use evaluate::{EvaluateOutcome, Evaluation, Evaluator, ForwardOptions, evaluate};
pub use execute::transpose;
pub use generate::{
    Finish, GenerateOptions, GenerateOutcome, GeneratedSequence, GenerationPrograms, Logits, Sampling, generate,
    logits, logits_program,
};
pub use hyper::{Hyper, schedule};
pub use initial::InitialValues;
pub use random_batch::random_batch;
pub use rank::{Pace, RankEngine, StepOutcome};
pub use reference::{Reference, SerialBatch};
pub use rows::Rows;
pub use samples::{BatchSource, OwnSamples, Samples};
pub use saving::{OnSaveFailure, Saving};
pub use shard::{Run, Shard, assemble};
pub use state::{OwnTile, Restore, tensor_shapes, writers};
pub use trace::{RankTrace, TracedOperation, TracedTransfer};
pub use train::{
    RankReport, RankStep, RunEvent, Start, StepRecord, TrainOptions, TrainOutcome, Validation, WAITING, train,
};
pub use tuning::MatmulChoices;
pub use verify::{Tolerance, VerifyOptions, take_part, verify};
pub use weights::Weights;

/// The element types that ranks can train in.
pub trait Real: quadrille_tensor::Element + quadrille_comm::Element + quadrille_checkpoint::Number {}

impl<T: quadrille_tensor::Element + quadrille_comm::Element + quadrille_checkpoint::Number> Real for T {}
