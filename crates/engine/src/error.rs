//! Errors of a rank.

use std::error::Error;

use quadrille_checkpoint::CheckpointError;
use quadrille_comm::{Aborted, JobFailure};
use quadrille_files::ScratchError;
use quadrille_spec::SpecError;
use quadrille_step::StepError;

/// A run that cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The job was stopped, by this rank or another.
    #[error(transparent)]
    Aborted(#[from] Aborted),
    /// A rank failed; names it, its layer and operation.
    #[error(transparent)]
    Job(#[from] JobFailure),
    /// A program made for numbers or shards that the engine does not have.
    #[error(
        "the program stores numbers, or computes, otherwise than an engine in {dtype}; build it with StepProgram::new"
    )]
    Formats {
        /// The layout's type of elements.
        dtype: quadrille_spec::ElementType,
    },
    /// The error of a callback: of what fills in samples, or takes what is generated.
    #[error(transparent)]
    Callback(Box<dyn Error + Send + Sync>),
    /// What a rank computes on has failed, in the words of its library.
    #[error(transparent)]
    Device(Box<dyn Error + Send + Sync>),
    /// Work that is measured would become graphs.
    #[error("rows of equal work would become graphs, which is not what is measured; leave graphs=on out")]
    Graphs,
    /// Products were tuned on something else.
    #[error("products were tuned on {of}, and this rank computes on {here}; tune them here, or name another file")]
    OtherAlgorithms {
        /// On what.
        of: String,
        /// What it is here.
        here: String,
    },
    /// A batch holds a token that the model does not know.
    #[error("token {token} is not below the vocabulary of {vocab}; use the tokenizer that the model is made for")]
    UnknownToken {
        /// The token.
        token: u32,
        /// The model's number of tokens.
        vocab: usize,
    },
    /// Every target of a step is ignored.
    #[error("no target of step {step} counts: all are ignored; use longer documents, a larger batch, or ignore fewer")]
    NoTargets {
        /// The step, counted from 1.
        step: u64,
    },
    /// Every target of an evaluation is ignored.
    #[error("no target of {samples} samples counts: all are ignored; evaluate more samples, or ignore fewer targets")]
    NothingCounts {
        /// How many were evaluated.
        samples: u64,
    },
    /// A source of one kind of samples serves a model of the other.
    #[error("the model reads {read}, and its data are {given}; use another model or other data")]
    OtherSamples {
        /// What the model reads.
        read: &'static str,
        /// What the source has.
        given: &'static str,
    },
    /// A program cannot be built.
    #[error(transparent)]
    Program(#[from] StepError),
    /// What is to be generated cannot be.
    #[error("{rule}; {remedy}")]
    Generation {
        /// What stands in the way.
        rule: String,
        /// What would help.
        remedy: String,
    },
    /// What was generated cannot be shown.
    #[error("cannot write to standard output")]
    Output(#[source] std::io::Error),
    /// Tokens have chosen the experts of a rank more often than its buffers have room for.
    #[error(
        "{rows} rows of '{value}' come to this rank's experts, and there is room for {room}: loads are more unequal than expected; \
         use `layout.expert_rows` {times}, a larger balance loss, biases of routers, or a capacity"
    )]
    TooManyRows {
        /// Whose rows.
        value: String,
        /// How many.
        rows: usize,
        /// How many at most.
        room: usize,
        /// The least room that would do, as a multiple of equal loads.
        times: usize,
    },
    /// A program issues a collective that steps have no use for.
    #[error("programs have no {kind} of values")]
    NoSuchCollective {
        /// Its name.
        kind: &'static str,
    },
    /// An operation uses a storage that holds nothing: freed, not yet made, or in flight in a collective.
    #[error("the program uses the storage of '{value}' while it is not there (freed, or in flight without a wait)")]
    NotLive {
        /// A value in that storage.
        value: String,
    },
    /// Optimizer states cannot lie in a file, or not be moved.
    #[error(transparent)]
    States(#[from] ScratchError),
    /// The thread that moves optimizer states between the device and the host's memory cannot be started.
    #[error("no thread for the copies of optimizer states; run fewer ranks or threads in this process")]
    NoThread(#[source] std::io::Error),
    /// That thread has ended before its time.
    #[error("the thread that copies optimizer states has ended; what it has written on standard error says why")]
    StatesLost,
    /// A program waits for states that are not on their way.
    #[error("the program waits for the {kind} of bucket {bucket}, which it has not begun")]
    NotMoved {
        /// The bucket's number.
        bucket: usize,
        /// Which way.
        kind: &'static str,
    },
    /// The log cannot be written.
    #[error("cannot write the log {path}")]
    Log {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The loss or the gradient of a step is not finite, or the loss is far above those before. Nothing was updated by it.
    #[error(
        "the {quantity} of step {step} is {value}; {origin}; lower the learning rate, clip gradients, or skip such steps"
    )]
    Diverged {
        /// The step, counted from 1.
        step: u64,
        /// `loss` or `gradient norm`.
        quantity: &'static str,
        /// Its value.
        value: f64,
        /// The first layer and operation that gave such a number, or the limit.
        origin: String,
    },
    /// So many steps in a row were skipped that the run learns nothing any more.
    #[error(
        "{} steps in a row were skipped, up to step {step}: a run that skips as many learns nothing; the last {cause}",
        crate::MOST_SKIPPED
    )]
    NothingApplied {
        /// The last of them, counted from 1.
        step: u64,
        /// Its loss or gradient norm, the loss scale and the remedy.
        cause: String,
    },
    /// A checkpoint cannot be read.
    #[error(transparent)]
    Unreadable(#[from] CheckpointError),
    /// A checkpoint of another model.
    #[error("{path} is of another model: it {what} the tensor {tensor}; name the model that it was written with")]
    OtherModel {
        /// The checkpoint.
        path: String,
        /// Whether the model or the checkpoint has a tensor that the other lacks.
        what: &'static str,
        /// Its name and shape.
        tensor: String,
    },
    /// A checkpoint whose masks are not those of the program.
    #[error(
        "{path} {} the tensor {tensor}, and the program was built for another mask; build it by `Start::program`",
        if *prunes { "prunes" } else { "does not prune" }
    )]
    OtherMask {
        /// The checkpoint.
        path: String,
        /// Whether it has a mask of the tensor.
        prunes: bool,
        /// The tensor's name.
        tensor: String,
    },
    /// A checkpoint with a weight that its own mask prunes, and that is not zero.
    #[error("{path}: a weight of {tensor} is not zero, and its mask prunes it; prune the checkpoint anew")]
    NotPruned {
        /// The checkpoint.
        path: String,
        /// The tensor's name.
        tensor: String,
    },
    /// Masks that keep more of a tile than the program was built for.
    #[error(
        "{kept} elements of a tile of {tensor} are kept, and the program has room for {room}; build it by `Start::program`"
    )]
    TooManyKept {
        /// The tensor's name.
        tensor: String,
        /// By the mask.
        kept: usize,
        /// By the program.
        room: usize,
    },
    /// A program of a pruned model was given no masks.
    #[error("which elements of {tensor} are kept is not known; load a pruned checkpoint before the first step")]
    NoMask {
        /// The tensor's name.
        tensor: String,
    },
    /// A checkpoint could not be written, and the run was to stop then.
    #[error("the checkpoint of step {step} could not be written: {reason}; earlier ones are as they were")]
    Checkpoint {
        /// The step, counted from 1.
        step: u64,
        /// Why, in the words of the rank that failed.
        reason: String,
    },
}

impl From<SpecError> for EngineError {
    fn from(error: SpecError) -> Self {
        Self::Program(error.into())
    }
}

impl EngineError {
    /// A device's error.
    pub fn of_device(error: impl Error + Send + Sync + 'static) -> Self {
        Self::Device(Box::new(error))
    }

    /// A callback's error.
    pub fn of_callback(error: impl Error + Send + Sync + 'static) -> Self {
        Self::Callback(Box::new(error))
    }
}
