//! The one place where errors become messages and exit codes.

use std::io::Write;

use quadrille_checkpoint::CheckpointError;
use quadrille_data::DataError;
use quadrille_engine::EngineError;
use quadrille_hugging_face::HuggingFaceError;
use quadrille_plan::PlanError;
use quadrille_plan::native::Nothing;
use quadrille_spec::SpecError;
use quadrille_step::StepError;

/// Why a command did not succeed.
#[derive(Debug)]
pub enum Failure {
    /// The input cannot be used: exit code 2.
    Usage(anyhow::Error),
    /// The work failed: exit code 1.
    Run(anyhow::Error),
}

impl Failure {
    /// Input that cannot be used, in words.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::Usage(anyhow::anyhow!(message.into()))
    }

    /// Work that failed, in words.
    pub fn run(message: impl Into<String>) -> Self {
        Self::Run(anyhow::anyhow!(message.into()))
    }

    /// Prints the message and its causes to standard error.
    pub fn report(&self) {
        // Where nobody listens any more, the exit code still tells.
        let _ = writeln!(std::io::stderr(), "error: {}", self.message());
    }

    /// The error, then its causes.
    pub fn message(&self) -> String {
        let (Self::Usage(error) | Self::Run(error)) = self;
        format!("{error:#}")
    }

    /// 2 for input, 1 for work.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Run(_) => 1,
        }
    }
}

impl From<SpecError> for Failure {
    fn from(error: SpecError) -> Self {
        Self::Usage(error.into())
    }
}

impl From<StepError> for Failure {
    fn from(error: StepError) -> Self {
        Self::Usage(error.into())
    }
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Self {
        Self::Usage(error.into())
    }
}

impl From<Nothing> for Failure {
    fn from(error: Nothing) -> Self {
        Self::Usage(error.into())
    }
}

impl From<DataError> for Failure {
    fn from(error: DataError) -> Self {
        Self::Usage(error.into())
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        Self::Run(error.into())
    }
}

impl From<HuggingFaceError> for Failure {
    fn from(error: HuggingFaceError) -> Self {
        match &error {
            HuggingFaceError::Io { action, .. } | HuggingFaceError::Checkpoint(CheckpointError::Io { action, .. })
                if *action != "read" =>
            {
                Self::Run(error.into())
            }
            _ => Self::Usage(error.into()),
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
