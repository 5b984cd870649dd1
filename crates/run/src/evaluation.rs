//! The loss of a checkpoint's model on samples of files, or of what is built in.

use quadrille_engine::{EngineError, EvaluateOutcome, Samples};
use quadrille_step::StepProgram;

use crate::refusal::{Refusal, Setting};
use crate::{DataSpec, Forward, OnPreparation, Processes, RunError, Source, StatesSpec, resources};

/// A model and the samples that it is evaluated on, ready to run.
///
/// Where the data hold samples apart for validation, these are read, in order; else those that the checkpoint's run would
/// have trained on first with this data. Any layout and batch reads the same samples, each once.
///
/// ```
/// use std::ops::ControlFlow;
///
/// use quadrille_checkpoint::Checkpoint;
/// use quadrille_engine::{ForwardOptions, Sampling};
/// use quadrille_run::{
///     DataSpec, Evaluation, Forward, Generation, GenerationSpec, Host, Prepared, Processes, RunSpec,
/// };
/// use quadrille_spec::{Layout, LayoutRequest, Model};
///
/// let model = Model::gpt(1, 8, 2, 256, 16);
/// let layout = Layout::new(&model, &LayoutRequest::new("data=2".parse()?, 4))?;
/// let folder = tempfile::tempdir()?;
/// let out = folder.path().join("run");
/// let spec = RunSpec { steps: 2, threads: Some(1), ..RunSpec::new(model.clone(), layout) };
/// Prepared::begin(spec, Some(&out), &Host::default())?.run(&mut |_| ControlFlow::Continue(()))?;
///
/// // Its newest checkpoint, in another layout.
/// let layout = Layout::new(&model, &LayoutRequest::new("x=2".parse()?, 2))?;
/// let forward = || Ok::<_, Box<dyn std::error::Error>>(
///     Forward::new(Checkpoint::find(&out)?, layout.clone(), ForwardOptions::default())
/// );
/// let evaluation = Evaluation::prepare(forward()?, &DataSpec::default(), None, &Processes::THREADS, &|_, _| ())?;
/// let found = evaluation.run(evaluation.samples(3), &|_| ())?;
/// assert!(found.evaluation.samples == 3 && found.difference.is_none());
///
/// let spec = GenerationSpec {
///     max_tokens: 4,
///     sampling: Sampling::GREEDY,
///     stop: false,
///     tokenizer: None,
///     parse_special: false,
///     chat: None,
/// };
/// let generation = Generation::prepare(forward()?, &["ab".to_owned()], &spec, &Processes::THREADS)?;
/// let outcome = generation.run(&mut |_, _| Ok(()))?;
/// assert_eq!((outcome.sequences[0].tokens.len(), generation.texts(&outcome)?.len()), (4, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Evaluation {
    forward: Forward,
    program: StepProgram,
    source: Source,
}

impl Evaluation {
    /// Opens the data, drawn by `seed`, or by that of the run that wrote the checkpoint.
    ///
    /// # Errors
    /// A model of tokens that reads its answers; a layout without an evaluation, or too large for this machine; data that cannot be read; none, where the checkpoint's
    /// run has read files.
    pub fn prepare(
        forward: Forward,
        data: &DataSpec,
        seed: Option<u64>,
        processes: &Processes,
        on_preparation: OnPreparation,
    ) -> Result<Self, RunError> {
        let checkpoint = forward.checkpoint();
        let model = forward.model();
        let layout = forward.layout();
        model.check_next_token()?;
        let about = checkpoint.about();
        if data.paths.is_empty() && about.data["kind"] == "files" {
            let read =
                format!("{}: its run has read files; name what is to be evaluated with ", checkpoint.path().display());
            return Err(Refusal::new(read).name(Setting::Data).into());
        }
        let program = StepProgram::evaluation(model, layout)?;
        resources::check(&program, forward.options().threads, processes, &StatesSpec::Memory, 0)?;
        let seed = seed.unwrap_or(about.seed);
        let open = || Source::open(data, Some(checkpoint), model, seed, layout.seq_len, on_preparation);
        let source = processes.first_then_others(open)?;
        Ok(Self { forward, program, source })
    }

    /// What is evaluated.
    pub fn forward(&self) -> &Forward {
        &self.forward
    }

    /// What it is evaluated on.
    pub fn source(&self) -> &Source {
        &self.source
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
            if validates {
                self.source.fill_validation(first, samples)
            } else {
                self.source.fill_from(first, trained_batch, samples)
            }
        };
        let Self { forward, program, .. } = self;
        forward.device().evaluate(program, forward.options(), &forward.weights(), samples, &batch, on_batch)
    }
}
