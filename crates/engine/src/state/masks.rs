//! Masks of pruned tensors, and the number of kept elements that ranks have to hold.

use std::sync::Arc;

use quadrille_checkpoint::{Checkpoint, Quantity, Reader};
use quadrille_spec::{Axis, RandomStream, Sparsity};
use quadrille_step::{KeptCounts, Parameter, StageProgram, StepProgram};

use crate::{EngineError, Run, Shard};

/// The masks of a pruned model.
#[derive(Debug, Clone)]
pub enum Masks {
    /// Those of a checkpoint.
    Checkpoint(Arc<Checkpoint>),
    /// Of every tensor whose gradient products or the embedding give, each element is pruned by chance, by itself: for proofs.
    Drawn {
        /// Keys the draws.
        seed: u64,
        /// How likely it is.
        sparsity: Sparsity,
    },
}

impl Masks {
    /// By pruned tensor: how many elements the fullest of its tiles keeps in this program's layout.
    ///
    /// # Errors
    /// A damaged checkpoint, or one of another model.
    pub fn counts(&self, program: &StepProgram) -> Result<KeptCounts, EngineError> {
        let mut counts = KeptCounts::new();
        let mut reader = self.reader();
        for stage in &program.stages {
            for parameter in stage.parameters.iter().filter(|parameter| !parameter.copy) {
                if !reader.prunes(stage, parameter) {
                    continue;
                }
                let sharding = &stage.value(parameter.value).sharding;
                let places = (0..stage.grid().ranks()).map(|rank| stage.grid().coordinate(rank));
                let tiles = places.filter(|place| place.on(Axis::Pipe) == stage.stage && sharding.is_owner(*place));
                let mut most = 0;
                for place in tiles {
                    let mut kept = 0;
                    let shard = Shard::of(stage, parameter, parameter.value, place);
                    reader.each_run(parameter, shard, |_, mask| kept += mask.iter().filter(|kept| **kept).count())?;
                    most = most.max(kept);
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

    /// Whether a parameter of a stage is pruned.
    fn prunes(&self, stage: &StageProgram, parameter: &Parameter) -> bool {
        match self {
            Self::Checkpoint(checkpoint, _) => checkpoint.prunes(&parameter.name),
            Self::Drawn { .. } => stage.value(parameter.value).sharding.is_of_tiles(),
        }
    }

    /// Tells of every run of a pruned tensor's shard, in their order, which elements are kept.
    fn each_run(
        &mut self,
        parameter: &Parameter,
        shard: Shard,
        mut tell: impl FnMut(Run, &[bool]),
    ) -> Result<(), EngineError> {
        let mut kept = Vec::new();
        let mut numbers: Vec<f32> = Vec::new();
        let name = &parameter.name;
        let runs = shard.runs().filter(|run| run.row < parameter.rows);
        match self {
            Self::Checkpoint(_, reader) => {
                for run in runs {
                    numbers.resize(run.len, 0.0);
                    reader.read(name, Quantity::Kept, run.row, run.col, &mut numbers)?;
                    kept.clear();
                    kept.extend(numbers.iter().map(|kept| *kept != 0.0));
                    tell(run, &kept);
                }
            }
            Self::Drawn { seed, sparsity } => {
                let stream = RandomStream::new(*seed, &format!("mask {name}"));
                let part = sparsity.part();
                for run in runs {
                    let first = (run.row * parameter.cols + run.col) as u64;
                    let draws = (first..first + run.len as u64).map(|element| f64::from(stream.word(element)));
                    kept.clear();
                    kept.extend(draws.map(|draw| draw / 2_f64.powi(32) >= part));
                    tell(run, &kept);
                }
            }
        }
        Ok(())
    }

    /// Which elements of a pruned tensor's shard are kept, in ascending order: of a tile that a program has, so that 32 bits
    /// say where each lies.
    pub fn positions(&mut self, parameter: &Parameter, shard: Shard) -> Result<Vec<u32>, EngineError> {
        let mut positions = Vec::new();
        self.each_run(parameter, shard, |run, mask| {
            let kept = mask.iter().enumerate().filter(|(_, kept)| **kept);
            positions.extend(kept.map(|(at, _)| (run.local + at) as u32));
        })?;
        Ok(positions)
    }
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
            prunes: checkpoint.prunes(&parameter.name),
        }),
    }
}
