//! Input that cannot be used, in words that each caller spells in its own way.

use quadrille_spec::{Named, Unusable};

/// A choice of a study that messages name. A program calls it as it is called in a [`crate::StudySpec`]; a command line may
/// call it by a flag ([`Refusal::spelled`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Setting {
    /// [`crate::StudySpec::epochs`].
    Epochs,
    /// [`crate::StudySpec::documents_per_bucket`].
    DocumentsPerBucket,
    /// [`crate::StudySpec::warmup_steps`].
    WarmupSteps,
    /// [`crate::StudySpec::steps`].
    Steps,
    /// [`crate::StudySpec::generate_tokens`].
    GenerateTokens,
    /// A goldfish loss among [`crate::StudySpec::losses`].
    Goldfish,
    /// [`crate::StudySpec::out`].
    Out,
    /// [`crate::TextSpec::paths`].
    Data,
    /// [`crate::TextSpec::tokenizer`].
    Tokenizer,
    /// Tokens of a sequence, in [`crate::StudySpec::layout`].
    SeqLen,
    /// Sequences of a step, in [`crate::StudySpec::layout`].
    GlobalBatch,
}

impl Named for Setting {
    fn key(self) -> &'static str {
        match self {
            Self::Epochs => "epochs",
            Self::DocumentsPerBucket => "documents_per_bucket",
            Self::WarmupSteps => "warmup_steps",
            Self::Steps => "steps",
            Self::GenerateTokens => "generate_tokens",
            Self::Goldfish => "losses.goldfish",
            Self::Out => "out",
            Self::Data => "text.paths",
            Self::Tokenizer => "text.tokenizer",
            Self::SeqLen => "layout.seq_len",
            Self::GlobalBatch => "layout.global_batch",
        }
    }
}

/// What a study cannot use.
pub type Refusal = Unusable<Setting>;
