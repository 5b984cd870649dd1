//! Pipelines of our own schedules: the bubble, simulated as the papers' formulas assume (equal stages, free communication),
//! and messages.

use quadrille_cost::simulation::{Communication, Machine, simulate_passes};
use quadrille_spec::{Grid, Layout, LayoutRequest, Model, Schedule, SpecError};
use quadrille_step::{ChunkProgram, Layer, Op, StageProgram, StepProgram};

/// Products of blocks take time, embedding and head none: stages are equal.
struct EqualStages;

impl Machine for EqualStages {
    fn operation_seconds(&self, stage: &StageProgram, op: &Op) -> f64 {
        let product = op.operation.product(stage).filter(|_| matches!(op.layer, Layer::Block(_)));
        product.map_or(0.0, |product| (product.m * product.n * product.k) as f64)
    }

    fn collective_seconds(&self, _: &Communication) -> f64 {
        0.0
    }

    fn message_seconds(&self, _: u64) -> f64 {
        0.0
    }
}

/// Idle over ideal time of `stages` stages, of `chunks` chunks each, over `microbatches` microbatches.
pub fn simulated(schedule: Schedule, stages: usize, chunks: usize, microbatches: usize) -> Result<f64, SpecError> {
    let simulation = simulate_passes(&program(schedule, stages, chunks, microbatches)?, &EqualStages, &|| false);
    Ok(simulation.map_err(|error| unusable(schedule, error.to_string()))?.bubble())
}

/// Messages that a rank of stage `stage` of `stages` sends and receives for a microbatch.
pub fn messages(stages: usize, stage: usize) -> Result<usize, SpecError> {
    let program = program(Schedule::OneForwardOneBackward, stages, 1, stages)?;
    let sections = program.of_rank(stage).chunks.iter().flat_map(ChunkProgram::sections);
    Ok(sections.map(|section| section.receives.len() + section.sends.len()).sum())
}

/// The program of a small model with a block for every chunk, each rank a stage.
fn program(schedule: Schedule, stages: usize, chunks: usize, microbatches: usize) -> Result<StepProgram, SpecError> {
    let text =
        format!("name = \"blocks\"\nlayers = {}\nhidden = 16\nheads = 4\nvocab = 32\nseq_len = 8", stages * chunks);
    let model = Model::from_toml(&text, &[])?;
    let grid: Grid = format!("pipe={stages}").parse()?;
    let request = LayoutRequest { schedule, chunks, microbatch: Some(1), ..LayoutRequest::new(grid, microbatches) };
    StepProgram::new(&model, &Layout::new(&model, &request)?).map_err(|error| unusable(schedule, error.to_string()))
}

fn unusable(schedule: Schedule, error: String) -> SpecError {
    SpecError::invalid("schedule", schedule, error, "correct the published figures' file")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_sends_and_receives_what_the_dissertation_counts() {
        // Four stages of four GPUs: a microbatch of one sequence. The ends have one neighbour.
        assert_eq!(crate::samo::messages(1, 1, 4, 4), 4.0);
        assert_eq!([0, 1, 2, 3].map(|stage| messages(4, stage).unwrap()), [2, 4, 4, 2]);
    }
}
