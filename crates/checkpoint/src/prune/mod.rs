//! Pruning by magnitude: the smallest weights of a checkpoint become zero, and a mask says which are kept.
//!
//! Masks are of logical tensors, so that they do not depend on a layout. Of `n` weights and a sparsity `p` exactly
//! `n - floor(p n)` are kept, those of the largest magnitude; of equal magnitudes the first ones, in the order of tensors and of
//! their elements. What was pruned before stays pruned. (Singh's dissertation, chapter 4, prunes so after some training; taking
//! the kept weights from an earlier checkpoint is the lottery ticket's way: Frankle and Carbin, 2019.)

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
mod early;
mod threshold;

use std::path::{Path, PathBuf};

use quadrille_spec::{Model, RealType, Sparsity};

use crate::{Checkpoint, CheckpointError, Draft, Number, Quantity, Reader, TensorShape, Tile};
pub use early::{Distances, EarlyBird, MaskOf};
use threshold::{Threshold, key};

/// Among which weights magnitudes are compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Those of one tensor: all of them are as sparse.
    #[default]
    Layer,
    /// All that are pruned.
    Global,
}

/// What is pruned.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pruning {
    /// How much of it.
    pub sparsity: Sparsity,
    /// Among what.
    pub scope: Scope,
    /// Whether the embedding and the head are, beside the matrices of blocks. Biases, norms and positions never are.
    pub tables: bool,
}

/// What became of a tensor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PrunedTensor {
    /// The tensor.
    pub tensor: String,
    /// Its elements.
    pub elements: u64,
    /// Those that are kept.
    pub kept: u64,
}

impl Pruning {
    /// The tensors of a model that are pruned.
    fn tensors(self, model: &Model) -> Vec<String> {
        let pruned = model.all_parameters().filter(|parameter| parameter.is_prunable(self.tables));
        pruned.map(|parameter| parameter.name()).collect()
    }
}

/// Which weights of a checkpoint are kept, without holding them.
pub(crate) struct Mask<'a> {
    checkpoint: &'a Checkpoint,
    /// Tensors whose weights are compared, by number, and from which magnitude on they are kept.
    groups: Vec<(Vec<usize>, Threshold)>,
}

impl<'a> Mask<'a> {
    /// Reads the checkpoint's weights.
    ///
    /// # Errors
    /// Damage.
    pub fn of(checkpoint: &'a Checkpoint, pruning: Pruning) -> Result<Self, CheckpointError> {
        let names = pruning.tensors(&checkpoint.about().model);
        let tensors = names.iter().map(|name| checkpoint.find_tensor(name)).collect::<Result<Vec<_>, _>>()?;
        let groups: Vec<Vec<usize>> = match pruning.scope {
            Scope::Layer => tensors.into_iter().map(|tensor| vec![tensor]).collect(),
            Scope::Global => vec![tensors],
        };
        // What was pruned before and is not now stays as it is.
        let others = (0..checkpoint.tensors().len())
            .filter(|tensor| checkpoint.is_pruned(*tensor) && !groups.iter().flatten().any(|chosen| chosen == tensor))
            .map(|tensor| (vec![tensor], Threshold::PRUNED_BEFORE))
            .collect::<Vec<_>>();
        let mut reader = checkpoint.reader();
        let limited = |group: Vec<usize>| {
            let mut all = 0;
            let mut kept_before = 0;
            for tensor in &group {
                let shape = &checkpoint.tensors()[*tensor];
                all += elements(shape);
                kept_before += if checkpoint.is_pruned(*tensor) { checkpoint.kept(shape)? } else { elements(shape) };
            }
            let count = pruning.sparsity.kept(all).min(kept_before);
            let threshold = Threshold::of(count, |tell| each_key(&mut reader, checkpoint, &group, tell))?;
            Ok::<_, CheckpointError>((group, threshold))
        };
        let groups = groups.into_iter().map(limited).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { checkpoint, groups: groups.into_iter().chain(others).collect() })
    }

    /// Tells for every weight of the pruned tensors, in their order, whether it is kept: by rows, with the tensor's number and
    /// the row's.
    ///
    /// # Errors
    /// Damage.
    pub fn rows(
        &self,
        mut tell: impl FnMut(usize, usize, &[bool]) -> Result<(), CheckpointError>,
    ) -> Result<(), CheckpointError> {
        let mut reader = self.checkpoint.reader();
        for (group, threshold) in &self.groups {
            let mut threshold = *threshold;
            let mut kept = Vec::new();
            each_row(&mut reader, self.checkpoint, group, |tensor, row, keys| {
                kept.clear();
                kept.extend(keys.iter().map(|key| threshold.keeps(*key)));
                tell(tensor, row, &kept)
            })?;
        }
        Ok(())
    }

    /// The numbers of the pruned tensors, in the order of [`Self::rows`].
    pub fn tensors(&self) -> impl Iterator<Item = usize> {
        self.groups.iter().flat_map(|(group, _)| group.iter().copied())
    }
}

fn elements(shape: &TensorShape) -> u64 {
    shape.rows as u64 * shape.cols as u64
}

fn each_key(
    reader: &mut Reader<'_>,
    checkpoint: &Checkpoint,
    tensors: &[usize],
    tell: &mut dyn FnMut(u64),
) -> Result<(), CheckpointError> {
    each_row(reader, checkpoint, tensors, |_, _, keys| {
        keys.iter().for_each(|key| tell(*key));
        Ok(())
    })
}

/// Tells the keys of tensors by rows, with the tensor's number and the row's.
fn each_row(
    reader: &mut Reader<'_>,
    checkpoint: &Checkpoint,
    tensors: &[usize],
    mut tell: impl FnMut(usize, usize, &[u64]) -> Result<(), CheckpointError>,
) -> Result<(), CheckpointError> {
    let mut weights = Vec::new();
    let mut kept = Vec::new();
    let mut keys = Vec::new();
    for tensor in tensors {
        let TensorShape { name, rows, cols } = &checkpoint.tensors()[*tensor];
        weights.resize(*cols, 0.0_f64);
        kept.clear();
        kept.resize(*cols, 1.0_f64);
        for row in 0..*rows {
            reader.read(name, Quantity::Value, row, 0, &mut weights)?;
            if checkpoint.is_pruned(*tensor) {
                reader.read(name, Quantity::Kept, row, 0, &mut kept)?;
            }
            keys.clear();
            keys.extend(weights.iter().zip(&kept).map(|(weight, kept)| key(*weight, *kept != 0.0)));
            tell(*tensor, row, &keys)?;
        }
    }
    Ok(())
}

/// Writes to a folder `target` that must not exist: the weights of `checkpoint`, or those that they were in `rewound`, an
/// earlier one of the same model, with zeros for those that `checkpoint`'s magnitudes prune, and which are kept. Moments are
/// left out. Rows are in memory one at a time. Returns the path of the new checkpoint, and what became of each pruned tensor.
///
/// # Errors
/// Checkpoints of different models; damage of what is read; a target that exists; the system's. Nothing is left then.
pub fn prune(
    checkpoint: &Checkpoint,
    rewound: Option<&Checkpoint>,
    target: &Path,
    pruning: Pruning,
) -> Result<(PathBuf, Vec<PrunedTensor>), CheckpointError> {
    let values = rewound.unwrap_or(checkpoint);
    rewound.map_or(Ok(()), |rewound| check_earlier(rewound, checkpoint))?;
    let mask = Mask::of(checkpoint, pruning)?;
    let draft = Draft::begin_alone(target, values.about().step)?;
    let written = match values.about().dtype {
        RealType::F32 => write::<f32>(values, &mask, &draft),
        RealType::F64 => write::<f64>(values, &mask, &draft),
    };
    let committed =
        written.and_then(|pruned| Ok((draft.commit_in_place(values.about(), values.tensors(), &[0])?, pruned)));
    if committed.is_err() {
        // What cannot be removed is no second failure: the first one says more.
        let _ = draft.discard();
    }
    committed
}

/// Whether weights can be those of `earlier`, before they became those of `checkpoint`.
fn check_earlier(earlier: &Checkpoint, checkpoint: &Checkpoint) -> Result<(), CheckpointError> {
    let first = earlier.about();
    let later = checkpoint.about();
    let reason = if first.model != later.model || earlier.tensors() != checkpoint.tensors() {
        "it is of another model".to_owned()
    } else if first.seed != later.seed {
        format!("it is of a run with seed {}, not {}", first.seed, later.seed)
    } else if first.step > later.step {
        format!("it is of the later step {}, not before {}", first.step, later.step)
    } else if (0..earlier.tensors().len()).any(|tensor| earlier.is_pruned(tensor)) {
        "it is pruned".to_owned()
    } else {
        return Ok(());
    };
    Err(CheckpointError::NotEarlier { path: earlier.path().into(), of: checkpoint.path().into(), reason })
}

fn write<T: Number>(values: &Checkpoint, mask: &Mask<'_>, draft: &Draft) -> Result<Vec<PrunedTensor>, CheckpointError> {
    let shape = |tensor: usize| &values.tensors()[tensor];
    let pruned: Vec<usize> = mask.tensors().collect();
    let others: Vec<usize> = (0..values.tensors().len()).filter(|tensor| !pruned.contains(tensor)).collect();
    let value = |tensor: &usize| Tile::whole(shape(*tensor), Quantity::Value);
    let tiles = others.iter().chain(&pruned).map(value);
    let tiles = tiles.chain(pruned.iter().map(|tensor| Tile::whole(shape(*tensor), Quantity::Kept)));
    let mut file = draft.writer::<T>(0, tiles.collect())?;
    let mut numbers = Vec::new();
    let mut reader = values.reader();
    for tensor in &others {
        let TensorShape { name, rows, cols } = shape(*tensor);
        numbers.resize(*cols, T::from_f32(0.0));
        for row in 0..*rows {
            reader.read(name, Quantity::Value, row, 0, &mut numbers)?;
            file.push(&numbers)?;
        }
    }
    let mut found: Vec<PrunedTensor> = Vec::new();
    mask.rows(|tensor, row, kept| {
        let shape = shape(tensor);
        numbers.resize(kept.len(), T::from_f32(0.0));
        reader.read(&shape.name, Quantity::Value, row, 0, &mut numbers)?;
        numbers.iter_mut().zip(kept).filter(|(_, kept)| !**kept).for_each(|(number, _)| *number = T::from_f32(0.0));
        if row == 0 {
            found.push(PrunedTensor { tensor: shape.name.clone(), elements: elements(shape), kept: 0 });
        }
        let count = kept.iter().filter(|kept| **kept).count() as u64;
        found.last_mut().into_iter().for_each(|pruned| pruned.kept += count);
        file.push(&numbers)
    })?;
    mask.rows(|_, _, kept| {
        numbers.clear();
        numbers.extend(kept.iter().map(|kept| T::from_f32(f32::from(u8::from(*kept)))));
        file.push(&numbers)
    })?;
    file.finish()?;
    Ok(found)
}
