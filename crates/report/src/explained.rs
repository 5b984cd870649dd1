//! What a layout does, without running it: its program, its ledgers, its simulated step.

use std::ops::Range;

use quadrille_cost::native::Framework;
use quadrille_cost::simulation::Simulation;
use quadrille_run::layout_json;
use quadrille_run::units::bytes;
use quadrille_step::{Shown, StepError, StepProgram, predict_rank, print_part};
use serde_json::{Map, Value, json};

use crate::lesson::{Chosen, Lesson};
use crate::recomputation::Recomputation;
use crate::summary::{numbers, summary_by};
use crate::{Text, crowds::crowds, ledger, simulation};

/// A program, and what is told of it.
pub struct Explained<'a> {
    /// The program of the layout, as the framework runs it.
    pub program: &'a StepProgram,
    /// What runs it.
    pub framework: &'a Framework,
    /// Whether every operation is told.
    pub operations: bool,
    /// Whether ledgers are told; where operations are not, either, a document has them all the same and a text has a summary.
    pub ledgers: bool,
    /// Of which rank; `None`: of all, in a summary of the first.
    pub rank: Option<usize>,
    /// The rank and layer that are looked at.
    pub chosen: Chosen,
    /// Which operations are told, and how wide.
    pub shown: Shown,
    /// Columns of all other text.
    pub width: usize,
    /// Its step on a machine.
    pub simulation: Option<&'a Simulation>,
    /// Bytes of a device of the machine that was named, if one was.
    pub device_memory: Option<u64>,
    /// Whether the simulated step is told by itself; else what is hidden in it.
    pub timeline: bool,
}

impl Explained<'_> {
    /// How many ranks' ledgers are told: each is a page of text, and a document of its own, so that of millions no memory has room.
    pub fn told_ledgers(&self, is_document: bool) -> usize {
        match self.ledgers || (is_document && !self.operations) {
            true if self.rank.is_none() => self.program.layout.grid.ranks(),
            told => usize::from(told),
        }
    }

    /// All of it, as `explain --json` prints it; says of how many ranks of how many the ledgers are made.
    ///
    /// # Errors
    /// Another layout, for comparison, of which no program can be made.
    pub fn document(&self, progress: &mut dyn FnMut(usize, usize)) -> Result<Value, StepError> {
        let program = self.program;
        let mut document = self.head();
        if self.operations {
            document.insert("program".to_owned(), json!(print_part(program, &self.shown).lines().collect::<Vec<_>>()));
        }
        if self.ledgers || !self.operations {
            let ranks = self.ranks();
            let stages: Vec<usize> = ranks.clone().map(|rank| program.of_rank(rank).stage).collect();
            let mut ledgers = Vec::new();
            let mut unequal = Vec::new();
            for rank in ranks.clone() {
                ledgers.push(json!(predict_rank(program, rank)));
                unequal.extend(crowds(program, rank).map(|crowds| crowds.document()));
                progress(ledgers.len(), ranks.len());
            }
            if !unequal.is_empty() {
                document.insert("unequal_loads".to_owned(), json!(unequal));
            }
            document.insert("ranks".to_owned(), Value::Array(ledgers));
            document.insert("stages".to_owned(), json!(stages));
            if let Some(recomputation) = self.recomputation()? {
                document.insert("recomputation".to_owned(), json!(recomputation));
            }
        }
        if !self.ledgers && !self.operations {
            document.insert("lesson".to_owned(), json!(self.lesson()));
        }
        if let Some(simulation) = self.simulation.filter(|_| self.timeline) {
            document.insert("simulation".to_owned(), simulation::document(simulation, self.width));
        }
        Ok(Value::Object(document))
    }

    /// What a page shows: the lesson with what is explained, and the rank's ledger.
    pub fn page_document(&self) -> Value {
        let mut document = self.head();
        document
            .insert("summary".to_owned(), json!(summary_by(self.program, self.framework).lines().collect::<Vec<_>>()));
        document.insert("numbers".to_owned(), json!(numbers(self.framework)));
        document.insert("device_memory_bytes".to_owned(), json!(self.device_memory));
        document.insert("ledger".to_owned(), json!(predict_rank(self.program, self.chosen.rank)));
        document.insert("lesson".to_owned(), json!(self.lesson()));
        Value::Object(document)
    }

    /// Those whose ledgers are told, if any are.
    fn ranks(&self) -> Range<usize> {
        self.rank.map_or(0..self.program.layout.grid.ranks(), |rank| rank..rank + 1)
    }

    fn head(&self) -> Map<String, Value> {
        let StepProgram { model, layout, .. } = self.program;
        let head =
            [("framework", json!(self.framework.name)), ("model", json!(model)), ("layout", layout_json(layout))];
        head.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// A note, where so many bytes are more than a device of the machine has.
    fn excess(&self, peak: u64) -> String {
        match self.device_memory {
            Some(has) if peak > has => {
                format!("note: {} are more than the {} that a device has\n", bytes(peak), bytes(has))
            }
            _ => String::new(),
        }
    }

    /// What can be learned from it.
    pub fn lesson(&self) -> Lesson {
        Lesson::of(self.program, self.chosen, self.simulation)
    }

    /// For people; parts that are not asked for by name are left out, but for the summary where none is.
    ///
    /// # Errors
    /// As [`Self::document`].
    pub fn text(&self, progress: &mut dyn FnMut(usize, usize)) -> Result<Text, StepError> {
        let mut text = Text::new();
        if self.operations {
            text += print_part(self.program, &self.shown);
        }
        if self.ledgers {
            let ranks = self.ranks();
            for (done, rank) in ranks.clone().enumerate() {
                text += self.ledger(rank);
                progress(done + 1, ranks.len());
            }
        }
        if !self.operations && !self.ledgers {
            text += summary_by(self.program, self.framework);
            if !self.timeline {
                let lesson = self.lesson();
                text += lesson.mesh_text(self.width);
                text += lesson.layer_text(self.width);
                if self.shown.layer.is_none() {
                    text += lesson.others_text(self.width);
                }
                text += self.ledger(self.chosen.rank);
                text += lesson.memory_text(self.width);
                text += self.excess(lesson.memory.peak_bytes);
                text.extend(self.recomputation()?.map(|memory| memory.text()));
            }
        }
        let simulation = self.simulation.filter(|_| self.timeline);
        text.extend(simulation.map(|simulated| simulation::text(simulated, &self.program.layout, self.width)));
        Ok(text)
    }

    fn ledger(&self, rank: usize) -> Text {
        let text = ledger::text(&self.program.layout.grid, &predict_rank(self.program, rank));
        text + crowds(self.program, rank).map_or(String::new(), |crowds| crowds.text())
    }

    /// The memory of a rank for other choices of what is recomputed, of this program's own engine.
    fn recomputation(&self) -> Result<Option<Recomputation>, StepError> {
        if self.framework.is_own() { Recomputation::of(self.program, self.chosen.rank) } else { Ok(None) }
    }
}
