//! Pruned weights (SAMO: Singh's dissertation, chapter 4).
//!
//! The weight stays dense, zeros included, and so do the products. Of its gradient, its masters and its moments a rank has the
//! kept elements alone, in the order of its tile; where they lie in the tile says an index that all of them share. A product
//! gives the gradient of the whole tile, z scatters it, and then it is compressed; sums over replicas, the norm and the update
//! see what is compressed. After the update the kept elements go back to their places.
//!
//! Tiles keep different numbers of elements. Storages are as long as the fullest of a tensor's tiles needs, so that all ranks
//! of a stage share a program; what is behind a rank's own elements is zero.

use std::collections::BTreeMap;

use quadrille_spec::{MemoryClass, Sparsity};

use crate::builder::Builder;
use crate::value::{Format, Home};
use crate::{Layer, StageProgram, StepError, Value, ValueId};

/// By the name of a pruned tensor: the elements that the fullest of its tiles keeps.
pub type KeptCounts = BTreeMap<String, usize>;

/// How much of a pruned weight's tile is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kept {
    /// So many elements at most.
    Counted(usize),
    /// What a sparsity leaves of it, where masks are not known.
    Estimated(Sparsity),
}

impl Kept {
    /// Elements that are held of a tile of `elements`: at least one, so that no storage is empty.
    pub fn of(self, elements: usize) -> usize {
        match self {
            Self::Counted(kept) => kept.max(1),
            Self::Estimated(sparsity) => (sparsity.kept(elements as u64) as usize).max(1),
        }
    }
}

/// Bytes of an element's place in its tile.
pub const INDEX_BYTES: u64 = 4;

impl Builder<'_> {
    /// Whether, and how much of, a parameter of the current layer is pruned. Only what products give the gradient of is.
    pub fn pruned(&self, name: &str, by_product: bool) -> Option<Kept> {
        let of_block = matches!(self.layer, Layer::Block(_));
        let estimated = self.practice.sparsity.filter(|_| of_block).map(Kept::Estimated);
        let counted = self.counts.get(name).map(|count| Kept::Counted(*count));
        counted.or(estimated).filter(|_| by_product)
    }

    /// Holds that much of a value's tile.
    ///
    /// # Errors
    /// More than the tile has; a tile with more elements than an index tells apart.
    pub fn prune(&mut self, value: ValueId, kept: Kept) -> Result<(), StepError> {
        let Value { ref name, sharding, local_rows, local_cols, storage, .. } = self.values[value.0];
        let tile = sharding.z_share(local_rows * local_cols, &self.layout.grid);
        // An estimate is never indexed.
        if let Kept::Counted(kept) = kept
            && (kept > tile || u32::try_from(tile).is_err())
        {
            return Err(StepError::Mask { value: name.clone(), kept, tile });
        }
        let value = &mut self.values[value.0];
        value.pruned = Some(kept);
        value.hold(&self.layout.grid);
        self.storages[storage.0].elements = value.local_elements;
        Ok(())
    }

    /// A buffer for the kept elements of a weight, while they are updated.
    pub fn compressed_weight(&mut self, name: &str, weight: ValueId, kept: Kept) -> Result<ValueId, StepError> {
        let shape = self.shape(weight);
        let sharding = *self.sharding(weight);
        let home = Home { class: MemoryClass::Buffers, format: Format::Weights };
        let compressed = self.weight_value(format!("{name} kept"), shape, sharding, home)?;
        self.prune(compressed, kept)?;
        Ok(compressed)
    }
}

/// Makes sure that every tensor of which elements are counted is one that the program prunes.
pub(crate) fn check_pruned(stages: &[StageProgram], kept: &KeptCounts) -> Result<(), StepError> {
    let is_pruned = |name: &&String| {
        let mut parameters = stages.iter().flat_map(|stage| &stage.parameters);
        parameters.any(|parameter| parameter.compressed.is_some() && parameter.name == **name)
    };
    match kept.keys().find(|name| !is_pruned(name)) {
        None => Ok(()),
        Some(name) => Err(StepError::NotPrunable { tensor: name.clone() }),
    }
}

impl StageProgram {
    /// Bytes of the places of all kept elements that a rank holds.
    pub fn index_bytes(&self) -> u64 {
        let compressed = self.parameters.iter().filter_map(|parameter| parameter.compressed);
        compressed.map(|value| self.value(value).local_elements as u64 * INDEX_BYTES).sum()
    }
}
