//! The stages of a program, whole or folded, as they are simulated.

use quadrille_step::schedule::Step;
use quadrille_step::{FoldedProgram, StageProgram, StepProgram};

/// What is simulated: stages, each with a program of its kind. Stages of one kind are priced once.
#[derive(Debug, Clone)]
pub struct Stages<'a> {
    /// A program of each kind.
    pub(super) kinds: Vec<&'a StageProgram>,
    /// By coordinate on the pipe axis.
    pub(super) places: Vec<Place<'a>>,
}

/// A stage.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    /// The number of its kind.
    pub kind: usize,
    /// Its coordinate on the pipe axis.
    pub stage: usize,
    /// Of its kind.
    pub program: &'a StageProgram,
    /// Its own.
    pub steps: &'a [Step],
}

impl<'a> From<&'a StepProgram> for Stages<'a> {
    fn from(program: &'a StepProgram) -> Self {
        let place = |(stage, program): (usize, &'a StageProgram)| {
            let kind = stage;
            let steps = program.steps.as_slice();
            Place { kind, stage, program, steps }
        };
        Self { kinds: program.stages.iter().collect(), places: program.stages.iter().enumerate().map(place).collect() }
    }
}

impl<'a> From<&'a FoldedProgram> for Stages<'a> {
    fn from(program: &'a FoldedProgram) -> Self {
        let stages = program.stages.iter().enumerate().map(|(stage, folded)| {
            let kind = folded.kind;
            let steps = folded.steps.as_slice();
            Place { kind, stage, program: &program.kinds[kind], steps }
        });
        Self { kinds: program.kinds.iter().collect(), places: stages.collect() }
    }
}
