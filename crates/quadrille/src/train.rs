//! `quadrille train`: data, ranks, log, and the comparison of predicted and counted ledgers.

use std::fs::File;
use std::io::{self, IsTerminal, Seek, Write, stderr};
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use quadrille_engine::{EngineError, Hyper, RunEvent, Samples, StepRecord, TrainOptions, TrainOutcome, train};
use quadrille_spec::{ElementType, Model};
use quadrille_step::{Product, StepProgram};
use serde_json::{Value, json};

use crate::arguments::TrainArguments;
use crate::describe::{layout_json, summary};
use crate::explain::ledger_text;
use crate::failure::Failure;
use crate::launch::Launch;
use crate::output::{print_json, print_text};
use crate::source::Source;
use crate::timeline::{create_trace, write_trace};
use crate::tuned::Tuning;
use crate::{paths, resources, settings, trace};

/// Steps without `--steps`: enough for the demo to come near its floor.
const DEFAULT_STEPS: u64 = 400;

/// Trains and reports.
pub fn run(arguments: &TrainArguments, launch: &Launch) -> Result<(), Failure> {
    let steps = arguments.steps.unwrap_or(DEFAULT_STEPS);
    let settings = settings::settings(&arguments.model, "gpt-demo", Hyper::default())?;
    let usual = launch.defaults(&settings::Defaults::USUAL)?;
    let typed = settings::typed(&arguments.layout, arguments.dtype, &usual)?;
    let layout = settings::resolve(&typed, &settings.model)?;
    launch.check_ranks(layout.grid.ranks())?;
    let hyper = settings::hyper(settings.hyper, &arguments.run, steps)?;
    let program = StepProgram::new(&settings.model, &layout)?;
    let threads = settings::threads(&arguments.run, launch, layout.grid.ranks())?;
    let timeout = settings::timeout(&arguments.run)?;
    resources::check(&program, threads, launch, 0)?;
    check_paths(arguments)?;
    let source = launch
        .first_then_others(|| Source::open(&arguments.data, &settings.model, arguments.run.seed, layout.seq_len))?;
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
    let options = TrainOptions {
        threads,
        timeout,
        collectives: launch.collectives(&arguments.run, &typed.cluster),
        world: launch.world.clone(),
        tune_matmuls,
        matmuls,
        trace: arguments.trace.is_some(),
        ..TrainOptions::new(steps, hyper, arguments.run.seed)
    };
    let floor = source.floor();
    let first = launch.is_first();
    let log = arguments.log.as_deref().filter(|_| first).map(create_log).transpose()?;
    let trace_file = arguments.trace.as_deref().filter(|_| first).map(create_trace).transpose()?;
    if first && !arguments.json {
        tell(&summary(&program));
        if let Some((floor, about)) = floor {
            tell(&format!("{:<8}{floor:.4} {about}\n", "floor"));
        }
        if let Some(samples) = source.validation_samples() {
            let samples = samples.map_or("endless".to_owned(), |samples| samples.to_string());
            tell(&format!("{:<8}{samples} samples are kept apart\n", "validate"));
        }
    }
    let floor = floor.map(|(floor, _)| floor);
    let mut reporter = Reporter::new(arguments, &settings.model, steps, floor, log, first);
    let batch = |step: u64, first: usize, samples: Samples| {
        let samples_before = (step - 1) * layout.global_batch as u64;
        source.fill(step, samples_before, first, samples)
    };
    let mut on_event = |event: RunEvent| match event {
        RunEvent::Step(record) => reporter.step(record),
        _ => Ok(()),
    };
    let outcome = match layout.dtype {
        ElementType::F32 => train::<f32>(&program, &options, &batch, &mut on_event),
        ElementType::F64 => train::<f64>(&program, &options, &batch, &mut on_event),
    };
    reporter.finish();
    let outcome = outcome?;
    if !first {
        return Ok(());
    }
    report(arguments, &program, &outcome, floor, &source)?;
    if let Some((path, file)) = arguments.trace.as_deref().zip(trace_file) {
        write_trace(path, file, &trace::measured(&program, &outcome.ranks))?;
    }
    if let Some(recorder) = recorder {
        recorder.persist(&outcome.ranks[0].matmuls)?;
    }
    if outcome.ledger_equal {
        return Ok(());
    }
    Err(Failure::run("the counted ledger differs from the predicted one"))
}

fn report(
    arguments: &TrainArguments,
    program: &StepProgram,
    outcome: &TrainOutcome,
    floor: Option<f64>,
    source: &Source,
) -> Result<(), Failure> {
    if arguments.json {
        return print_json(&document(program, outcome, floor, source));
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

fn document(program: &StepProgram, outcome: &TrainOutcome, floor: Option<f64>, source: &Source) -> Value {
    let losses: Vec<f64> = outcome.records.iter().map(|record| record.loss).collect();
    json!({
        "model": program.model,
        "layout": layout_json(&program.layout),
        "data": source.about(),
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

fn create_log(path: &Path) -> Result<(PathBuf, File), Failure> {
    match File::create(path) {
        Ok(file) => Ok((path.to_owned(), file)),
        Err(error) => Err(Failure::usage(format!("cannot write the log {}: {error}", path.display()))),
    }
}

/// Writes a line in one piece: a process that is killed leaves no half of one. Nor does a disk that is full in the middle of
/// it, where what is there can be cut off again.
fn append(file: &mut File, record: &StepRecord) -> io::Result<()> {
    let line = serde_json::to_string(record)?;
    let whole = file.stream_position();
    file.write_all(format!("{line}\n").as_bytes()).inspect_err(|_| {
        // A pipe has no positions. The first error is the one to tell.
        let _ = whole.map(|whole| file.set_len(whole));
    })
}

/// Writes progress to standard error; training goes on where nobody reads it.
fn tell(text: &str) {
    let _ = stderr().write_all(text.as_bytes());
}

/// Shows steps to people, writes them to the log.
struct Reporter {
    bar: Option<ProgressBar>,
    lines: bool,
    /// What a sequence is made of.
    unit: &'static str,
    every: u64,
    steps: u64,
    floor: Option<f64>,
    log: Option<(PathBuf, File)>,
}

impl Reporter {
    fn new(
        arguments: &TrainArguments,
        model: &Model,
        steps: u64,
        floor: Option<f64>,
        log: Option<(PathBuf, File)>,
        shown: bool,
    ) -> Self {
        let watched = shown && stderr().is_terminal();
        let bar = watched.then(|| {
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} (eta {eta})");
            let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr());
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Self { bar, lines: !arguments.json, unit: model.sequence_unit(), every: (steps / 15).max(1), steps, floor, log }
    }

    fn step(&mut self, record: &StepRecord) -> Result<(), EngineError> {
        if let Some((path, file)) = &mut self.log {
            append(file, record).map_err(|source| EngineError::Log { path: path.display().to_string(), source })?;
        }
        let floor = self.floor.map_or(String::new(), |floor| format!(" (floor {floor:.4})"));
        let text = format!("loss {:.4}{floor}", record.loss);
        if self.lines && (record.step.is_multiple_of(self.every) || record.step == 1 || record.step == self.steps) {
            let line = format!(
                "step {:>5}  {text}  norm {:.4}  lr {:.2e}  {:.0} {}/s\n",
                record.step, record.grad_norm, record.lr, record.tokens_per_second, self.unit
            );
            match &self.bar {
                Some(bar) => bar.suspend(|| tell(&line)),
                None => tell(&line),
            }
        }
        if let Some(bar) = &self.bar {
            bar.set_message(text);
            bar.set_position(record.step);
        }
        Ok(())
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
