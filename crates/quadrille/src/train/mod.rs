//! `quadrille train`: data, ranks, logs, checkpoints, and the comparison of predicted and counted ledgers.

pub mod arguments;
mod begin;
mod companions;
mod prepare;
pub mod reporter;
mod resume;
mod same_data;
pub mod signals;

use quadrille_engine::{EngineError, OnSaveFailure, RunEvent, Samples, TrainOutcome, Validation, train};
use quadrille_spec::ElementType;
use quadrille_step::{StepProgram, predict};
use serde_json::{Value, json};

use crate::describe::{layout_json, summary};
use crate::explain::ledger_text;
use crate::failure::{Failure, Stopped};
use crate::launch::Launch;
use crate::output::{print_json, print_text, tell};
use crate::run_folder::{Description, Known, Records, continued_log};
use crate::timeline::{create_trace, write_trace};
use crate::trace;
use arguments::TrainArguments;
use prepare::Prepared;
use reporter::{Reporter, create_log};
use signals::Signals;

/// Trains and reports.
pub fn run(arguments: &TrainArguments, launch: &Launch) -> Result<(), Failure> {
    let resumed = arguments.resume.as_deref().map(resume::arguments).transpose()?;
    let (command, arguments) = match &resumed {
        Some((command, whole)) => (command.clone(), whole),
        None => (resume::command()?, arguments),
    };
    let prepared = Prepared::new(arguments, &command, launch)?;
    let first = launch.is_first();
    let log = arguments.log.as_deref().filter(|_| first);
    let log = match resumed.is_some() && !resume::says("--log")? {
        true => log.map(|path| continued_log(path, prepared.about.step)).transpose()?,
        false => log.map(create_log).transpose()?,
    };
    let trace_file = arguments.trace.as_deref().filter(|_| first).map(create_trace).transpose()?;
    let records = records(&prepared, arguments, command)?;
    if first && !arguments.json {
        announce(&prepared);
    }
    let Prepared { program, options, source, signals, .. } = &prepared;
    let done = options.start.steps_done();
    let floor = source.floor().map(|(floor, _)| floor);
    let mut reporter = Reporter::new(arguments, &program.model, [done + 1, options.steps], floor, log, records, first);
    if resumed.is_some() {
        let text = format!("from step {done} on {}", program.layout.grid);
        reporter.note(done, "resumed", text, None, false)?;
    }
    let outcome = execute(&prepared, arguments, &mut |event| reporter.see(&event));
    let finished = reporter.finish();
    let outcome = outcome?;
    finished?;
    let stopped = stopped(&outcome, options.steps, arguments, signals);
    if !first {
        return stopped.map_or(Ok(()), Err);
    }
    let document = document(program, &outcome, floor, source.about());
    if let Some(folder) = &prepared.beginning.folder {
        folder.write("summary.json", &document)?;
    }
    report(arguments, program, &outcome, &document)?;
    // A run that was stopped early has no trace of its last step: what the file holds stays.
    let traced = outcome.ranks.iter().all(|rank| rank.trace.is_some());
    if let Some((path, file)) = arguments.trace.as_deref().zip(trace_file).filter(|_| traced) {
        write_trace(path, file, &trace::measured(program, &outcome.ranks))?;
    }
    if let Some(recorder) = prepared.recorder {
        recorder.persist(&outcome.ranks[0].matmuls)?;
    }
    if !outcome.ledger_equal {
        return Err(Failure::run("the counted ledger differs from the predicted one"));
    }
    stopped.map_or(Ok(()), Err)
}

/// Tells people what will be trained on what.
fn announce(prepared: &Prepared) {
    let Prepared { program, source, beginning, .. } = prepared;
    tell(&summary(program));
    if let Some((floor, about)) = source.floor() {
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

/// Runs the steps.
fn execute(
    prepared: &Prepared,
    arguments: &TrainArguments,
    on_event: &mut (dyn FnMut(RunEvent) -> Result<(), EngineError> + Send),
) -> Result<TrainOutcome, Failure> {
    let Prepared { program, options, source, about, .. } = prepared;
    let global_batch = program.layout.global_batch as u64;
    let batch = |step: u64, first: usize, samples: Samples| {
        source.fill(step, about.samples + (step - 1 - about.step) * global_batch, first, samples)
    };
    let validation_batch = |step: u64, first: usize, samples: Samples| {
        source.fill_validation((step - 1) * global_batch + first as u64, samples)
    };
    let apart = source.validation_samples();
    let forward = apart.map(|_| StepProgram::evaluation(&program.model, &program.layout)).transpose()?;
    let validation = forward.as_ref().map(|program| Validation {
        program,
        every: arguments.validate_every,
        samples: to_validate(arguments, apart.flatten(), global_batch),
        batch: &validation_batch,
    });
    Ok(match program.layout.dtype {
        ElementType::F32 => train::<f32>(program, options, &batch, validation.as_ref(), on_event)?,
        ElementType::F64 => train::<f64>(program, options, &batch, validation.as_ref(), on_event)?,
    })
}

/// How many samples a validation has: all that there are, up to the flag.
fn to_validate(arguments: &TrainArguments, samples: Option<u64>, global_batch: u64) -> u64 {
    let most = arguments.validation_batches.saturating_mul(global_batch);
    samples.map_or(most, |samples| samples.min(most))
}

/// The run's description, written, what belongs to it, and its records, to which steps are added.
fn records(prepared: &Prepared, arguments: &TrainArguments, command: Vec<String>) -> Result<Option<Records>, Failure> {
    let Prepared { program, beginning, about, options, source, .. } = prepared;
    let Some(folder) = &beginning.folder else { return Ok(None) };
    if let Some(path) = arguments.out.as_ref().or(arguments.resume.as_ref()) {
        companions::keep(prepared, arguments, path)?;
    }
    let predicted = json!(predict(program));
    let floor = source.floor().map(|(floor, _)| floor);
    let known = Known { steps: Some(options.steps), threads: Some(options.threads), floor };
    let description = Description::new(command, json!(program.model), layout_json(&program.layout), predicted, known);
    let mut records = folder.begin(&description, about.step)?;
    if options.saving.as_ref().is_some_and(|saving| saving.on_failure == OnSaveFailure::Continue) {
        records.wait_for_space();
    }
    Ok(Some(records))
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
        "breakdown_of_ranks_s": outcome.ranks.iter().map(|rank| &rank.breakdown).collect::<Vec<_>>(),
        "matmul": outcome.ranks[0].matmuls,
    })
}
