//! Which elements of pruned tensors are kept, and how many of them ranks have to hold.

use std::sync::Arc;

use quadrille_checkpoint::{Checkpoint, Quantity, Reader};
use quadrille_spec::{Axis, RandomStream, Sparsity};
use quadrille_step::{KeptCounts, Layer, Parameter, StageProgram, StepProgram};

use crate::{EngineError, Shard};

/// The masks of a pruned model.
#[derive(Debug, Clone)]
pub enum Masks {
    /// Those of a checkpoint.
    Checkpoint(Arc<Checkpoint>),
    /// Of every matrix of a block each element is pruned by chance, by itself: for proofs.
    Drawn {
        /// Keys the draws.
        seed: u64,
        /// How likely it is.
        sparsity: Sparsity,
    },
}

impl Masks {
    /// Whether each element of a drawn mask is kept.
    pub fn drawn(seed: u64, sparsity: Sparsity, tensor: &str, elements: usize) -> impl Iterator<Item = bool> {
        let stream = RandomStream::new(seed, &format!("mask {tensor}"));
        (0..elements).map(move |element| draw(stream, sparsity, element))
    }

    /// By pruned tensor: how many elements the fullest of its tiles keeps in this program's layout.
    ///
    /// # Errors
    /// A damaged checkpoint, or one of another model.
    pub fn counts(&self, program: &StepProgram) -> Result<KeptCounts, EngineError> {
        let (mut counts, mut reader) = (KeptCounts::new(), self.reader());
        for stage in &program.stages {
            for parameter in stage.parameters.iter().filter(|parameter| !parameter.copy) {
                if !reader.prunes(parameter) {
                    continue;
                }
                let sharding = &stage.value(parameter.value).sharding;
                let places = (0..stage.grid().ranks()).map(|rank| stage.grid().coordinate(rank));
                let tiles = places.filter(|place| place.on(Axis::Pipe) == stage.stage && sharding.is_owner(*place));
                let shards = tiles.map(|place| Shard::of(stage, parameter, parameter.value, place));
                let mut most = 0;
                for shard in shards {
                    most = most.max(reader.positions(parameter, shard)?.len());
                }
                counts.insert(parameter.name.clone(), most);
            }
        }
        Ok(counts)
    }

    /// Reads them.
    pub(crate) fn reader(&self) -> MaskReader<'_> {
        match self {
            Self::Checkpoint(checkpoint) => MaskReader::of(checkpoint),
            Self::Drawn { seed, sparsity } => MaskReader::Drawn { seed: *seed, sparsity: *sparsity },
        }
    }
}

/// Reads masks.
pub(crate) enum MaskReader<'m> {
    Checkpoint(&'m Checkpoint, Reader<'m>),
    Drawn { seed: u64, sparsity: Sparsity },
}

impl<'m> MaskReader<'m> {
    /// Of a checkpoint.
    pub fn of(checkpoint: &'m Checkpoint) -> Self {
        Self::Checkpoint(checkpoint, checkpoint.reader())
    }

    /// Whether a parameter is pruned.
    pub fn prunes(&self, parameter: &Parameter) -> bool {
        match self {
            Self::Checkpoint(checkpoint, _) => checkpoint.prunes(&parameter.name),
            Self::Drawn { .. } => matches!(parameter.layer, Layer::Block(_)) && parameter.decay,
        }
    }

    /// Which elements of a pruned tensor's shard are kept, in ascending order.
    pub fn positions(&mut self, parameter: &Parameter, shard: Shard) -> Result<Vec<u32>, EngineError> {
        let mut positions = Vec::new();
        let mut mask: Vec<f32> = Vec::new();
        for run in shard.runs().filter(|run| run.row < parameter.rows) {
            let local = run.local as u32;
            match self {
                Self::Checkpoint(_, reader) => {
                    mask.resize(run.len, 0.0);
                    reader.read(&parameter.name, Quantity::Kept, run.row, run.col, &mut mask)?;
                    positions.extend((local..).zip(&mask).filter(|(_, kept)| **kept != 0.0).map(|(at, _)| at));
                }
                Self::Drawn { seed, sparsity } => {
                    let stream = RandomStream::new(*seed, &format!("mask {}", parameter.name));
                    let first = run.row * parameter.cols + run.col;
                    let kept = |at: &u32| draw(stream, *sparsity, first + (at - local) as usize);
                    positions.extend((local..local + run.len as u32).filter(kept));
                }
            }
        }
        Ok(positions)
    }
}

/// Whether an element is kept.
fn draw(stream: RandomStream, sparsity: Sparsity, element: usize) -> bool {
    f64::from(stream.word(element as u64)) / 2_f64.powi(32) >= sparsity.part()
}

/// Refuses a checkpoint that prunes other tensors than a program which trains.
pub(crate) fn check_pruned(
    program: &StageProgram,
    kept: &KeptCounts,
    checkpoint: &Checkpoint,
) -> Result<(), EngineError> {
    let differs = |parameter: &&Parameter| checkpoint.prunes(&parameter.name) != kept.contains_key(&parameter.name);
    match program.parameters.iter().filter(|_| program.trains()).find(differs) {
        None => Ok(()),
        Some(parameter) => Err(EngineError::OtherMask {
            path: checkpoint.path().display().to_string(),
            tensor: parameter.name.clone(),
            prunes: if checkpoint.prunes(&parameter.name) { "prunes" } else { "does not prune" },
        }),
    }
}
