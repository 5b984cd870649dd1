//! Input that cannot be used, in words that each caller spells in its own way.

use std::fmt;

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
    /// [`crate::RunSpec::threads`].
    Threads,
    /// [`crate::RunSpec::timeout`].
    Timeout,
    /// [`crate::TuningSpec::File`].
    Tuning,
    /// [`crate::OutputSpec::log`].
    Log,
    /// [`crate::OutputSpec::trace`].
    Trace,
    /// [`crate::OptimizerSpec::learning_rate`], where it is not said among the other constants.
    LearningRate,
    /// A constant of [`crate::OptimizerSpec`].
    Optimizer(&'static str),
    /// What is said when a run goes on.
    Changes,
}

impl Setting {
    /// What it is called where runs are described.
    pub fn key(self) -> &'static str {
        match self {
            Self::Out => "out",
            Self::Resume => "resume",
            Self::From => "start",
            Self::Model => "model",
            Self::Vocabulary => "model.vocab",
            Self::Dtype => "layout.choices.dtype",
            Self::Steps => "steps",
            Self::Seed => "seed",
            Self::Data => "data.paths",
            Self::Tokenizer => "data.tokenizer",
            Self::TextField => "data.text_field",
            Self::Documents => "data.documents",
            Self::HeldOutShare => "data.held_out.share",
            Self::HeldOutFiles => "data.held_out.files",
            Self::Goldfish => "data.goldfish",
            Self::CheckpointEvery => "checkpoints.every",
            Self::Keep => "checkpoints.keep",
            Self::ValidateEvery => "validation.every",
            Self::ValidationBatches => "validation.batches",
            Self::LargestLoss => "divergence.largest_loss",
            Self::Threads => "threads",
            Self::Timeout => "timeout",
            Self::Tuning => "tuning.file",
            Self::Log => "outputs.log",
            Self::Trace => "outputs.trace",
            Self::LearningRate => "optimizer.learning_rate",
            Self::Optimizer(name) => name,
            Self::Changes => "changes",
        }
    }
}

/// Input that cannot be used: a rule that is broken, and what would help. It knows which choices it names, so that every
/// caller may spell them in its own way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Name(Setting),
}

impl Refusal {
    /// One that begins with words.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { parts: vec![Part::Text(text.into())] }
    }

    /// One that begins with the name of a choice.
    pub(crate) fn of(setting: Setting) -> Self {
        Self { parts: vec![Part::Name(setting)] }
    }

    /// Goes on with words.
    #[must_use]
    pub(crate) fn text(mut self, text: impl Into<String>) -> Self {
        self.parts.push(Part::Text(text.into()));
        self
    }

    /// Goes on with the name of a choice.
    #[must_use]
    pub(crate) fn name(mut self, setting: Setting) -> Self {
        self.parts.push(Part::Name(setting));
        self
    }

    /// The choices that it names, in the order of the words.
    pub fn settings(&self) -> impl Iterator<Item = Setting> {
        self.parts.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Name(setting) => Some(*setting),
        })
    }

    /// The words, with the names that `name` gives the choices.
    pub fn spelled(&self, name: impl Fn(Setting) -> String) -> String {
        let parts = self.parts.iter().map(|part| match part {
            Part::Text(text) => text.clone(),
            Part::Name(setting) => name(*setting),
        });
        parts.collect()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.spelled(|setting| format!("`{}`", setting.key())))
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_named_as_the_caller_calls_them() {
        let refusal = Refusal::of(Setting::Threads).text(" 0: a rank has at least one; see ").name(Setting::Steps);
        assert_eq!(refusal.to_string(), "`threads` 0: a rank has at least one; see `steps`");
        let spelled = refusal.spelled(|setting| format!("--{}", setting.key()));
        assert_eq!(spelled, "--threads 0: a rank has at least one; see --steps");
        assert_eq!(refusal.settings().collect::<Vec<_>>(), [Setting::Threads, Setting::Steps]);
    }
}
