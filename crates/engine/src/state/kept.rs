//! Kept elements of pruned weights on a rank. The host sees them as parts of the dense tile, with zeros for pruned
//! elements.

use std::borrow::Cow;
use std::ops::Range;
use std::rc::Rc;

use quadrille_step::{Parameter, ParameterId, ValueId};
use quadrille_tensor::Element;

use super::masks::MaskReader;
use super::storages::Storages;
use crate::rank_program::RankProgram;
use crate::{Backend, EngineError, Shard};

/// Kept elements of a pruned weight's tile: all that the rank has of a value, or its part of them.
pub(crate) struct KeptPart<'k> {
    /// Positions in the tile, in ascending order.
    positions: Cow<'k, [u32]>,
    /// Indices among the tile's kept elements.
    kept: Range<usize>,
    /// The part of the tile from the first of them to the first behind them. What is pruned in between belongs to it, so that
    /// the parts of all ranks are the tile, and a checkpoint has every element of it.
    pub tile: Range<usize>,
}

impl<'k> KeptPart<'k> {
    /// Of all kept elements of a tile, `kept` of them.
    fn new(positions: Cow<'k, [u32]>, kept: Range<usize>, elements: usize) -> Self {
        let first_of = |kept: usize| positions.get(kept).map_or(elements, |position| *position as usize);
        let tile = (if kept.start == 0 { 0 } else { first_of(kept.start) })..first_of(kept.end);
        let kept = kept.start.min(positions.len())..kept.end.min(positions.len());
        Self { positions, kept, tile }
    }

    /// The places of the elements in the part of the tile, in their order.
    pub fn places(&self) -> impl Iterator<Item = usize> {
        self.positions[self.kept.clone()].iter().map(|position| *position as usize - self.tile.start)
    }

    /// The part of the tile, with zeros for what is pruned.
    pub fn expanded<T: Copy + Default>(&self, numbers: &[T]) -> Vec<T> {
        let mut dense = vec![T::default(); self.tile.len()];
        self.places().zip(numbers).for_each(|(place, number)| dense[place] = *number);
        dense
    }

    /// Takes the kept elements out of the part of the tile.
    pub fn compress<T: Copy>(&self, dense: &[T], numbers: &mut [T]) {
        self.places().zip(numbers).for_each(|(place, number)| *number = dense[place]);
    }
}

/// Positions of the kept elements of a rank's pruned weights.
pub(crate) struct KeptElements<'a, B: Backend> {
    rank: RankProgram<'a>,
    backend: Rc<B>,
    /// By parameter, if it is pruned and masks are known.
    indices: Vec<Option<B::Indices>>,
}

impl<'a, B: Backend> KeptElements<'a, B> {
    /// No masks are known yet.
    pub fn new(rank: RankProgram<'a>, backend: Rc<B>) -> Self {
        let indices = rank.program.parameters.iter().map(|_| None).collect();
        Self { rank, backend, indices }
    }

    fn parameter(&self, parameter: ParameterId) -> &'a Parameter {
        &self.rank.program.parameters[parameter.0]
    }

    /// The rank's part of a value of a pruned parameter; `None` if it has all of it.
    pub fn part(&self, parameter: ParameterId, id: ValueId) -> Result<Option<KeptPart<'_>>, EngineError> {
        let value = self.rank.value(id);
        if value.pruned.is_none() {
            return Ok(None);
        }
        let first = self.rank.first_kept(id);
        let positions = self.backend.positions(self.indices(parameter)?)?;
        let elements = value.sharding.z_share(value.local_rows * value.local_cols, self.rank.program.grid());
        Ok(Some(KeptPart::new(positions, first..first + value.local_elements, elements)))
    }

    /// Position of a parameter's value, gradient or states in the logical matrix, as the host sees them.
    pub fn shard(&self, parameter: ParameterId, id: ValueId) -> Result<Shard, EngineError> {
        let part = self.part(parameter, id)?.map(|part| part.tile);
        let parameter = self.parameter(parameter);
        let RankProgram { program, place } = self.rank;
        Ok(match part {
            None => Shard::of(program, parameter, id, place),
            Some(tile) => Shard::of(program, parameter, parameter.value, place).part(tile),
        })
    }

    /// True if a parameter is not pruned, or its mask is known.
    pub fn is_known(&self, parameter: ParameterId) -> bool {
        self.parameter(parameter).compressed.is_none() || self.indices[parameter.0].is_some()
    }

    /// Positions of a pruned parameter's kept elements on the device.
    pub fn indices(&self, parameter: ParameterId) -> Result<&B::Indices, EngineError> {
        let missing = || EngineError::NoMask { tensor: self.parameter(parameter).name.clone() };
        self.indices.get(parameter.0).and_then(Option::as_ref).ok_or_else(missing)
    }

    /// Keeps the elements of these masks from now on. Weights and states stay as they are.
    pub fn use_masks(&mut self, masks: &mut MaskReader<'_>) -> Result<(), EngineError> {
        for (index, parameter) in self.rank.program.parameters.iter().enumerate() {
            let Some(compressed) = parameter.compressed else { continue };
            let (positions, room) = self.own_positions(parameter, compressed, masks)?;
            self.indices[index] = Some(self.backend.indices(positions, room)?);
        }
        Ok(())
    }

    /// Positions of a rank's kept elements, and the number that its program has room for.
    fn own_positions(
        &self,
        parameter: &Parameter,
        compressed: ValueId,
        masks: &mut MaskReader<'_>,
    ) -> Result<(Vec<u32>, usize), EngineError> {
        let shard = Shard::of(self.rank.program, parameter, parameter.value, self.rank.place);
        let positions = masks.positions(parameter, shard)?;
        let room = self.rank.value(compressed).local_elements;
        if positions.len() > room {
            let tensor = parameter.name.clone();
            let kept = positions.len();
            return Err(EngineError::TooManyKept { tensor, kept, room });
        }
        Ok((positions, room))
    }

    /// Sets the pruned elements of a parameter's dense weight to zero; returns true if one was not.
    pub fn zero_pruned(
        &self,
        storages: &mut Storages<'_, B>,
        id: ParameterId,
        compressed: ValueId,
    ) -> Result<bool, EngineError> {
        let storage = self.rank.storage(self.parameter(id).value);
        let mut buffer = storages.take(storage)?;
        let part = self.part(id, compressed)?;
        let was_not = self.backend.upload(&mut buffer.whole_mut(), |numbers| {
            let Some(part) = part else { return false };
            let mut kept = vec![B::Real::default(); part.places().count()];
            part.compress(numbers, &mut kept);
            let dense = part.expanded(&kept);
            // Also finds elements that are not a number.
            let bits = |number: &B::Real| number.to_f64().abs().to_bits();
            let was_not = numbers.iter().zip(&dense).any(|(number, pruned)| bits(number) != bits(pruned));
            numbers.copy_from_slice(&dense);
            was_not
        })?;
        storages.put(storage, buffer);
        Ok(was_not)
    }
}
