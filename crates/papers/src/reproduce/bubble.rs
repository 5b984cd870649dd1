//! The bubble of our own schedules, simulated as the paper's formulas assume: equal stages, free communication.

use quadrille_cost::simulation::{Communication, Machine, simulate_passes};
use quadrille_spec::{Grid, Layout, LayoutRequest, Model, Schedule, SpecError};
use quadrille_step::{Layer, Op, StageProgram, StepProgram};

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
    let text =
        format!("name = \"blocks\"\nlayers = {}\nhidden = 16\nheads = 4\nvocab = 32\nseq_len = 8", stages * chunks);
    let model = Model::from_toml(&text, &[])?;
    let grid: Grid = format!("pipe={stages}").parse()?;
    let request = LayoutRequest { schedule, chunks, microbatch: Some(1), ..LayoutRequest::new(grid, microbatches) };
    let unusable =
        |error: String| SpecError::invalid("schedule", schedule, error, "correct the published figures' file");
    let program =
        StepProgram::new(&model, &Layout::new(&model, &request)?).map_err(|error| unusable(error.to_string()))?;
    let simulation = simulate_passes(&program, &EqualStages).map_err(|error| unusable(error.to_string()))?;
    Ok(simulation.bubble())
}
