//! What a layout does, without running it: its program, its ledgers, its simulated step.

use quadrille_cost::native::Framework;
use quadrille_cost::simulation::Simulation;
use quadrille_run::layout_json;
use quadrille_step::{StepError, StepProgram, predict, predict_rank, print_program};
use serde_json::{Map, Value, json};

use crate::recomputation::Recomputation;
use crate::summary::summary;
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
    /// Its step on a machine.
    pub simulation: Option<&'a Simulation>,
}

impl Explained<'_> {
    /// All of it, as `explain --json` prints it.
    ///
    /// # Errors
    /// Another layout, for comparison, of which no program can be made.
    pub fn document(&self) -> Result<Value, StepError> {
        let program = self.program;
        let mut document = Map::new();
        document.insert("model".to_owned(), json!(program.model));
        document.insert("layout".to_owned(), layout_json(&program.layout));
        if self.operations {
            document.insert("program".to_owned(), json!(print_program(program).lines().collect::<Vec<_>>()));
        }
        if self.ledgers || !self.operations {
            let ranks = match self.rank {
                Some(rank) => vec![predict_rank(program, rank)],
                None => predict(program).ranks,
            };
            let crowds: Vec<Value> =
                ranks.iter().filter_map(|rank| Some(crowds(program, rank.rank)?.document())).collect();
            if !crowds.is_empty() {
                document.insert("unequal_loads".to_owned(), json!(crowds));
            }
            let stages: Vec<usize> = ranks.iter().map(|rank| program.of_rank(rank.rank).stage).collect();
            document.insert("ranks".to_owned(), json!(ranks));
            document.insert("stages".to_owned(), json!(stages));
            if let Some(recomputation) = self.recomputation()? {
                document.insert("recomputation".to_owned(), json!(recomputation));
            }
        }
        if let Some(simulation) = self.simulation {
            document.insert("simulation".to_owned(), simulation::document(simulation));
        }
        Ok(Value::Object(document))
    }

    /// For people; parts that are not asked for by name are left out, but for the summary where none is.
    ///
    /// # Errors
    /// As [`Self::document`].
    pub fn text(&self) -> Result<Text, StepError> {
        let grid = &self.program.layout.grid;
        let mut text = Text::new();
        if self.operations {
            text += print_program(self.program);
        }
        if self.ledgers {
            let chosen = self.rank.map_or(0..grid.ranks(), |rank| rank..rank + 1);
            text.extend(chosen.map(|rank| self.ledger(rank)));
        }
        if !self.operations && !self.ledgers {
            text += summary(self.program);
            text += self.ledger(self.rank.unwrap_or(0));
            text.extend(self.recomputation()?.map(|memory| memory.text()));
        }
        text.extend(self.simulation.map(simulation::text));
        Ok(text)
    }

    fn ledger(&self, rank: usize) -> Text {
        let text = ledger::text(&self.program.layout.grid, &predict_rank(self.program, rank));
        text + crowds(self.program, rank).map_or(String::new(), |crowds| crowds.text())
    }

    /// The memory of a rank for other choices of what is recomputed, of this program's own engine.
    fn recomputation(&self) -> Result<Option<Recomputation>, StepError> {
        match self.framework.is_own() {
            true => Recomputation::of(self.program, self.rank.unwrap_or(0)),
            false => Ok(None),
        }
    }
}
