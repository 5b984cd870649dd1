//! Values of programs by their shapes: values and storages that are equally large in every layout are there once.

use quadrille_spec::{Axis, Grid, Layout, MemoryClass, SpecError};
use quadrille_step::{Extent, Format, Kept, Section, Sharding, Sized, StageProgram, StorageId, Value, ValueId};
use rustc_hash::FxHashMap;

use crate::native::Problem;

/// A stage without operations, whose values and storages are the shapes of those of other stages.
#[derive(Debug)]
pub(super) struct Shapes {
    pub program: StageProgram,
    values: FxHashMap<(Size, StorageId), ValueId>,
    storages: FxHashMap<(Size, bool, Format, MemoryClass), StorageId>,
}

/// What decides how large a value is in a layout.
type Size = ([Extent; 2], Sharding, Option<Kept>);

/// Gives shapes these sizes of axes and microbatches, and the loads of experts that there are in them.
///
/// # Errors
/// Sizes that are no grid.
pub(super) fn resize(
    shapes: &mut StageProgram,
    problem: &Problem,
    sizes: [usize; Axis::COUNT],
    microbatch: usize,
) -> Result<(), SpecError> {
    let layout = Layout { grid: Grid::of_sizes(sizes)?, microbatch, ..shapes.layout.clone() };
    shapes.practice.imbalance = problem.imbalance_in(&layout);
    shapes.resize(&layout);
    Ok(())
}

fn size(value: &Value) -> Size {
    (value.extents, value.sharding, value.pruned)
}

impl Shapes {
    /// No shapes yet, of programs of the model and layout of this one.
    pub fn like(stage: &StageProgram) -> Self {
        let mut program = stage.clone();
        (program.values, program.storages, program.parameters) = (Vec::new(), Vec::new(), Vec::new());
        (program.chunks, program.steps, program.update) = (Vec::new(), Vec::new(), Section::default());
        Self { program, values: FxHashMap::default(), storages: FxHashMap::default() }
    }

    /// The shape of a value of `stage`.
    pub fn value(&mut self, stage: &StageProgram, id: ValueId) -> ValueId {
        let storage = self.storage(stage, stage.value(id).storage);
        self.value_in(stage, id, storage)
    }

    /// The shapes of all storages of `stage` and of all its values, in their order.
    pub fn all(&mut self, stage: &StageProgram) -> (Vec<StorageId>, Vec<ValueId>) {
        let storages: Vec<StorageId> =
            (0..stage.storages.len()).map(|storage| self.storage(stage, StorageId(storage))).collect();
        let values = stage.values.iter().enumerate();
        let values = values.map(|(id, value)| self.value_in(stage, ValueId(id), storages[value.storage.0])).collect();
        (storages, values)
    }

    /// The shape of a value whose storage has this one.
    fn value_in(&mut self, stage: &StageProgram, id: ValueId, storage: StorageId) -> ValueId {
        let value = stage.value(id);
        let next = ValueId(self.program.values.len());
        let known = *self.values.entry((size(value), storage)).or_insert(next);
        if known == next {
            let mut value = value.clone();
            value.storage = storage;
            self.program.values.push(value);
        }
        known
    }

    /// The shape of a storage of `stage`.
    fn storage(&mut self, stage: &StageProgram, id: StorageId) -> StorageId {
        let info = &stage.storages[id.0];
        let (by, in_shards) = match info.sized {
            Sized::By(value) => (value, false),
            Sized::ByShards(value) => (value, true),
        };
        let value = stage.value(by);
        let key = (size(value), in_shards, info.format, info.class);
        if let Some(known) = self.storages.get(&key) {
            return *known;
        }
        let storage = StorageId(self.program.storages.len());
        self.storages.insert(key, storage);
        self.program.storages.push(info.clone());
        let next = ValueId(self.program.values.len());
        self.program.values.push(Value { storage, ..value.clone() });
        self.values.insert((size(value), storage), next);
        self.program.storages[storage.0].sized = if in_shards { Sized::ByShards(next) } else { Sized::By(next) };
        storage
    }
}
