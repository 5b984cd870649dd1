//! Shards: a rank's elements of a logical matrix, and the assembly of whole tensors from them.

use std::ops::Range;

use quadrille_spec::{Axis, Coordinate};
use quadrille_step::{Parameter, SharedKeys, StageProgram, ValueId};
use serde::{Deserialize, Serialize};

/// A rank's part of a logical `[rows, cols]` matrix: a tile, or a flat range of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// Rows of a block that lie in the tile together, of all rows of a block; both are all rows where there is one block.
    block_rows: [usize; 2],
    first_block: usize,
    /// In its block.
    first_row: usize,
    first_col: usize,
    tile_cols: usize,
    flat_start: usize,
    len: usize,
    /// Where columns of the tile are in the logical matrix, if they are not where the tile is.
    shared: Option<SharedKeys>,
}

/// Elements that are neighbours both in a shard and in a row of the logical matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Index in the shard.
    pub local: usize,
    /// Logical row.
    pub row: usize,
    /// Logical column of the first element.
    pub col: usize,
    /// Number of elements.
    pub len: usize,
}

impl Shard {
    /// The part of a value of `parameter`, or of its gradient, that the rank at `place` holds, without padding.
    pub fn of(program: &StageProgram, parameter: &Parameter, id: ValueId, place: Coordinate) -> Self {
        let value = program.value(id);
        let grid = program.grid();
        let sharding = &value.sharding;
        let (z, replicating): (Vec<Axis>, Vec<Axis>) = sharding.flat.iter().partition(|axis| **axis == Axis::Z);
        let z_shard = value.local_rows * value.local_cols / z.iter().map(|axis| grid.size(*axis)).product::<usize>();
        let in_tile = value.local_rows / value.local_blocks;
        Self {
            block_rows: [in_tile, value.rows / value.blocks],
            first_block: grid.shard_index(place, &sharding.blocks) * value.local_blocks,
            first_row: grid.shard_index(place, &sharding.rows) * in_tile,
            first_col: grid.shard_index(place, &sharding.cols) * value.local_cols,
            tile_cols: value.local_cols,
            flat_start: grid.shard_index(place, &z) * z_shard
                + grid.shard_index(place, &replicating) * value.local_elements,
            len: program.valid_elements(id, place),
            shared: parameter.shared,
        }
    }

    /// Some of its elements.
    pub(crate) fn part(self, range: Range<usize>) -> Self {
        Self { flat_start: self.flat_start + range.start, len: range.len(), ..self }
    }

    /// Number of its elements.
    pub fn elements(self) -> usize {
        self.len
    }

    /// The shard as runs, in order.
    pub fn runs(self) -> impl Iterator<Item = Run> {
        let mut local = 0;
        std::iter::from_fn(move || {
            if local == self.len {
                return None;
            }
            let in_tile = self.flat_start + local;
            let row = in_tile / self.tile_cols;
            let col = in_tile % self.tile_cols;
            let col = self.first_col + col;
            let rest = (self.first_col + self.tile_cols - col).min(self.len - local);
            let (col, neighbours) = self.shared.map_or((col, rest), |shared| shared.logical(col));
            let len = rest.min(neighbours);
            let [in_tile, of_block] = self.block_rows;
            let row = (self.first_block + row / in_tile) * of_block + self.first_row + row % in_tile;
            let run = Run { local, row, col, len };
            local += len;
            Some(run)
        })
    }
}

/// Numbers of a logical matrix that a rank holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// Which ones.
    pub shard: Shard,
    /// In the order of the shard.
    pub numbers: Vec<f64>,
}

/// Puts a parameter, its gradient or its master together from what ranks hold, each given with its number, without the
/// padding.
///
/// # Errors
/// The numbers of two ranks whose replicas differ in any bit.
pub fn assemble<'h>(
    parameter: &Parameter,
    held: impl IntoIterator<Item = (usize, &'h Held)>,
) -> Result<Vec<f64>, [usize; 2]> {
    let mut whole = vec![0.0; parameter.rows * parameter.cols];
    let mut writer = vec![usize::MAX; whole.len()];
    for (rank, Held { shard, numbers }) in held {
        for run in shard.runs().filter(|run| run.row < parameter.rows) {
            for offset in 0..run.len {
                let at = run.row * parameter.cols + run.col + offset;
                let element = numbers[run.local + offset];
                if writer[at] == usize::MAX {
                    (writer[at], whole[at]) = (rank, element);
                } else if whole[at].to_bits() != element.to_bits() {
                    return Err([writer[at], rank]);
                }
            }
        }
    }
    Ok(whole)
}
