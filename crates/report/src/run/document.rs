//! The page of a run: its curves, its step, its events and checkpoints.

use quadrille_run::units::decimal;
use quadrille_run::{Event, ExpertLoads};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::breakdown::StepBreakdown;
use super::curves::RunCurves;
use super::ledgers::LedgerTables;
use super::prediction::Prediction;
use super::read::{Run, Stored};
use super::{breakdown, curves, ledgers, loads};
use crate::plan::counted;
use crate::summary::summary;
use crate::{ReportVersion, ledger};

/// Of more events the newest are listed.
const LISTED_EVENTS: usize = 500;

/// A run as its page shows it: its curves, its step, its events and checkpoints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunPage {
    /// Version of the document.
    pub version: ReportVersion,
    /// Folder of the run.
    pub run: String,
    /// Name of the model.
    pub model: String,
    /// Unit of sequences: tokens or patches.
    pub unit: String,
    /// True if the model reads patches.
    pub is_of_patches: bool,
    /// Number of steps that are done.
    pub steps: u64,
    /// Step after which the run was to end; null where it does not say so.
    pub steps_wanted: Option<u64>,
    /// Tokens up to the last step; null of a run without steps.
    pub tokens: Option<u64>,
    /// Loss of the last step; null where it is not finite, and of a run without steps.
    pub loss: Option<f64>,
    /// Loss of the last validation; null if missing.
    pub validation_loss: Option<f64>,
    /// Step of that validation.
    pub validation_step: Option<u64>,
    /// The run in pairs of names and texts.
    pub about: Vec<[String; 2]>,
    /// Sentences on what is unusual about the folder.
    pub notes: Vec<String>,
    /// Curves; null of a run without steps.
    pub curves: Option<RunCurves>,
    /// Choices of experts by block.
    pub expert_loads: Vec<ExpertLoads>,
    /// Seconds of a step.
    pub breakdown: StepBreakdown,
    /// Ledgers of a step.
    pub ledger: LedgerTables,
    /// The newest events, the oldest of them first.
    pub events: Vec<RunPageEvent>,
    /// Number of earlier events.
    pub earlier_events: usize,
    /// Finished checkpoints, oldest first.
    pub checkpoints: Vec<Stored>,
    /// Number of unfinished checkpoints.
    pub unfinished_checkpoints: usize,
}

/// Something beside steps that happened in a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunPageEvent {
    /// Step after which it happened.
    pub step: u64,
    /// Kind of the event.
    pub kind: String,
    /// A sentence on it.
    pub text: String,
}

impl RunPage {
    /// Page of a run, with the prediction for its step.
    pub fn new(run: &Run, prediction: &Prediction) -> Self {
        let last = run.steps.last();
        let model = &run.program.model;
        let validation = run.events.iter().rev().find(|event| event.kind == "validation");
        Self {
            version: ReportVersion::CURRENT,
            run: run.path.display().to_string(),
            model: model.name.clone(),
            unit: model.sequence_unit().to_string(),
            is_of_patches: model.patch_values.is_some(),
            steps: last.map_or(0, |step| step.step),
            steps_wanted: run.last,
            tokens: last.map(|step| step.tokens),
            loss: last.map(|step| step.loss).filter(|loss| loss.is_finite()),
            validation_loss: validation.and_then(|event| event.loss),
            validation_step: validation.map(|event| event.step),
            about: about(run),
            notes: notes(run),
            curves: curves::curves(run),
            expert_loads: loads::loads(run),
            breakdown: breakdown::breakdown(run, prediction),
            ledger: ledgers::ledgers(run),
            events: events(run),
            earlier_events: run.events.len().saturating_sub(LISTED_EVENTS),
            checkpoints: run.checkpoints.clone(),
            unfinished_checkpoints: run.unfinished,
        }
    }
}

/// What the run is, as pairs of names and texts.
fn about(run: &Run) -> Vec<[String; 2]> {
    let row = |name: &str, text: String| [name.to_owned(), text];
    // A name and its text on each line.
    let told = summary(&run.program);
    let told = told.lines().filter_map(|line| line.split_once(' '));
    let mut rows: Vec<_> = told.map(|(name, text)| row(name, text.trim().into())).collect();
    if run.program.layout.optimizer_overlap {
        rows.push(row("updates", ledger::repeats(&run.steps)));
    }
    if let Some(rate) = run.tflops_per_device() {
        let counted = counted(run.flops_convention);
        rows.push(row(
            "speed",
            format!("{} for each rank in the median step: {counted}", decimal(rate * 1e12, "FLOP/s")),
        ));
    }
    rows.push(row("threads", format!("{} for each rank", run.threads)));
    rows.push(row("command", command(&run.command)));
    rows
}

/// As a shell reads them, the command that began the run and those that went on with it: behind each `--resume` stands what
/// was said then, without the folder.
pub(crate) fn command(words: &[String]) -> String {
    let parts = words.split(|word| word == "--resume").enumerate();
    let lines = parts.map(|(part, words)| if part == 0 { line("", words) } else { line(" --resume FOLDER", words) });
    lines.collect::<Vec<_>>().join("; ")
}

fn line(resumed: &str, words: &[String]) -> String {
    let plain = |word: &str| {
        !word.is_empty() && word.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_=,./:%+@".contains(letter))
    };
    let quoted = words
        .iter()
        .map(|word| if plain(word) { format!(" {word}") } else { format!(" '{}'", word.replace('\'', r"'\''")) });
    format!("quadrille train{resumed}{}", quoted.collect::<String>())
}

/// What is unusual about the folder.
fn notes(run: &Run) -> Vec<String> {
    let cut = run.cut.iter().map(|name| {
        format!("The last line of {name} is cut off, and left out: it is being written, or the run was killed.")
    });
    run.summary.as_ref().err().cloned().into_iter().chain(cut).collect()
}

/// The newest events, the oldest of them first.
fn events(run: &Run) -> Vec<RunPageEvent> {
    let earlier = run.events.len().saturating_sub(LISTED_EVENTS);
    let event = |event: &Event| RunPageEvent { step: event.step, kind: event.kind.clone(), text: event.text.clone() };
    run.events[earlier..].iter().map(event).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_can_be_used_again() {
        let words = ["--grid", "x=2,data=2", "--data", "my book.txt", "it's", ""].map(str::to_owned);
        assert_eq!(command(&words), r"quadrille train --grid x=2,data=2 --data 'my book.txt' 'it'\''s' ''");
        let words = ["--grid", "x=2", "--resume", "--steps", "8", "--resume"].map(str::to_owned);
        let lines =
            "quadrille train --grid x=2; quadrille train --resume FOLDER --steps 8; quadrille train --resume FOLDER";
        assert_eq!(command(&words), lines);
    }
}
