//! `quadrille eval`: the loss of a checkpoint.

use clap::Args;
use indicatif::ProgressBar;
use quadrille_engine::{EvaluateOutcome, Samples, evaluate_on_cpu};
use quadrille_run::{DataSpec, Source, layout_json, resources};
use quadrille_step::StepProgram;
use serde_json::{Value, json};

use crate::data_arguments::DataArguments;
use crate::failure::Failure;
use crate::launch::Launch;
use crate::output::{print_json, print_text};
use crate::preparation_bar;
use crate::weights::{Opened, WeightsArguments};

const EXAMPLES: &str = "Examples:
  quadrille eval --from runs/mine --data book.txt --validation 0.1
  quadrille eval --from runs/mine --data book.txt --samples 1000 --grid x=2,data=2
  quadrille eval --from gpt2 --validation-data test.jsonl --data train.jsonl --json

Any layout and batch evaluates what any other has written over the same samples, each counted
once, with the same loss but for rounding; the last batch may be incomplete. With --validation or
--validation-data their samples are read, in order, and none that training reads; else those that
the checkpoint's run would have trained on first with this data. Dropout is off.";

/// Samples without `--samples` and `--steps`, if there are as many.
const DEFAULT_SAMPLES: u64 = 64;

/// Compute the loss of a checkpoint.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, allow_negative_numbers = true)]
pub struct EvalArguments {
    #[command(flatten)]
    pub weights: WeightsArguments,
    /// Sequences to evaluate, or all validation samples if they are fewer; of other data the first are read again after the
    /// last [default: 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub samples: Option<u64>,
    /// In place of --samples: so many batches of --global-batch sequences
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "samples")]
    pub steps: Option<u64>,
    /// Keys what is drawn from the data [default: that of the run that wrote the checkpoint]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    #[command(flatten, next_help_heading = "Data")]
    pub data: DataArguments,
}

impl EvalArguments {
    /// How many samples are evaluated, of those that there are; `None`: they never end.
    fn samples(&self, global_batch: u64, available: Option<u64>) -> u64 {
        let of_steps = self.steps.map(|steps| steps.saturating_mul(global_batch));
        let wanted = self.samples.or(of_steps).unwrap_or(DEFAULT_SAMPLES);
        available.map_or(wanted, |available| available.min(wanted))
    }
}

/// Evaluates and reports.
pub fn run(arguments: &EvalArguments, launch: &Launch) -> Result<(), Failure> {
    let opened = Opened::new(&arguments.weights, launch)?;
    let (model, layout, about) = (opened.model(), &opened.layout, opened.checkpoint.about());
    if arguments.data.data.is_empty() && about.data["kind"] == "files" {
        return Err(Failure::usage(format!(
            "{}: its run has read files; name what is to be evaluated with --data",
            opened.checkpoint.path().display()
        )));
    }
    let program = StepProgram::evaluation(model, layout)?;
    resources::check(&program, opened.options.threads, launch, 0)?;
    let seed = arguments.seed.unwrap_or(about.seed);
    let checkpoint = Some(opened.checkpoint.as_ref());
    let data = arguments.data.said().apply(DataSpec::default());
    let source = preparation_bar::shown(|on_preparation| {
        let open = || Source::open(&data, checkpoint, model, seed, layout.seq_len, on_preparation);
        launch.first_then_others(open)
    })?;
    let validation = source.validation_samples();
    let global_batch = layout.global_batch as u64;
    let samples = arguments.samples(global_batch, validation.flatten());
    let batch = |step: u64, first: usize, samples: Samples| {
        let first = (step - 1) * global_batch + first as u64;
        match validation {
            Some(_) => source.fill_validation(first, samples),
            None => source.fill_from(first, about.layout.global_batch as u64, samples),
        }
    };
    let bar = ProgressBar::with_draw_target(Some(samples.div_ceil(global_batch)), launch.progress());
    let show = |done: u64| bar.set_position(done);
    let weights = opened.weights();
    let outcome = evaluate_on_cpu(&program, &opened.options, &weights, samples, &batch, &show);
    bar.finish_and_clear();
    let outcome = outcome?;
    if !launch.is_first() {
        return Ok(());
    }
    let kind = if validation.is_some() { "validation" } else { "training" };
    let available = validation.unwrap_or_else(|| source.training_samples());
    tell(&outcome, || match arguments.json {
        true => print_json(&document(&opened, kind, available, &outcome)),
        false => print_text(&text(&opened, kind, available, &outcome)),
    })
}

/// Prints what was found; counts that were not predicted fail the command all the same.
fn tell(outcome: &EvaluateOutcome, print: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    print()?;
    Failure::of_ledger(outcome.difference.as_ref())
}

/// The unit of the loss, and what `e` to it means.
fn perplexity(opened: &Opened, outcome: &EvaluateOutcome) -> Option<f64> {
    opened.model().patch_values.is_none().then(|| outcome.evaluation.perplexity())
}

/// `available`: samples that there are before any is read again.
fn text(opened: &Opened, kind: &str, available: Option<u64>, outcome: &EvaluateOutcome) -> String {
    let (evaluation, about) = (&outcome.evaluation, opened.checkpoint.about());
    let unit = if opened.model().patch_values.is_some() { "numbers" } else { "tokens" };
    let perplexity =
        perplexity(opened, outcome).map_or_else(String::new, |number| format!("perplexity  {number:.4}\n"));
    let again = match available {
        Some(all) if all < evaluation.samples => {
            format!("read again  {} samples: the data has {all}\n", evaluation.samples - all)
        }
        _ => String::new(),
    };
    format!(
        "checkpoint  {}: {}, step {}\nloss        {:.6}\n{perplexity}{unit:<12}{} in {} {kind} samples, {:.0} a second\n{again}",
        opened.checkpoint.path().display(),
        about.model.name,
        about.step,
        evaluation.loss,
        evaluation.targets,
        evaluation.samples,
        evaluation.targets as f64 / outcome.seconds,
    )
}

fn document(opened: &Opened, kind: &str, available: Option<u64>, outcome: &EvaluateOutcome) -> Value {
    let (evaluation, about) = (&outcome.evaluation, opened.checkpoint.about());
    json!({
        "checkpoint": opened.checkpoint.path(),
        "step": about.step,
        "model": about.model,
        "layout": layout_json(&opened.layout),
        "samples": kind,
        "loss": evaluation.loss,
        "perplexity": perplexity(opened, outcome),
        "targets": evaluation.targets,
        "sequences": evaluation.samples,
        "available": available,
        "batches": evaluation.steps,
        "seconds": outcome.seconds,
        "ledger": {
            "predicted": outcome.predicted,
            "counted": outcome.counted,
            "equal": outcome.difference.is_none(),
        },
    })
}

#[cfg(test)]
mod tests {
    use quadrille_engine::Evaluation;
    use quadrille_spec::{Ledger, LedgerDifference};

    use super::*;

    #[test]
    fn a_count_that_was_not_predicted_fails_the_evaluation_that_is_printed() {
        let difference = LedgerDifference { rank: 1, what: "FLOPs".to_owned(), predicted: Some(1), counted: Some(2) };
        for (difference, code) in [(None, None), (Some(difference), Some(1))] {
            let ledger = Ledger { ranks: Vec::new() };
            let evaluation = Evaluation { loss: 1.0, targets: 1, samples: 1, steps: 1 };
            let (predicted, counted) = (ledger.clone(), ledger);
            let outcome = EvaluateOutcome { evaluation, seconds: 1.0, predicted, counted, difference };
            let mut printed = false;
            let told = tell(&outcome, || {
                printed = true;
                Ok(())
            });
            assert!(printed);
            assert_eq!(told.err().map(|failure| failure.exit_code()), code);
        }
    }
}
