//! Small programs and machines on which only what a test is about takes time.

use quadrille_cost::simulation::{Communication, Machine, Simulation, simulate};
use quadrille_spec::{Axis, Layout, LayoutRequest, Model};
use quadrille_step::schedule::Action;
use quadrille_step::{Layer, Op, StageProgram, StepProgram};

/// A small model.
pub fn model(layers: usize) -> Model {
    let text = format!("name = \"m\"\nlayers = {layers}\nhidden = 16\nheads = 4\nvocab = 32\nseq_len = 8");
    Model::from_toml(&text, &[]).unwrap()
}

/// A step on `grid` of `microbatches` microbatches of one sequence per data, y and z rank; `change` may change all else.
pub fn program(layers: usize, grid: &str, microbatches: usize, change: impl Fn(&mut LayoutRequest)) -> StepProgram {
    let grid: quadrille_spec::Grid = grid.parse().unwrap();
    let sequences = grid.size(Axis::Y) * grid.size(Axis::Z);
    let mut request = LayoutRequest::new(grid, microbatches * sequences * grid.batch_shares());
    request.microbatch = Some(sequences);
    change(&mut request);
    let model = model(layers);
    StepProgram::new(&model, &Layout::new(&model, &request).unwrap()).unwrap()
}

/// Products of blocks take a second per 2^20 FLOP, so that blocks are equal and all else is free; collectives and
/// messages take constant times; passes are slowed down as told.
pub struct BlocksOnly {
    pub collective_s: f64,
    pub message_s: f64,
    pub slowdown: fn(usize, Option<Action>) -> f64,
}

impl Default for BlocksOnly {
    fn default() -> Self {
        Self { collective_s: 0.0, message_s: 0.0, slowdown: |_, _| 1.0 }
    }
}

impl Machine for BlocksOnly {
    fn operation_seconds(&self, stage: &StageProgram, op: &Op) -> f64 {
        let product = op.operation.product(stage).filter(|_| matches!(op.layer, Layer::Block(_)));
        product.map_or(0.0, |product| (2 * product.m * product.n * product.k) as f64 / (1 << 20) as f64)
    }

    fn collective_seconds(&self, _: &Communication) -> f64 {
        self.collective_s
    }

    fn message_seconds(&self, _: u64) -> f64 {
        self.message_s
    }

    fn slowdown(&self, stage: usize, action: Option<Action>) -> f64 {
        (self.slowdown)(stage, action)
    }
}

/// On free links.
pub fn ideal(program: &StepProgram) -> Simulation {
    simulate(program, &BlocksOnly::default()).unwrap()
}

pub fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}
