//! Everything that a run needs before its first step, checked.

use quadrille_checkpoint::About;
use quadrille_engine::{DivergencePolicy, MatmulChoices, OnDivergence, OnSaveFailure, Saving, Start, TrainOptions};
use quadrille_step::{Product, StepProgram};
use serde_json::{Value, json};

use super::arguments::{DivergenceAction, SaveFailureAction, TrainArguments};
use super::begin::Beginning;
use super::signals::Signals;
use super::{resume, same_data};
use crate::failure::Failure;
use crate::launch::Launch;
use crate::run_folder::{checkpoints, has_ended};
use crate::source::Source;
use crate::tuned::{Recorder, Tuning};
use crate::{paths, resources, settings};

/// Steps without `--steps`: enough for the demo to come near its floor.
const DEFAULT_STEPS: u64 = 400;

/// A run that can begin.
pub struct Prepared {
    /// Its folder, and what it starts from.
    pub beginning: Beginning,
    /// What ranks execute.
    pub program: StepProgram,
    /// What they read.
    pub source: Source,
    /// How they are run.
    pub options: TrainOptions,
    /// What its checkpoints say of it, as it is before its first step.
    pub about: About,
    /// Where the choices of tuned products are to be written.
    pub recorder: Option<Recorder>,
    /// What asks it to stop.
    pub signals: Signals,
}

impl Prepared {
    /// Holds flags, files and folders against each other.
    ///
    /// # Errors
    /// The first of them that cannot be used.
    pub fn new(arguments: &TrainArguments, command: &[String], launch: &Launch) -> Result<Self, Failure> {
        check_flags(arguments)?;
        let steps = arguments.steps.unwrap_or(DEFAULT_STEPS);
        let beginning = Beginning::new(arguments, launch)?;
        let (model, done) = (&beginning.settings.model, beginning.start.steps_done());
        let typed = settings::typed(&arguments.layout, arguments.dtype, &launch.defaults(&beginning.defaults())?)?;
        let layout = settings::resolve(&typed, model)?;
        launch.check_ranks(layout.grid.ranks())?;
        beginning.check_type(layout.dtype)?;
        let hyper = settings::hyper(beginning.settings.hyper, &arguments.run, steps)?;
        check_unfinished(arguments, done, steps)?;
        let program = StepProgram::new(model, &layout)?;
        let threads = settings::threads(&arguments.run, launch, layout.grid.ranks())?;
        let timeout = settings::timeout(&arguments.run)?;
        resources::check(&program, threads, launch, beside(arguments, &program)?)?;
        check_paths(arguments)?;
        let (checkpoint, seed) = (beginning.checkpoint(), arguments.run.seed);
        let open = || Source::open(&arguments.data, checkpoint, model, seed, layout.seq_len);
        let source = launch.first_then_others(open)?;
        if let Start::Resumed(checkpoint) = &beginning.start
            && !resume::names_data()?
        {
            same_data::check(checkpoint, source.about())?;
        }
        let (tune_matmuls, matmuls, recorder) = tuning(arguments, &program, threads)?;
        let signals = Signals::watch().map_err(|error| Failure::run(format!("cannot watch for signals: {error}")))?;
        let about = about(&program, arguments, &beginning.start, command, json!(hyper), source.about());
        let options = TrainOptions {
            threads,
            timeout,
            start: beginning.start.clone(),
            collectives: launch.collectives(&arguments.run, &typed.cluster),
            world: launch.world.clone(),
            tune_matmuls,
            matmuls,
            trace: arguments.trace.is_some(),
            divergence: divergence(arguments),
            saving: saving(arguments, about.clone()),
            stop: Some(signals.stop.clone()),
            ..TrainOptions::new(steps, hyper, arguments.run.seed)
        };
        Ok(Self { beginning, program, source, options, about, recorder, signals })
    }
}

/// Whether products are timed, the choices of an earlier run, and where new ones are to be written.
fn tuning(
    arguments: &TrainArguments,
    program: &StepProgram,
    threads: usize,
) -> Result<(bool, Option<MatmulChoices>, Option<Recorder>), Failure> {
    let tuning = Tuning::open(arguments.tune_matmul.as_ref(), program.layout.dtype, threads)?;
    let choices = match tuning {
        Tuning::Off => return Ok((false, None, None)),
        Tuning::Measure(recorder) => return Ok((true, None, recorder)),
        Tuning::Replay(choices) => choices,
    };
    if let Some(Product { storage, m, n, k }) = choices.missing(program) {
        return Err(Failure::usage(format!(
            "the tuning file knows nothing of the product {storage:?} {m}x{n}x{k}: it is of another model, layout or batch; \
             name another file"
        )));
    }
    Ok((false, Some(choices), None))
}

/// Bytes that a run takes beside its step: copies of the state while it is written, and evaluation's own values.
fn beside(arguments: &TrainArguments, program: &StepProgram) -> Result<u64, Failure> {
    let element = program.layout.dtype.bytes();
    let saved = arguments.out.is_some() || arguments.resume.is_some();
    let state = if saved { 3 * program.model.parameters() * element } else { 0 };
    if arguments.data.validation.is_none() && arguments.data.validation_data.is_empty() {
        return Ok(state);
    }
    Ok(state + resources::beside_training(program)?)
}

/// Refuses a run that has nothing left to do. One that was killed after its last step has its end before it.
fn check_unfinished(arguments: &TrainArguments, done: u64, steps: u64) -> Result<(), Failure> {
    let finished = match &arguments.resume {
        Some(folder) if done == steps && done > 0 => has_ended(folder, steps)?,
        _ => done >= steps,
    };
    match finished {
        true => Err(Failure::usage(format!("the run has done {done} steps of {steps}; ask for more with --steps"))),
        false => Ok(()),
    }
}

/// Flags that need others.
fn check_flags(arguments: &TrainArguments) -> Result<(), Failure> {
    if arguments.checkpoint_every.is_some() && arguments.out.is_none() && arguments.resume.is_none() {
        return Err(Failure::usage(
            "--checkpoint-every: checkpoints are written into a run's folder; name it with --out",
        ));
    }
    match arguments.largest_loss {
        Some(factor) if factor.is_nan() || factor <= 1.0 => {
            Err(Failure::usage(format!("--largest-loss {factor}: it is a multiple of the usual loss, above 1, e.g. 3")))
        }
        _ => Ok(()),
    }
}

fn divergence(arguments: &TrainArguments) -> DivergencePolicy {
    let action = match arguments.on_divergence {
        DivergenceAction::Stop => OnDivergence::Stop,
        DivergenceAction::Skip => OnDivergence::Skip,
    };
    DivergencePolicy { action, largest_loss: arguments.largest_loss }
}

/// What checkpoints say of the run, as it is when it begins or goes on.
fn about(
    program: &StepProgram,
    arguments: &TrainArguments,
    start: &Start,
    command: &[String],
    hyper: Value,
    data: &Value,
) -> About {
    let (step, samples, tokens) = match start {
        Start::Resumed(checkpoint) => {
            let about = checkpoint.about();
            (about.step, about.samples, about.tokens)
        }
        Start::Drawn | Start::Values(_) => (0, 0, 0),
    };
    let hugging_face = match start {
        Start::Values(checkpoint) | Start::Resumed(checkpoint) => checkpoint.about().hugging_face.clone(),
        Start::Drawn => None,
    };
    About {
        model: program.model.clone(),
        layout: program.layout.clone(),
        dtype: program.layout.dtype,
        step,
        samples,
        tokens,
        seed: arguments.run.seed,
        hyper,
        data: data.clone(),
        run: json!({ "command": command, "version": env!("CARGO_PKG_VERSION") }),
        hugging_face,
    }
}

fn saving(arguments: &TrainArguments, about: About) -> Option<Saving> {
    let folder = arguments.out.as_ref().or(arguments.resume.as_ref())?;
    let on_failure = match arguments.on_checkpoint_failure {
        SaveFailureAction::Stop => OnSaveFailure::Stop,
        SaveFailureAction::Continue => OnSaveFailure::Continue,
    };
    let folder = checkpoints(folder).path().to_owned();
    Some(Saving { folder, every: arguments.checkpoint_every, keep: arguments.keep, on_failure, about })
}

/// Refuses to write over what is read, or two files into one.
fn check_paths(arguments: &TrainArguments) -> Result<(), Failure> {
    let tuning = arguments.tune_matmul.iter().flatten().map(|path| ("--tune-matmul", path.as_path()));
    let log = arguments.log.iter().map(|path| ("--log", path.as_path()));
    let trace = arguments.trace.iter().map(|path| ("--trace", path.as_path()));
    let described = paths::described(&arguments.model, &arguments.layout);
    paths::check(
        &log.chain(trace).chain(tuning).collect::<Vec<_>>(),
        &arguments.data.paths().chain(described).collect::<Vec<_>>(),
    )
}
