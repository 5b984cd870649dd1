//! The report of a layout: its program, its ledgers, its simulated step, without running it.

use std::ops::Range;

use quadrille_cost::native::Framework;
use quadrille_cost::simulation::Simulation;
use quadrille_run::shown_layout;
use quadrille_run::units::bytes;
use quadrille_spec::{Grid, LayoutFile, ModelFile, RankLedger, SpecError};
use quadrille_step::{Shown, StepError, StepProgram, predict_rank, print_part};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::lesson::{Chosen, Lesson};
use crate::loads::UnequalLoads;
use crate::recomputation::Recomputation;
use crate::simulation::SimulationReport;
use crate::summary::{numbers, summary_by};
use crate::{ReportVersion, Text, ledger};

/// A layout, explained: what `explain --json` prints. Parts that nobody asked for are absent.
///
/// Times are in seconds, sizes in bytes, unless a field's name says otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExplainReport {
    /// Version of the document.
    pub version: ReportVersion,
    /// Framework that runs the program.
    pub framework: String,
    /// Fields of the model's file.
    pub model: ModelFile,
    /// Fields of the layout's file.
    pub layout: LayoutFile,
    /// Lines of the step program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Vec<String>>,
    /// Work of ranks with the least equal loads; absent where no experts get rows as they come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unequal_loads: Option<Vec<UnequalLoads>>,
    /// Predicted ledgers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<Vec<RankLedger>>,
    /// Stage of each of these ranks, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stages: Option<Vec<usize>>,
    /// Memory with other choices of recomputation; absent of other engines, and where there is nothing to choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recomputation: Option<Recomputation>,
    /// The layout seen from a rank and a layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lesson: Option<Lesson>,
    /// The simulated step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulation: Option<SimulationReport>,
    /// Lines that sum the layout up, of text alone; no part of documents.
    #[serde(skip)]
    pub summary: Option<String>,
    /// Bytes of a device of the machine that was named; no part of documents.
    #[serde(skip)]
    pub device_memory_bytes: Option<u64>,
    /// True if one layer is explained, and no other in text; no part of documents.
    #[serde(skip)]
    pub is_of_layer: bool,
}

/// A layout as its page shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExplainPage {
    /// Version of the document.
    pub version: ReportVersion,
    /// Framework that runs the program.
    pub framework: String,
    /// Fields of the model's file.
    pub model: ModelFile,
    /// Fields of the layout's file.
    pub layout: LayoutFile,
    /// Lines that sum the layout up.
    pub summary: Vec<String>,
    /// Element types in words.
    pub numbers: String,
    /// Bytes of a device of the machine that was named; null where none was.
    pub device_memory_bytes: Option<u64>,
    /// Predicted ledger of the rank.
    pub ledger: RankLedger,
    /// The layout seen from a rank and a layer.
    pub lesson: Lesson,
}

/// A program, and the parts of it that are explained.
pub struct Explained<'a> {
    /// The program of the layout, as the framework runs it.
    pub program: &'a StepProgram,
    /// Framework that runs it.
    pub framework: &'a Framework,
    /// True if operations are wanted.
    pub operations: bool,
    /// True if ledgers are wanted; where operations are not, either, a document has them all the same and a text has a summary.
    pub ledgers: bool,
    /// Rank whose ledger is wanted; `None`: of all, in a summary of the first.
    pub rank: Option<usize>,
    /// The rank and layer that are looked at.
    pub chosen: Chosen,
    /// Selection of operations, and the width of their lines.
    pub shown: Shown,
    /// Columns of all other text.
    pub width: usize,
    /// Its step on a machine.
    pub simulation: Option<&'a Simulation>,
    /// Bytes of a device of the machine that was named, if one was.
    pub device_memory: Option<u64>,
    /// True if the simulated step is wanted by itself; else what is hidden in it.
    pub timeline: bool,
}

impl Explained<'_> {
    /// Number of ranks whose ledgers are reported: each is a page of text, so that those of millions do not fit into memory.
    pub fn reported_ledgers(&self, is_document: bool) -> usize {
        match self.ledgers || (is_document && !self.operations) {
            true if self.rank.is_none() => self.program.layout.grid.ranks(),
            told => usize::from(told),
        }
    }

    /// Report for a document; calls `progress` with the number of ledgers that are made, and of all.
    ///
    /// # Errors
    /// Another layout, for comparison, of which no program can be made.
    pub fn document(&self, progress: &mut dyn FnMut(usize, usize)) -> Result<ExplainReport, StepError> {
        let has_ledgers = self.ledgers || !self.operations;
        let has_lesson = !self.ledgers && !self.operations;
        let report = self.head();
        let report = if has_ledgers { self.with_ledgers(report, self.ranks(), progress) } else { report };
        Ok(ExplainReport {
            recomputation: if has_ledgers { self.recomputation()? } else { None },
            lesson: has_lesson.then(|| self.lesson()),
            ..report
        })
    }

    /// Report for text: parts that are not asked for are absent, but for the summary where none is.
    ///
    /// # Errors
    /// As [`Self::document`].
    pub fn for_text(&self, progress: &mut dyn FnMut(usize, usize)) -> Result<ExplainReport, StepError> {
        let report = self.head();
        if self.ledgers {
            return Ok(self.with_ledgers(report, self.ranks(), progress));
        }
        if self.operations {
            return Ok(report);
        }
        let report = ExplainReport { summary: Some(summary_by(self.program, self.framework)), ..report };
        if self.timeline {
            return Ok(report);
        }
        let rank = self.chosen.rank;
        let report = self.with_ledgers(report, rank..rank + 1, &mut |_, _| {});
        Ok(ExplainReport { recomputation: self.recomputation()?, lesson: Some(self.lesson()), ..report })
    }

    /// Page of the layout, with the lesson and the rank's ledger.
    pub fn page(&self) -> ExplainPage {
        let ExplainReport { version, framework, model, layout, .. } = self.head();
        ExplainPage {
            version,
            framework,
            model,
            layout,
            summary: summary_by(self.program, self.framework).lines().map(str::to_owned).collect(),
            numbers: numbers(self.framework),
            device_memory_bytes: self.device_memory,
            ledger: predict_rank(self.program, self.chosen.rank),
            lesson: self.lesson(),
        }
    }

    /// Ranks whose ledgers are reported, if any are.
    fn ranks(&self) -> Range<usize> {
        self.rank.map_or(0..self.program.layout.grid.ranks(), |rank| rank..rank + 1)
    }

    /// Report without ledgers and lesson.
    fn head(&self) -> ExplainReport {
        let StepProgram { model, layout, .. } = self.program;
        let program = || print_part(self.program, &self.shown).lines().map(str::to_owned).collect();
        let simulation = self.simulation.filter(|_| self.timeline);
        ExplainReport {
            version: ReportVersion::CURRENT,
            framework: self.framework.name.to_owned(),
            model: ModelFile::of(model),
            layout: shown_layout(layout),
            program: self.operations.then(program),
            unequal_loads: None,
            ranks: None,
            stages: None,
            recomputation: None,
            lesson: None,
            simulation: simulation.map(|simulation| SimulationReport::new(simulation, layout, self.width)),
            summary: None,
            device_memory_bytes: self.device_memory,
            is_of_layer: self.shown.layer.is_some(),
        }
    }

    fn with_ledgers(
        &self,
        report: ExplainReport,
        ranks: Range<usize>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> ExplainReport {
        let mut ledgers = Vec::new();
        let mut unequal = Vec::new();
        for rank in ranks.clone() {
            ledgers.push(predict_rank(self.program, rank));
            unequal.extend(UnequalLoads::new(self.program, rank));
            progress(ledgers.len(), ranks.len());
        }
        let stages = ranks.map(|rank| self.program.of_rank(rank).stage).collect();
        let unequal_loads = (!unequal.is_empty()).then_some(unequal);
        ExplainReport { unequal_loads, ranks: Some(ledgers), stages: Some(stages), ..report }
    }

    /// The layout seen from the rank and the layer.
    pub fn lesson(&self) -> Lesson {
        Lesson::of(self.program, self.chosen, self.simulation)
    }

    /// Memory of a rank with other choices of recomputation, of this program's own engine.
    fn recomputation(&self) -> Result<Option<Recomputation>, StepError> {
        if self.framework.is_own() { Recomputation::of(self.program, self.chosen.rank) } else { Ok(None) }
    }
}

impl ExplainReport {
    /// Text of so many columns.
    ///
    /// # Errors
    /// A layout whose grid cannot be read, which is none of this program's.
    pub fn text(&self, width: usize) -> Result<Text, SpecError> {
        let grid = self.layout.request()?.grid;
        let mut text = Text::new();
        text.extend(self.program.iter().flatten().map(|line| format!("{line}\n")));
        text.extend(self.summary.clone());
        match &self.lesson {
            Some(lesson) => text += self.lesson_text(lesson, &grid, width),
            None => text.extend(self.ranks.iter().flatten().map(|ledger| self.ledger_text(&grid, ledger))),
        }
        text.extend(self.simulation.as_ref().map(SimulationReport::text));
        Ok(text)
    }

    fn lesson_text(&self, lesson: &Lesson, grid: &Grid, width: usize) -> Text {
        let mut text = lesson.mesh_text(width) + lesson.layer_text(width);
        if !self.is_of_layer {
            text += lesson.others_text(width);
        }
        let ledger = self.ranks.iter().flatten().find(|ledger| ledger.rank == lesson.rank);
        text.extend(ledger.map(|ledger| self.ledger_text(grid, ledger)));
        text += lesson.memory_text(width);
        text += self.excess(lesson.memory.peak_bytes);
        text.extend(self.recomputation.as_ref().map(Recomputation::text));
        text
    }

    fn ledger_text(&self, grid: &Grid, ledger: &RankLedger) -> Text {
        let loads = self.unequal_loads.iter().flatten().find(|loads| loads.rank == ledger.rank);
        ledger::text(grid, ledger) + loads.map_or(String::new(), UnequalLoads::text)
    }

    /// Note, where so many bytes are more than a device of the machine has.
    fn excess(&self, peak: u64) -> String {
        match self.device_memory_bytes {
            Some(has) if peak > has => {
                format!("note: {} are more than the {} that a device has\n", bytes(peak), bytes(has))
            }
            _ => String::new(),
        }
    }
}
