//! `quadrille train`: data, ranks, logs, checkpoints, and the comparison of predicted and counted ledgers.

pub mod arguments;
mod begin;
pub mod reporter;
mod resume;
pub mod signals;

use quadrille_checkpoint::About;
use quadrille_engine::{
    DivergencePolicy, OnDivergence, OnSaveFailure, RunEvent, Samples, Saving, Start, TrainOptions, TrainOutcome,
    Validation, train,
};
use quadrille_spec::ElementType;
use quadrille_step::{Product, StepProgram, predict};
use serde_json::{Value, json};

use crate::describe::{layout_json, summary};
use crate::explain::ledger_text;
use crate::failure::{Failure, Stopped};
use crate::launch::Launch;
use crate::output::{print_json, print_text};
use crate::run_folder::{Description, Records, RunFolder, checkpoints};
use crate::source::Source;
use crate::timeline::{create_trace, write_trace};
use crate::tuned::Tuning;
use crate::{paths, resources, settings, trace};
use arguments::{DivergenceAction, SaveFailureAction, TrainArguments};
use begin::Beginning;
use reporter::{Reporter, create_log, tell};
use signals::Signals;

/// Steps without `--steps`: enough for the demo to come near its floor.
const DEFAULT_STEPS: u64 = 400;

/// Trains and reports.
pub fn run(arguments: &TrainArguments, launch: &Launch) -> Result<(), Failure> {
    let resumed = arguments.resume.as_deref().map(resume::arguments).transpose()?;
    let (command, arguments) = match &resumed {
        Some((command, whole)) => (command.clone(), whole),
        None => (resume::command()?, arguments),
    };
    check_flags(arguments)?;
    let steps = arguments.steps.unwrap_or(DEFAULT_STEPS);
    let beginning = Beginning::new(arguments, launch)?;
    let model = &beginning.settings.model;
    let usual = launch.defaults(&beginning.defaults())?;
    let typed = settings::typed(&arguments.layout, arguments.dtype, &usual)?;
    let layout = settings::resolve(&typed, model)?;
    launch.check_ranks(layout.grid.ranks())?;
    beginning.check_type(layout.dtype)?;
    let hyper = settings::hyper(beginning.settings.hyper, &arguments.run, steps)?;
    let program = StepProgram::new(model, &layout)?;
    let threads = settings::threads(&arguments.run, launch, layout.grid.ranks())?;
    let timeout = settings::timeout(&arguments.run)?;
    resources::check(&program, threads, launch, 0)?;
    check_paths(arguments)?;
    let source =
        launch.first_then_others(|| Source::open(&arguments.data, model, arguments.run.seed, layout.seq_len))?;
    let (tune_matmuls, matmuls, recorder) = match Tuning::open(arguments.tune_matmul.as_ref(), layout.dtype, threads)? {
        Tuning::Off => (false, None, None),
        Tuning::Measure(recorder) => (true, None, recorder),
        Tuning::Replay(choices) => (false, Some(choices), None),
    };
    if let Some(Product { storage, m, n, k }) = matmuls.as_ref().and_then(|choices| choices.missing(&program)) {
        return Err(Failure::usage(format!(
            "the tuning file knows nothing of the product {storage:?} {m}x{n}x{k}: it is of another model, layout or batch; \
             name another file"
        )));
    }
    let signals = Signals::watch().map_err(|error| Failure::run(format!("cannot watch for signals: {error}")))?;
    let about = about(&program, arguments, &beginning.start, &command, json!(hyper), source.about());
    let done = beginning.start.steps_done();
    if done >= steps {
        return Err(Failure::usage(format!("the run has done {done} steps of {steps}; ask for more with --steps")));
    }
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
    let floor = source.floor();
    let first = launch.is_first();
    let log = arguments.log.as_deref().filter(|_| first).map(create_log).transpose()?;
    let trace_file = arguments.trace.as_deref().filter(|_| first).map(create_trace).transpose()?;
    let records = records(beginning.folder.as_ref(), &program, command, done)?;
    if first && !arguments.json {
        tell(&summary(&program));
        if let Some((floor, about)) = floor {
            tell(&format!("{:<8}{floor:.4} {about}\n", "floor"));
        }
        if let Some(samples) = source.validation_samples() {
            let samples = samples.map_or("endless".to_owned(), |samples| samples.to_string());
            tell(&format!("{:<8}{samples} samples are kept apart for validation\n", "apart"));
        }
        if let Some(checkpoint) = beginning.checkpoint() {
            tell(&format!("{:<8}{}\n", "from", checkpoint.path().display()));
        }
    }
    let floor = floor.map(|(floor, _)| floor);
    let mut reporter = Reporter::new(arguments, model, [done + 1, steps], floor, log, records, first);
    let batch = |step: u64, first: usize, samples: Samples| {
        let samples_before = about.samples + (step - 1 - done) * layout.global_batch as u64;
        source.fill(step, samples_before, first, samples)
    };
    let validation_batch = |step: u64, first: usize, samples: Samples| {
        source.fill_validation((step - 1) * layout.global_batch as u64 + first as u64, samples)
    };
    let forward = source.validation_samples().map(|_| StepProgram::evaluation(model, &layout)).transpose()?;
    let validation = forward.as_ref().map(|program| Validation {
        program,
        every: arguments.validate_every,
        batches: batches(arguments, source.validation_samples().flatten(), layout.global_batch),
        batch: &validation_batch,
    });
    let mut on_event = |event: RunEvent| reporter.see(&event);
    let outcome = match layout.dtype {
        ElementType::F32 => train::<f32>(&program, &options, &batch, validation.as_ref(), &mut on_event),
        ElementType::F64 => train::<f64>(&program, &options, &batch, validation.as_ref(), &mut on_event),
    };
    reporter.finish();
    let outcome = outcome?;
    let stopped = stopped(&outcome, steps, arguments, &signals);
    if !first {
        return stopped.map_or(Ok(()), Err);
    }
    let document = document(&program, &outcome, floor, source.about());
    if let Some(folder) = &beginning.folder {
        folder.write("summary.json", &document)?;
    }
    report(arguments, &program, &outcome, &document)?;
    if let Some((path, file)) = arguments.trace.as_deref().zip(trace_file) {
        write_trace(path, file, &trace::measured(&program, &outcome.ranks))?;
    }
    if let Some(recorder) = recorder {
        recorder.persist(&outcome.ranks[0].matmuls)?;
    }
    if !outcome.ledger_equal {
        return Err(Failure::run("the counted ledger differs from the predicted one"));
    }
    stopped.map_or(Ok(()), Err)
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

/// How many batches a validation has: as many as there are, up to the flag.
fn batches(arguments: &TrainArguments, samples: Option<u64>, global_batch: usize) -> u64 {
    let whole = samples.map_or(u64::MAX, |samples| samples / global_batch as u64);
    arguments.validation_batches.min(whole.max(1))
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

/// The run's description, written, and its records, to which steps after `done` are added.
fn records(
    folder: Option<&RunFolder>,
    program: &StepProgram,
    command: Vec<String>,
    done: u64,
) -> Result<Option<Records>, Failure> {
    let Some(folder) = folder else { return Ok(None) };
    let predicted = json!(predict(program));
    let description = Description::new(command, json!(program.model), layout_json(&program.layout), predicted);
    folder.begin(&description, done).map(Some)
}

/// Whether a signal has ended the run early, and how to go on.
fn stopped(outcome: &TrainOutcome, steps: u64, arguments: &TrainArguments, signals: &Signals) -> Option<Failure> {
    let step = outcome.records.last()?.step;
    let remedy = match arguments.out.as_ref().or(arguments.resume.as_ref()) {
        Some(folder) => format!("go on with --resume {}", folder.display()),
        None => "without --out nothing was kept".to_owned(),
    };
    let message = format!("by a signal, after step {step} of {steps}; {remedy}");
    (step < steps).then(|| Failure::Stopped(Stopped { signal: signals.which(), message }))
}

fn report(
    arguments: &TrainArguments,
    program: &StepProgram,
    outcome: &TrainOutcome,
    document: &Value,
) -> Result<(), Failure> {
    if arguments.json {
        return print_json(document);
    }
    let (changed, measured) = outcome.ranks[0].matmuls.changed();
    let mut text = String::new();
    if measured > 0 {
        text += &format!("{changed} of {measured} products run in another layout than their operands are stored in\n");
    }
    let ranks = outcome.counted.ranks.len();
    text += &match outcome.ledger_equal {
        true => format!("ledger: bytes, FLOPs and memory of all {ranks} ranks as predicted, in every step\n"),
        false => "ledger: DIFFERS from the prediction\n".to_owned(),
    };
    text += &ledger_text(&program.layout.grid, &outcome.counted.ranks[0]);
    print_text(&text)
}

fn document(program: &StepProgram, outcome: &TrainOutcome, floor: Option<f64>, data: &Value) -> Value {
    let losses: Vec<f64> = outcome.records.iter().map(|record| record.loss).collect();
    json!({
        "model": program.model,
        "layout": layout_json(&program.layout),
        "data": data,
        "losses": losses,
        "floor": floor,
        "steps": outcome.records,
        "ledger": {
            "predicted": outcome.predicted,
            "counted": outcome.counted,
            "equal": outcome.ledger_equal,
            "total": outcome.ranks.iter().map(|rank| &rank.total).collect::<Vec<_>>(),
        },
        "breakdown_s": outcome.ranks[0].breakdown,
        "matmul": outcome.ranks[0].matmuls,
    })
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
