//! The loss of a checkpoint's model on samples of files, or of what is built in.

use quadrille_engine::{EngineError, EvaluateOutcome, Samples, evaluate_on_cpu};
use quadrille_step::StepProgram;

use crate::refusal::{Refusal, Setting};
use crate::{DataSpec, Forward, OnPreparation, Processes, RunError, Source, resources};

/// A model and the samples that it is evaluated on, ready to run.
///
/// Where the data hold samples apart for validation, these are read, in order; else those that the checkpoint's run would
/// have trained on first with this data. Any layout and batch reads the same samples, each once.
pub struct Evaluation {
    forward: Forward,
    program: StepProgram,
    source: Source,
}

impl Evaluation {
    /// Opens the data, drawn by `seed`, or by that of the run that wrote the checkpoint.
    ///
    /// # Errors
    /// A layout without an evaluation, or too large for this machine; data that cannot be read; none, where the checkpoint's
    /// run has read files.
    pub fn prepare(
        forward: Forward,
        data: &DataSpec,
        seed: Option<u64>,
        processes: &Processes,
        on_preparation: OnPreparation,
    ) -> Result<Self, RunError> {
        let (checkpoint, model, layout) = (forward.checkpoint(), forward.model(), forward.layout());
        let about = checkpoint.about();
        if data.paths.is_empty() && about.data["kind"] == "files" {
            let read =
                format!("{}: its run has read files; name what is to be evaluated with ", checkpoint.path().display());
            return Err(Refusal::new(read).name(Setting::Data).into());
        }
        let program = StepProgram::evaluation(model, layout)?;
        resources::check(&program, forward.options().threads, processes, 0)?;
        let seed = seed.unwrap_or(about.seed);
        let open = || Source::open(data, Some(checkpoint), model, seed, layout.seq_len, on_preparation);
        let source = processes.first_then_others(open)?;
        Ok(Self { forward, program, source })
    }

    /// What is evaluated.
    pub fn forward(&self) -> &Forward {
        &self.forward
    }

    /// Whether the samples are held apart from training.
    pub fn is_validation(&self) -> bool {
        self.source.validation_samples().is_some()
    }

    /// How many samples there are before any is read again; no number where they never end.
    pub fn available(&self) -> Option<u64> {
        self.source.validation_samples().unwrap_or_else(|| self.source.training_samples())
    }

    /// How many of the `wanted` samples are evaluated: of those for validation each at most once.
    pub fn samples(&self, wanted: u64) -> u64 {
        self.source.validation_samples().flatten().map_or(wanted, |available| available.min(wanted))
    }

    /// Evaluates so many samples; told after each batch how many are done.
    ///
    /// # Errors
    /// The ranks' work; samples that cannot be read.
    pub fn run(&self, samples: u64, on_batch: &(dyn Fn(u64) + Sync)) -> Result<EvaluateOutcome, EngineError> {
        let global_batch = self.forward.layout().global_batch as u64;
        let trained_batch = self.forward.checkpoint().about().layout.global_batch as u64;
        let validates = self.is_validation();
        let batch = |step: u64, first: usize, samples: Samples| {
            let first = (step - 1) * global_batch + first as u64;
            match validates {
                true => self.source.fill_validation(first, samples),
                false => self.source.fill_from(first, trained_batch, samples),
            }
        };
        let Self { forward, program, .. } = self;
        evaluate_on_cpu(program, forward.options(), &forward.weights(), samples, &batch, on_batch)
    }
}
