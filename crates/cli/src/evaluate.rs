//! `quadrille eval`: the loss of a checkpoint.

use clap::Args;
use quadrille_engine::EvaluateOutcome;
use quadrille_report::evaluation::EvaluationReport;
use quadrille_report::sources;
use quadrille_run::{DataSpec, Evaluation, recorded_special};

use crate::data_arguments::DataArguments;
use crate::failure::Failure;
use crate::launch::Launch;
use crate::output::{print_json, print_text};
use crate::parse::whole;
use crate::weights::{WeightsArguments, forward};
use crate::{bars, output};

const EXAMPLES: &str = "Examples:
  quadrille eval --from runs/mine --data book.txt --validation 0.1
  quadrille eval --from runs/mine --data book.txt --samples 1000 --grid x=2,data=2
  quadrille eval --from gpt2 --validation-data test.jsonl --data train.jsonl --json

Any layout and batch evaluates what any other has written over the same samples, each counted
once, with the same loss but for rounding; the last batch may be incomplete. With --validation or
--validation-data their samples are read, in order, and none that training reads; else those that
the checkpoint's run would have trained on first with this data. Special tokens of documents are
those of that run. Dropout is off.";

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
    #[arg(long, value_name = "N", value_parser = whole::<u64>(1..))]
    pub samples: Option<u64>,
    /// In place of --samples: so many batches of --global-batch sequences
    #[arg(long, value_name = "N", value_parser = whole::<u64>(1..), conflicts_with = "samples")]
    pub steps: Option<u64>,
    /// Keys what is drawn from the data [default: that of the run that wrote the checkpoint]
    #[arg(long, value_name = "N", value_parser = whole::<u64>(..))]
    pub seed: Option<u64>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    #[command(flatten, next_help_heading = "Data")]
    pub data: DataArguments,
}

impl EvalArguments {
    /// How many samples are asked for.
    fn wanted(&self, global_batch: u64) -> u64 {
        let of_steps = self.steps.map(|steps| steps.saturating_mul(global_batch));
        self.samples.or(of_steps).unwrap_or(DEFAULT_SAMPLES)
    }
}

/// Evaluates and reports.
pub fn run(arguments: &EvalArguments, launch: &Launch) -> Result<(), Failure> {
    let forward = forward(&arguments.weights, launch)?;
    let global_batch = forward.layout().global_batch as u64;
    // Text is read as the run of the checkpoint has read its own, where nothing else is said.
    let special = recorded_special(forward.checkpoint());
    let data = arguments.data.said().apply(DataSpec { special, ..DataSpec::default() });
    let evaluation =
        bars::preparing(|on_preparation| Evaluation::prepare(forward, &data, arguments.seed, launch, on_preparation))?;
    if launch.is_first() && !arguments.json {
        let source = evaluation.source();
        output::tell(&sources::text(&source.overviews(), source.tokenizer().as_deref()));
    }
    let samples = evaluation.samples(arguments.wanted(global_batch));
    let bar = bars::counted(launch, samples.div_ceil(global_batch) as usize);
    let outcome = evaluation.run(samples, &|done| bar.set_position(done));
    bar.finish_and_clear();
    let outcome = outcome?;
    if !launch.is_first() {
        return Ok(());
    }
    let report = EvaluationReport::new(&evaluation, &outcome);
    tell(&outcome, || if arguments.json { print_json(&report) } else { print_text(report.text()) })
}

/// Prints what was found; counts that were not predicted fail the command all the same.
fn tell(outcome: &EvaluateOutcome, print: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    print()?;
    Failure::of_ledger(outcome.difference.as_ref())
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
            let predicted = ledger.clone();
            let counted = ledger;
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
