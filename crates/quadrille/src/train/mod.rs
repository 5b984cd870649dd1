//! `quadrille train`: data, ranks, logs, checkpoints, and the comparison of predicted and counted ledgers.

pub mod arguments;
mod begin;
mod companions;
mod outcome;
mod prepare;
pub mod reporter;
mod resume;
mod same_data;
pub mod signals;

use quadrille_engine::{Cpu, EngineError, OnSaveFailure, RunEvent, Samples, TrainOutcome, Validation, train};
use quadrille_spec::ElementType;
use quadrille_step::{StepProgram, predict};
use serde_json::json;

use crate::describe::{layout_json, summary};
use crate::failure::{Failure, Stopped};
use crate::launch::Launch;
use crate::output::{print_json, print_text, tell};
use crate::run_folder::{Description, Known, Records, SUMMARY, continued_log};
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
    carry_out(prepared, arguments, command, launch)
}

/// Trains and reports what was prepared.
fn carry_out(
    prepared: Prepared,
    arguments: &TrainArguments,
    command: Vec<String>,
    launch: &Launch,
) -> Result<(), Failure> {
    let (first, resumed) = (launch.is_first(), arguments.resume.is_some());
    let log = arguments.log.as_deref().filter(|_| first);
    let log = match resumed && !resume::says("--log")? {
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
    if resumed {
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
    let document = outcome::document(&prepared, &outcome)?;
    if let Some(folder) = &prepared.beginning.folder {
        folder.write(SUMMARY, &document)?;
    }
    match arguments.json {
        true => print_json(&document)?,
        false => print_text(&outcome::text(program, &outcome))?,
    }
    // A run that was stopped early has no trace of its last step: what the file holds stays.
    let traced = outcome.ranks.iter().all(|rank| rank.trace.is_some());
    if let Some((path, file)) = arguments.trace.as_deref().zip(trace_file).filter(|_| traced) {
        write_trace(path, file, &trace::measured(program, &outcome.ranks))?;
    }
    if let Some(recorder) = prepared.recorder {
        recorder.persist(&outcome.ranks[0].matmuls)?;
    }
    Failure::of_ledger(outcome.difference.as_ref())?;
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
        ElementType::F32 => train::<Cpu<f32>>(program, options, &batch, validation.as_ref(), on_event)?,
        ElementType::F64 => train::<Cpu<f64>>(program, options, &batch, validation.as_ref(), on_event)?,
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

#[cfg(test)]
mod tests {
    use clap::Parser;
    use quadrille_step::{Operation, When};

    use super::*;
    use crate::arguments::{Arguments, Command};

    /// The first update that `program` has is not done in the step's second microbatch, nor after it.
    fn with_an_update_too_few(program: &mut StepProgram) {
        let mut updates = program.stages[0].update.ops.iter_mut();
        updates.find(|op| matches!(op.operation, Operation::AdamW(_))).unwrap().when = When::First;
    }

    #[test]
    fn a_count_that_was_not_predicted_fails_the_run() {
        let line = "quadrille train --model gpt-tiny --set vocab=256 --grid x=2 --global-batch 4 --microbatch 2 --steps 2 \
                    --threads 1";
        let Ok(Arguments { command: Command::Train(arguments) }) = Arguments::try_parse_from(line.split_whitespace())
        else {
            panic!("{line}")
        };
        let trained = |change: fn(&mut StepProgram)| {
            let mut prepared = Prepared::new(&arguments, &[], &Launch::THREADS).unwrap();
            change(&mut prepared.program);
            carry_out(prepared, &arguments, Vec::new(), &Launch::THREADS)
        };
        trained(|_| {}).unwrap();
        let failure = trained(with_an_update_too_few).unwrap_err();
        assert_eq!(failure.exit_code(), 1);
        let message = failure.message();
        assert!(
            message.contains("the counted ledger differs from the predicted one: rank 0, elements of adamw: "),
            "{message}"
        );
    }
}
