//! A stage's program at a place in the grid: facts that do not change while a rank runs.

use std::ops::Range;

use quadrille_spec::{Attention, Axis, AxisSet, Coordinate, Normalization};
use quadrille_step::{BlockKind, NormOf, Panel, StageProgram, StorageId, Value, ValueId};
use quadrille_tensor::{ContextPart, GroupShape};

use crate::Rows;

/// The program of a stage as the rank at a place in the grid executes it.
#[derive(Clone, Copy)]
pub(crate) struct RankProgram<'a> {
    pub program: &'a StageProgram,
    pub place: Coordinate,
}

impl<'a> RankProgram<'a> {
    pub fn value(self, id: ValueId) -> &'a Value {
        self.program.value(id)
    }

    pub fn storage(self, id: ValueId) -> StorageId {
        self.program.value(id).storage
    }

    /// Position of a value's `elements` in its storage: the beginning, except for shards that lie side by side.
    pub fn range(self, id: ValueId, elements: usize) -> Range<usize> {
        let value = self.value(id);
        let inside = value.sharding.flat.iter().filter(|axis| value.inside.contains(**axis));
        let shard = inside.fold(0, |index, axis| index * self.axis_size(*axis) + self.place.on(*axis));
        shard * elements..(shard + 1) * elements
    }

    /// Elements of a value on this rank, without padding.
    pub fn valid_elements(self, id: ValueId) -> usize {
        self.program.valid_elements(id, self.place)
    }

    /// The logical column of a value's first local column.
    pub fn first_col(self, id: ValueId) -> usize {
        let value = self.value(id);
        self.program.grid().shard_index(self.place, &value.sharding.cols) * value.local_cols
    }

    /// Number of kept elements of the tile that precede those of a value sharded over data, expert and context.
    pub fn first_kept(self, id: ValueId) -> usize {
        let value = self.value(id);
        let replicating: Vec<Axis> = value.sharding.flat.iter().copied().filter(|axis| *axis != Axis::Z).collect();
        self.program.grid().shard_index(self.place, &replicating) * value.local_elements
    }

    /// Ranks along an axis.
    pub fn axis_size(self, axis: Axis) -> usize {
        self.program.grid().size(axis)
    }

    /// Index of a panel among those of this rank; `None` on ranks that do not hold it.
    pub fn local_panel(self, panel: Panel) -> Option<usize> {
        let size = self.axis_size(panel.axis);
        (panel.holder(size) == self.place.on(panel.axis)).then(|| panel.local_index(size))
    }

    /// The part of each sequence that this rank has.
    pub fn context_part(self) -> ContextPart {
        ContextPart { part: self.place.on(Axis::Context), parts: self.axis_size(Axis::Context) }
    }

    /// The first sequence, in the global batch, of this rank's part of a microbatch.
    pub fn first_sequence(self, microbatch: usize) -> usize {
        let layout = &self.program.layout;
        layout.first_of_share(self.place)
            + microbatch * layout.microbatch
            + self.place.on(Axis::Z) * (layout.microbatch / layout.grid.size(Axis::Z))
    }

    /// Position in the global batch of a value's rows, for a microbatch.
    pub fn rows_of(self, id: ValueId, microbatch: usize) -> Rows {
        let value = self.value(id);
        let layout = &self.program.layout;
        let sequences = layout.microbatch / layout.grid.size(Axis::Z) / layout.overlap_chunks;
        Rows {
            first_sequence: self.first_sequence(microbatch) + value.chunk.unwrap_or(0) * sequences,
            first: self.share_index(value) * value.local_rows,
            part: self.context_part(),
            seq_len: layout.seq_len,
        }
    }

    /// The rows of a microbatch's samples that belong to a value.
    pub fn sample_rows(self, id: ValueId) -> Range<usize> {
        let layout = &self.program.layout;
        let value = self.value(id);
        let chunk = value.chunk.unwrap_or(0) * (layout.rows() / layout.overlap_chunks);
        let first = chunk + self.share_index(value) * value.local_rows;
        first..first + value.local_rows
    }

    /// The numbers of a microbatch's patches that belong to a value.
    pub fn sample_numbers(self, id: ValueId) -> Range<usize> {
        let rows = self.sample_rows(id);
        let values = self.value(id).local_cols;
        rows.start * values..rows.end * values
    }

    /// Index of this rank's rows of a value among those of its (data, expert, z, context) rank.
    fn share_index(self, value: &Value) -> usize {
        let share: AxisSet = self.program.layout.row_axes().collect();
        let inner: Vec<Axis> = value.sharding.rows.iter().copied().filter(|axis| !share.contains(*axis)).collect();
        self.program.grid().shard_index(self.place, &inner)
    }

    /// Heads of a block that share a key and value.
    pub fn group_heads(self, block: BlockKind) -> usize {
        self.program.layout.group_heads(&block.of(&self.program.model).attention)
    }

    /// Shape of a block's queries, keys and values in `rows` rows and `cols` columns.
    pub fn groups(self, block: BlockKind, rows: usize, cols: usize) -> GroupShape {
        let Attention { head_dim, value_dim, .. } = block.of(&self.program.model).attention;
        let group = GroupShape { rows, groups: 1, heads: self.group_heads(block), head_dim, value_dim };
        GroupShape { groups: cols / group.group(), ..group }
    }

    pub fn normalization(self, of: NormOf) -> Normalization {
        of.rule(&self.program.model)
    }
}
