//! Any checkpoint as one file of whole tensors.

use std::path::{Path, PathBuf};

use quadrille_spec::RealType;

use crate::{About, Checkpoint, CheckpointError, Draft, Number, Quantity, TensorShape, Tile};

/// What is merged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Merge {
    /// Type of the written numbers; `None`: as they are. Rounds where f32 is asked for and f64 is stored.
    pub dtype: Option<RealType>,
    /// Leaves the optimizer's moments out.
    pub weights_only: bool,
}

/// Writes `checkpoint` to a folder `target` that must not exist: the same format, one file, every tensor one tile. A row is in
/// memory at a time. Returns the path of the new checkpoint.
///
/// # Errors
/// Damage of what is read; a number too large for f32; a target that exists; the system's. Nothing is left then.
pub fn merge(checkpoint: Checkpoint, target: &Path, options: Merge) -> Result<PathBuf, CheckpointError> {
    let dtype = options.dtype.unwrap_or(checkpoint.about().dtype);
    let about = About { dtype, ..checkpoint.about().clone() };
    let draft = Draft::begin_alone(target, about.step)?;
    let source = checkpoint.rounding();
    let written = match dtype {
        RealType::F32 => write_whole::<f32>(&source, &draft, options.weights_only),
        RealType::F64 => write_whole::<f64>(&source, &draft, options.weights_only),
    };
    let committed = written.and_then(|()| draft.commit_in_place(&about, source.tensors(), &[0]));
    if committed.is_err() {
        // What cannot be removed is no second failure: the first one says more.
        let _ = draft.discard();
    }
    committed
}

fn write_whole<T: Number>(source: &Checkpoint, draft: &Draft, weights_only: bool) -> Result<(), CheckpointError> {
    let of_quantity = |quantity: Quantity| {
        let wanted = move |tensor: &usize| !(quantity.is_moment() && weights_only) && source.has_at(*tensor, quantity);
        let tensors = (0..source.tensors().len()).filter(wanted);
        tensors.map(move |tensor| (&source.tensors()[tensor], quantity))
    };
    let parts: Vec<(&TensorShape, Quantity)> = Quantity::ALL.into_iter().flat_map(of_quantity).collect();
    let tiles = parts.iter().map(|(shape, quantity)| Tile::whole(shape, *quantity)).collect();
    let mut file = draft.writer::<T>(0, tiles)?;
    let mut numbers = Vec::new();
    let mut reader = source.reader();
    for (shape, quantity) in parts {
        numbers.resize(shape.cols, T::from_f32(0.0));
        for row in 0..shape.rows {
            reader.read(&shape.name, quantity, row, 0, &mut numbers)?;
            file.push(&numbers)?;
        }
    }
    file.finish()
}
