//! The one place where errors become messages and exit codes.

use quadrille_checkpoint::CheckpointError;
use quadrille_cost::native::PriceError;
use quadrille_cost::simulation::RateError;
use quadrille_data::DataError;
use quadrille_engine::EngineError;
use quadrille_files::FileError;
use quadrille_hugging_face::HuggingFaceError;
use quadrille_measure::{self as measure, MeasureError};
use quadrille_papers::megatron::UnknownDevice;
use quadrille_plan::NoGrid;
use quadrille_plan::native::Nothing;
use quadrille_report::{ReportError, Role, plain};
use quadrille_run::{Refusal, RunError};
use quadrille_spec::{Blame, LedgerDifference, SpecError, keys};
use quadrille_step::StepError;
use quadrille_study::StudyError;

use crate::flags;
use crate::output::complain;

/// Why a command did not succeed.
#[derive(Debug)]
pub enum Failure {
    /// The input cannot be used: exit code 2.
    Usage(anyhow::Error),
    /// The work failed: exit code 1.
    Run(anyhow::Error),
    /// A signal has ended the work in good order: exit code 128 and the signal's number.
    Stopped(Stopped),
}

/// Work that ended early because a signal asked for it.
#[derive(Debug)]
pub struct Stopped {
    /// The signal's number.
    pub signal: i32,
    /// What was done until then, and how to go on.
    pub message: String,
}

impl Failure {
    /// Input that cannot be used, in words.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::Usage(anyhow::anyhow!(message.into()))
    }

    /// Words that are no command of this program.
    pub(crate) fn of_words(error: &clap::Error) -> Self {
        let told = error.to_string();
        let end = ["\n\nUsage:", "\n\nFor more information"].iter().filter_map(|end| told.find(end)).min();
        let told = &told[..end.unwrap_or(told.len())];
        Self::usage(told.strip_prefix("error: ").unwrap_or(told).trim_end())
    }

    /// Work that failed, in words.
    pub fn run(message: impl Into<String>) -> Self {
        Self::Run(anyhow::anyhow!(message.into()))
    }

    /// The failure of a run that has counted other than was predicted; none where `difference` is none.
    pub fn of_ledger(difference: Option<&LedgerDifference>) -> Result<(), Self> {
        difference.map_or(Ok(()), |difference| {
            Err(Self::run(format!("the counted ledger differs from the predicted one: {difference}")))
        })
    }

    /// The same, and before it what it is to be read with.
    pub(crate) fn within(self, said: String) -> Self {
        match self {
            Self::Usage(error) => Self::Usage(error.context(said)),
            Self::Run(error) => Self::Run(error.context(said)),
            stopped @ Self::Stopped(_) => stopped,
        }
    }

    /// Renames a choice in the message, for a command that calls it otherwise.
    pub(crate) fn renamed(self, key: &str, name: &str) -> Self {
        let message = |error: anyhow::Error| {
            keys::renamed(&format!("{error:#}"), |found| (found == key).then(|| name.to_owned()))
        };
        match self {
            Self::Usage(error) => Self::usage(message(error)),
            Self::Run(error) => Self::run(message(error)),
            stopped @ Self::Stopped(_) => stopped,
        }
    }

    /// An error of the input or of the work.
    fn of(blame: Blame, error: impl Into<anyhow::Error>) -> Self {
        match blame {
            Blame::Input => Self::Usage(error.into()),
            Blame::Work => Self::Run(error.into()),
        }
    }

    /// What stopped the work on checkpoints that could be opened.
    pub fn of_checkpoints(error: CheckpointError) -> Self {
        Self::of(error.blame(), error)
    }

    /// Prints the message and its causes to standard error.
    pub fn report(&self) {
        let (role, kind) = match self {
            Self::Stopped(_) => (Role::Warning, "stopped"),
            _ => (Role::Error, "error"),
        };
        complain(role, kind, &self.message());
    }

    /// The error, then its causes; what they quote may be of files, and is made fit to be shown.
    pub fn message(&self) -> String {
        plain::message(&match self {
            Self::Usage(error) | Self::Run(error) => flags::spelled(&format!("{error:#}")),
            Self::Stopped(stopped) => stopped.message.clone(),
        })
    }

    /// 2 for input, 1 for work; as shells say it for a signal.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Run(_) => 1,
            Self::Stopped(stopped) => u8::try_from(128 + stopped.signal).unwrap_or(u8::MAX),
        }
    }
}

/// Errors that are always those of the input.
macro_rules! usage {
    ($($error:ty),+) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::Usage(error.into())
            }
        })+
    };
}

usage!(SpecError, StepError, NoGrid, RateError, UnknownDevice, FileError, DataError, CheckpointError);

impl From<PriceError> for Failure {
    fn from(error: PriceError) -> Self {
        Self::of(error.blame(), error)
    }
}

impl From<Nothing> for Failure {
    fn from(error: Nothing) -> Self {
        match error {
            Nothing::Price(error) => error.into(),
            error => Self::Usage(error.into()),
        }
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        Self::Run(error.into())
    }
}

impl From<measure::Refusal> for Failure {
    fn from(refusal: measure::Refusal) -> Self {
        Self::usage(refusal.spelled(flags::of_measurement))
    }
}

impl From<MeasureError> for Failure {
    fn from(error: MeasureError) -> Self {
        match (error.blame(), error) {
            (_, MeasureError::Refused(refusal)) => refusal.into(),
            (_, MeasureError::Run(error)) => error.into(),
            (blame, error) => Self::of(blame, error),
        }
    }
}

impl From<StudyError> for Failure {
    fn from(error: StudyError) -> Self {
        match (error.blame(), error) {
            (_, StudyError::Refused(refusal)) => Self::usage(refusal.spelled(flags::of_study)),
            (_, StudyError::NoFolder(refusal)) => Self::run(refusal.spelled(flags::of_study)),
            (_, StudyError::Run(error)) => error.into(),
            (_, StudyError::Stopped { signal: Some(signal), when }) => {
                let message = StudyError::Stopped { signal: Some(signal), when }.to_string();
                Self::Stopped(Stopped { signal, message })
            }
            (blame, error) => Self::of(blame, error),
        }
    }
}

impl From<HuggingFaceError> for Failure {
    fn from(error: HuggingFaceError) -> Self {
        RunError::from(error).into()
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::usage(refusal.spelled(flags::of_run))
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match (error.blame(), error) {
            (_, RunError::Refused(refusal)) => refusal.into(),
            (blame, error) => Self::of(blame, error),
        }
    }
}

impl From<ReportError> for Failure {
    fn from(error: ReportError) -> Self {
        match error {
            ReportError::Run(error) => error.into(),
            ReportError::Price(error) => error.into(),
            // What is read is input.
            error => Self::Usage(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        let source = || io::Error::from(io::ErrorKind::StorageFull);
        let data = DataError::Io { action: "write", path: "cache/text.tokens".into(), source: source() };
        assert_eq!(Failure::from(data).message(), format!("cannot write cache/text.tokens: {}", source()));
        let log = EngineError::Log { path: "log.jsonl".to_owned(), source: source() };
        assert_eq!(Failure::from(log).message(), format!("cannot write the log log.jsonl: {}", source()));
    }
}
