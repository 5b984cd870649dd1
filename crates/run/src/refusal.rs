//! Input that cannot be used, in words that each caller spells in its own way.

use quadrille_spec::{Named, Unusable};

use crate::OptimizerSpec;

/// A choice of a run that messages name. A program calls it as it is called in a [`crate::RunSpec`]; a command line may call
/// it by a flag ([`Refusal::spelled`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Setting {
    /// The folder of a new run.
    Out,
    /// The folder of a run that goes on.
    Resume,
    /// [`crate::StartSpec::Parameters`].
    From,
    /// What is said of the model.
    Model,
    /// The number of tokens of the model.
    Vocabulary,
    /// [`crate::LayoutSpec::cluster`].
    Cluster,
    /// The grid of the layout.
    Grid,
    /// The number of ranks of a layout whose grid is open.
    Ranks,
    /// The type of values, in [`crate::RunSpec::layout`].
    Dtype,
    /// [`crate::RunSpec::steps`].
    Steps,
    /// [`crate::RunSpec::seed`].
    Seed,
    /// [`crate::DataSpec::paths`].
    Data,
    /// [`crate::DataSpec::tokenizer`].
    Tokenizer,
    /// [`crate::DataSpec::text_field`].
    TextField,
    /// [`crate::DataSpec::format`].
    Format,
    /// [`crate::DataSpec::binary`].
    Binary,
    /// [`crate::DataSpec::skip_bad_lines`].
    SkipBadLines,
    /// [`quadrille_data::SpecialTokens::parsed`] of [`crate::DataSpec::special`].
    ParseSpecial,
    /// [`crate::DataSpec::documents`].
    Documents,
    /// [`crate::HeldOut::Share`].
    HeldOutShare,
    /// [`crate::HeldOut::Files`].
    HeldOutFiles,
    /// [`crate::DataSpec::goldfish`].
    Goldfish,
    /// [`crate::CheckpointSpec::every`].
    CheckpointEvery,
    /// [`crate::CheckpointSpec::keep`].
    Keep,
    /// [`crate::ValidationSpec::every`].
    ValidateEvery,
    /// [`crate::ValidationSpec::batches`].
    ValidationBatches,
    /// [`quadrille_engine::DivergencePolicy::largest_loss`].
    LargestLoss,
    /// [`crate::RunSpec::loss_scale`].
    LossScale,
    /// [`crate::RunSpec::threads`].
    Threads,
    /// [`crate::RunSpec::timeout`].
    Timeout,
    /// [`crate::TuningSpec::File`].
    Tuning,
    /// [`crate::StatesSpec::Files`].
    States,
    /// [`crate::OutputSpec::log`].
    Log,
    /// [`crate::OutputSpec::trace`].
    Trace,
    /// [`crate::OptimizerSpec::learning_rate`], where it is not said among the other constants.
    LearningRate,
    /// A constant of [`crate::OptimizerSpec`], by its name there.
    Optimizer(&'static str),
    /// [`crate::GenerationSpec::max_tokens`].
    MaxTokens,
    /// [`crate::GenerationSpec::stop`].
    Stop,
    /// What is said when a run goes on.
    Changes,
}

impl Named for Setting {
    fn key(self) -> &'static str {
        match self {
            Self::Out => "out",
            Self::Resume => "resume",
            Self::From => "start",
            Self::Model => "model",
            Self::Vocabulary => "model.vocab",
            Self::Cluster => "layout.cluster",
            Self::Grid => "layout.choices.grid",
            Self::Ranks => "ranks",
            Self::Dtype => "layout.choices.dtype",
            Self::Steps => "steps",
            Self::Seed => "seed",
            Self::Data => "data.paths",
            Self::Tokenizer => "data.tokenizer",
            Self::TextField => "data.text_field",
            Self::Format => "data.format",
            Self::Binary => "data.binary",
            Self::SkipBadLines => "data.skip_bad_lines",
            Self::ParseSpecial => "data.special.parsed",
            Self::Documents => "data.documents",
            Self::HeldOutShare => "data.held_out.share",
            Self::HeldOutFiles => "data.held_out.files",
            Self::Goldfish => "data.goldfish",
            Self::CheckpointEvery => "checkpoints.every",
            Self::Keep => "checkpoints.keep",
            Self::ValidateEvery => "validation.every",
            Self::ValidationBatches => "validation.batches",
            Self::LargestLoss => "divergence.largest_loss",
            Self::LossScale => "loss_scale",
            Self::Threads => "threads",
            Self::Timeout => "timeout",
            Self::Tuning => "tuning.file",
            Self::States => "states.files",
            Self::Log => "outputs.log",
            Self::Trace => "outputs.trace",
            Self::LearningRate => "optimizer.learning_rate",
            Self::Optimizer(name) => OptimizerSpec::key(name).unwrap_or(name),
            Self::MaxTokens => "max_tokens",
            Self::Stop => "stop",
            Self::Changes => "changes",
        }
    }
}

/// What a run cannot use.
pub type Refusal = Unusable<Setting>;
