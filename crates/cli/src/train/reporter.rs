//! What a training run shows to people as it goes.

use std::io::{IsTerminal, stderr};

use indicatif::ProgressBar;
use quadrille_engine::{RunEvent, StepRecord};
use quadrille_run::{Event, Prepared};

use crate::bars;
use crate::flags::spelled;
use crate::output::tell;
use crate::train::arguments::TrainArguments;

/// Shows steps to people.
pub struct Reporter {
    bar: Option<ProgressBar>,
    lines: bool,
    /// What a sequence is made of.
    unit: &'static str,
    every: u64,
    /// The first and the last step.
    steps: [u64; 2],
    floor: Option<f64>,
}

impl Reporter {
    /// Of a run; only the first process shows anything.
    pub fn new(arguments: &TrainArguments, run: &Prepared, shown: bool) -> Self {
        let steps = [run.done() + 1, run.spec().steps];
        let watched = shown && stderr().is_terminal();
        let bar = watched.then(|| {
            let bar = bars::steps(steps[1]);
            bar.set_position(steps[0] - 1);
            bar
        });
        let every = ((steps[1] + 1 - steps[0]) / 15).max(1);
        let unit = run.spec().model.sequence_unit();
        Self { bar, lines: !arguments.json, unit, every, steps, floor: run.floor() }
    }

    /// Shows what happened, where it matters while the run goes on.
    pub fn see(&self, happened: &RunEvent) {
        let shown = match happened {
            RunEvent::Step(record) => {
                self.step(record);
                true
            }
            RunEvent::Skipped { .. } | RunEvent::Validated(..) | RunEvent::NotSaved { .. } => true,
            RunEvent::Saved { unremoved, .. } => unremoved.is_some(),
            RunEvent::Diverged { .. } | RunEvent::Stopped(_) => false,
        };
        if let Some(event) = Event::of(happened, 0).filter(|_| shown && self.lines) {
            self.show(&format!("{}\n", spelled(&event.text)));
        }
    }

    fn step(&self, record: &StepRecord) {
        let floor = self.floor.map_or(String::new(), |floor| format!(" (floor {floor:.4})"));
        let text = format!("loss {:.4}{floor}", record.loss);
        let routed = record.router.map_or(String::new(), |it| {
            let [balance, dropped, most] = [it.balance, 100.0 * it.dropped, it.most];
            format!("  balance {balance:.4}  dropped {dropped:.1}%  load up to {most:.2}")
        });
        if self.lines && (record.step.is_multiple_of(self.every) || self.steps.contains(&record.step)) {
            self.show(&format!(
                "step {:>5}  {text}{routed}  norm {:.4}  lr {:.2e}  {:.0} {}/s\n",
                record.step, record.grad_norm, record.lr, record.tokens_per_second, self.unit
            ));
        }
        if let Some(bar) = &self.bar {
            bar.set_message(text);
            bar.set_position(record.step);
        }
    }

    fn show(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| tell(line)),
            None => tell(line),
        }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
