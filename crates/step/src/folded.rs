//! A step program of which only the stages are built that differ: for whoever counts and prices it.

use std::collections::HashMap;

use quadrille_spec::{Axis, Layout, Model};

use crate::ledger::check_counts;
use crate::program::Purpose;
use crate::schedule::{self, Pipeline, Step};
use crate::update;
use crate::{KeptCounts, Message, Practice, StageProgram, StepError, StepProgram};

/// A training program whose stages are there by kind. Stages whose pieces have equal blocks, and are both or neither the first
/// or the last of the model, do the same operations: they differ in their neighbours, in when they do what, and so in how much
/// they hold. Names of values and numbers of layers are those of the first stage of the kind; pieces of a
/// stage with equal blocks have the names of the first of them.
#[derive(Debug, Clone, PartialEq)]
pub struct FoldedProgram {
    /// How the model is spread.
    pub layout: Layout,
    /// A program of each kind: at first that of its first stage, then that of the stage which was asked for last, still with
    /// the names and numbers of layers of the first. Where its storages lie is open until it was asked for.
    pub kinds: Vec<StageProgram>,
    /// By coordinate on the pipe axis.
    pub stages: Vec<FoldedStage>,
}

/// A stage of a folded program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoldedStage {
    /// The number of its kind.
    pub kind: usize,
    /// What it posts, runs and releases, in order.
    pub steps: Vec<Step>,
}

impl StepProgram {
    /// The program of [`StepProgram::with_practice`], folded.
    ///
    /// # Errors
    /// As [`StepProgram::new`].
    pub fn folded(model: &Model, layout: &Layout, practice: Practice) -> Result<FoldedProgram, StepError> {
        let pipeline = Pipeline::of(layout);
        let steps = schedule::steps(&schedule::actions(layout.schedule, pipeline)?, pipeline)?;
        let mut numbers: HashMap<Vec<PieceKind>, usize> = HashMap::new();
        let mut kinds = Vec::new();
        let mut stages = Vec::new();
        let whole = KeptCounts::new();
        for (stage, steps) in steps.into_iter().enumerate() {
            let pieces = pieces(model, layout, practice, stage);
            let kind = *numbers.entry(pieces.clone()).or_insert(kinds.len());
            if kind == kinds.len() {
                let like = |chunk: usize| pieces[..chunk].iter().position(|piece| *piece == pieces[chunk]);
                let purpose = Purpose::Training;
                let steps = steps.clone();
                let program = StageProgram::new(model, layout, purpose, practice, &whole, stage, steps, like)?;
                check_counts(&program)?;
                kinds.push(program);
            }
            stages.push(FoldedStage { kind, steps });
        }
        Ok(FoldedProgram { layout: layout.clone(), kinds, stages })
    }
}

/// Properties that decide about the operations of a piece of layers: whether it is the first or the last of the model, whether the
/// step's tokens are counted before its passes, and the kinds of its blocks.
type PieceKind = ([bool; 3], Vec<usize>);

fn pieces(model: &Model, layout: &Layout, practice: Practice, stage: usize) -> Vec<PieceKind> {
    let stages = layout.grid.size(Axis::Pipe);
    let all = layout.pieces();
    let piece = |chunk: usize| {
        let piece = chunk * stages + stage;
        let blocks = layout.blocks_of(piece).map(|block| model.blocks.kind_of(block));
        let counts = chunk == 0 && update::counts_batch(model, practice);
        ([piece == 0, piece + 1 == all, counts], blocks.collect())
    };
    (0..layout.chunks).map(piece).collect()
}

impl FoldedProgram {
    /// The program of a stage, made of the one of its kind: it is the same until another stage of the kind is asked for.
    pub fn unfolded(&mut self, stage: usize) -> &StageProgram {
        let FoldedStage { kind, steps } = &self.stages[stage];
        let program = &mut self.kinds[*kind];
        if program.stage != stage {
            program.become_stage(stage, steps);
        } else if program.placement.buffer_of.is_empty() {
            program.place();
        }
        program
    }
}

impl StageProgram {
    /// Makes it the program of another stage of its kind.
    fn become_stage(&mut self, stage: usize, steps: &[Step]) {
        let stages = self.grid().size(Axis::Pipe);
        let from = std::mem::replace(&mut self.stage, stage);
        self.steps.clear();
        self.steps.extend_from_slice(steps);
        for chunk in &mut self.chunks {
            chunk.piece = chunk.piece + stage - from;
            for section in [&mut chunk.forward, &mut chunk.backward, &mut chunk.weight_gradient] {
                let messages = section.receives.iter_mut().chain(&mut section.sends);
                messages.for_each(|message| *message = message.moved([from, stage], stages));
            }
        }
        self.place_storages();
    }
}

impl Message {
    /// The message of another stage of the same kind, of so many stages.
    #[must_use]
    pub fn moved(self, [from, to]: [usize; 2], stages: usize) -> Self {
        let peer = (self.peer + stages + to - from) % stages;
        Self { peer, tag: self.tag_moved([from, to]), ..self }
    }

    /// Its tag there.
    pub fn tag_moved(self, [from, to]: [usize; 2]) -> u32 {
        // There are two tags for every piece.
        self.tag + 2 * to as u32 - 2 * from as u32
    }
}
