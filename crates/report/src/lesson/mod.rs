//! What a layout does, told so that it can be understood: who talks to whom, which tile of every matrix a rank holds, which
//! collectives follow and why, what hides them, what fills the memory, and when passes run. All of it is made once, from the step
//! program that is priced and executed; text, page and document are of it.

mod held;
mod hidden;
mod mesh;
mod moves;
mod text;
mod tiles;
mod timeline;

use std::collections::BTreeMap;

use quadrille_cost::simulation::Simulation;
use quadrille_spec::Axis;
use quadrille_step::{Group, Layer, StageProgram, StepProgram};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use held::{Full, Memory, Named};
pub use hidden::{Hidden, Waited};
pub use mesh::{Mesh, MeshAxis};
pub use moves::Move;
pub use tiles::Tile;
pub use timeline::{Drawn, MOST_PASSES, Timeline};

/// Most passes of a page's timeline.
const PASSES: usize = 6000;

/// Which rank and which layer are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chosen {
    /// The rank.
    pub rank: usize,
    /// A layer of its stage.
    pub layer: Layer,
}

/// A block or rank that cannot be looked at.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChosenError {
    /// There is no such block.
    #[error("{block}: the blocks of {model} are 0 to {}", .blocks - 1)]
    NoBlock {
        /// The one that is asked for.
        block: usize,
        /// The model's name.
        model: String,
        /// How many it has.
        blocks: usize,
    },
    /// Another stage has it.
    #[error(
        "{block}: block {block} lies on stage {of_block}, and rank {rank} on stage {of_rank}; leave the rank out, or ask for rank {first}"
    )]
    OtherStage {
        /// The block.
        block: usize,
        /// Its stage.
        of_block: usize,
        /// The rank.
        rank: usize,
        /// Its stage.
        of_rank: usize,
        /// The first rank of the block's stage.
        first: usize,
    },
}

impl Chosen {
    /// A rank, or the first one that has the block, or the first; a block, or the first of the rank's stage.
    ///
    /// # Errors
    /// A block that the model does not have, or another stage than the rank's.
    pub fn of(program: &StepProgram, rank: Option<usize>, block: Option<usize>) -> Result<Self, ChosenError> {
        let layout = &program.layout;
        let model = &program.model;
        let grid = &layout.grid;
        let stages = grid.size(Axis::Pipe);
        let first_of = |stage| grid.rank(grid.coordinate(0).with(Axis::Pipe, stage));
        let stage_of = |rank| grid.coordinate(rank).on(Axis::Pipe);
        let Some(block) = block else {
            let rank = rank.unwrap_or(0);
            let pieces = (0..layout.chunks).map(|chunk| chunk * stages + stage_of(rank));
            let first = pieces.clone().find_map(|piece| layout.blocks_of(piece).next());
            // A stage may have an end of the model and no block.
            let end = if pieces.clone().any(|piece| piece == 0) { Layer::Embedding } else { Layer::Head };
            return Ok(Self { rank, layer: first.map_or(end, Layer::Block) });
        };
        if block >= model.layers() {
            return Err(ChosenError::NoBlock { block, model: model.name.clone(), blocks: model.layers() });
        }
        let piece = (0..layout.pieces()).find(|piece| layout.blocks_of(*piece).contains(&block)).unwrap_or(0);
        let of_block = piece % stages;
        let rank = rank.unwrap_or_else(|| first_of(of_block));
        match stage_of(rank) {
            of_rank if of_rank == of_block => Ok(Self { rank, layer: Layer::Block(block) }),
            of_rank => Err(ChosenError::OtherStage { block, of_block, rank, of_rank, first: first_of(of_block) }),
        }
    }
}

/// What a layout does, seen from a rank and a layer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Lesson {
    /// The rank.
    pub rank: usize,
    /// Its stage of the pipeline, from 0.
    pub stage: usize,
    /// The layer that is looked at: `block 0`.
    pub layer: String,
    /// The ranks and who talks to whom.
    pub mesh: Mesh,
    /// The matrices of the layer.
    pub tiles: Vec<Tile>,
    /// What the layer computes, without what is done to every element alone: in the order of each pass.
    pub computes: Vec<Computed>,
    /// All that the rank moves in a step: that of all layers together is its ledger.
    pub moves: Vec<Move>,
    /// The rank's other layers that move something, those together that move all the same, without those that move what the layer
    /// does.
    pub others: Vec<Vec<String>>,
    /// What it holds.
    pub memory: Memory,
    /// When passes run; none without a simulation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
}

/// An operation of a layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Computed {
    /// In which pass.
    pub pass: String,
    /// Its number there, as [`Move::at`].
    pub at: usize,
    /// What it is: `gemm`.
    pub operation: String,
    /// What it gives, without numbers of blocks.
    pub value: String,
    /// Rows and columns of that on the rank.
    pub local: [usize; 2],
    /// How that lies, over axes of several ranks.
    pub sharding: String,
}

impl Lesson {
    /// Of a program, and of a simulated step of it.
    pub fn of(program: &StepProgram, chosen: Chosen, simulation: Option<&Simulation>) -> Self {
        let Chosen { rank, layer } = chosen;
        let stage = program.of_rank(rank);
        let mut found = moves::found(stage, rank);
        if let Some(simulation) = simulation {
            hidden::simulated(&mut found, stage, simulation);
        }
        let layout = &program.layout;
        let moves = moves::folded(&found, layer);
        let layer_name = layer.to_string();
        let timeline =
            simulation.map(|simulation| Timeline::of(simulation, layout.chunks, layout.microbatches(), PASSES));
        Self {
            rank,
            stage: stage.stage,
            others: others(&moves, &layer_name),
            layer: layer_name,
            mesh: Mesh::of(layout, rank),
            tiles: tiles::tiles(stage, rank, layer),
            computes: computes(stage, layer),
            moves,
            memory: Memory::of(stage),
            timeline,
        }
    }

    /// What a layer moves, in the order of passes and operations.
    pub fn of_layer<'a>(&'a self, layer: &'a str) -> impl Iterator<Item = &'a Move> {
        self.moves.iter().filter(move |told| told.layers.iter().any(|each| each == layer))
    }
}

/// Layers by what they move, in the order of moves, without those that move what `layer` does.
fn others(moves: &[Move], layer: &str) -> Vec<Vec<String>> {
    let mut of_layers: BTreeMap<&str, Vec<usize>> = BTreeMap::from([(layer, Vec::new())]);
    let mut layers: Vec<&str> = Vec::new();
    for (at, name) in moves.iter().enumerate().flat_map(|(at, told)| told.layers.iter().map(move |name| (at, name))) {
        if !layers.contains(&name.as_str()) {
            layers.push(name);
        }
        of_layers.entry(name).or_default().push(at);
    }
    let mut groups: Vec<(&[usize], Vec<String>)> = vec![(&of_layers[layer], Vec::new())];
    for name in layers {
        let own = of_layers[name].as_slice();
        match groups.iter_mut().find(|(others, _)| *others == own) {
            Some((_, same)) => same.push(name.to_owned()),
            None => groups.push((own, vec![name.to_owned()])),
        }
    }
    groups.into_iter().skip(1).map(|(_, same)| same).collect()
}

/// Products, attention, norms, and what goes to experts and back.
fn computes(stage: &StageProgram, layer: Layer) -> Vec<Computed> {
    let named = |name: &str| {
        ["norm", "norm-backward", "embed", "embed-backward", "route", "dispatch", "combine"].contains(&name)
    };
    let passes = stage.chunks.iter().flat_map(|chunk| {
        let names = ["forward", "backward", "weight gradients"];
        names.into_iter().zip(chunk.sections())
    });
    let mut all = Vec::new();
    for (pass, section) in passes {
        for (index, op) in section.ops.iter().enumerate().filter(|(_, op)| op.layer == layer) {
            let group = op.operation.group();
            let operation = op.operation.name();
            let Some(written) = op.operation.operands().writes().first().copied() else { continue };
            if matches!(group, Group::Product | Group::Attention) || named(operation) {
                let value = stage.value(written);
                let local = [value.local_rows, value.local_cols];
                let sharding = value.sharding.seen_on(stage.grid());
                all.push(Computed {
                    pass: pass.to_owned(),
                    at: index + 1,
                    operation: operation.to_owned(),
                    value: value.short_name(),
                    local,
                    sharding: sharding.to_string(),
                });
            }
        }
    }
    all
}
