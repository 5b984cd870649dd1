//! What a rank keeps of pruned weights, and how the host sees it: as parts of the dense tile, with zeros for what is pruned.

use std::borrow::Cow;
use std::ops::Range;

use quadrille_spec::Axis;
use quadrille_step::{Parameter, ParameterId, ValueId};
use quadrille_tensor::Element;

use crate::masks::MaskReader;
use crate::{Backend, EngineError, InitialValues, Masks, RankEngine, Shard};

/// Kept elements of a pruned weight's tile: all that the rank has of a value, or its part of them.
pub(crate) struct KeptPart<'k> {
    /// Where they lie in the tile, in ascending order.
    positions: Cow<'k, [u32]>,
    /// Which of the tile's kept elements they are.
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

impl<B: Backend> RankEngine<'_, B> {
    /// What the rank has of a value of a pruned parameter; `None`: all of it.
    pub(crate) fn kept_part(&self, parameter: ParameterId, id: ValueId) -> Result<Option<KeptPart<'_>>, EngineError> {
        let value = self.program.value(id);
        if value.pruned.is_none() {
            return Ok(None);
        }
        let first = self.first_kept(id);
        let positions = self.backend.positions(self.indices(parameter)?)?;
        let elements = value.sharding.z_share(value.local_rows * value.local_cols, self.program.grid());
        Ok(Some(KeptPart::new(positions, first..first + value.local_elements, elements)))
    }

    /// How many kept elements of the tile come before those of a value that data, expert and context cut.
    pub(crate) fn first_kept(&self, id: ValueId) -> usize {
        let value = self.program.value(id);
        let replicating: Vec<Axis> = value.sharding.flat.iter().copied().filter(|axis| *axis != Axis::Z).collect();
        self.program.grid().shard_index(self.place, &replicating) * value.local_elements
    }

    /// Where a parameter's value, gradient or states lie in the logical matrix, as the host sees them.
    pub(crate) fn shard(&self, parameter: ParameterId, id: ValueId) -> Result<Shard, EngineError> {
        let part = self.kept_part(parameter, id)?.map(|part| part.tile);
        let parameter = &self.program.parameters[parameter.0];
        Ok(match part {
            None => Shard::of(self.program, parameter, id, self.place),
            Some(tile) => Shard::of(self.program, parameter, parameter.value, self.place).part(tile),
        })
    }

    /// The places of a pruned parameter's kept elements on the device.
    pub(crate) fn indices(&self, parameter: ParameterId) -> Result<&B::Indices, EngineError> {
        let missing = || EngineError::NoMask { tensor: self.program.parameters[parameter.0].name.clone() };
        self.kept.get(parameter.0).and_then(Option::as_ref).ok_or_else(missing)
    }

    /// From now on these elements of pruned tensors are kept. Weights and states stay as they are.
    pub(crate) fn use_masks(&mut self, masks: &mut MaskReader<'_>) -> Result<(), EngineError> {
        let program = self.program;
        for (index, parameter) in program.parameters.iter().enumerate() {
            let Some(compressed) = parameter.compressed else { continue };
            let (positions, room) = self.own_positions(parameter, compressed, masks)?;
            self.kept[index] = Some(self.backend.indices(positions, room)?);
        }
        Ok(())
    }

    /// The positions of a rank's kept elements, and how many its program has room for.
    fn own_positions(
        &self,
        parameter: &Parameter,
        compressed: ValueId,
        masks: &mut MaskReader<'_>,
    ) -> Result<(Vec<u32>, usize), EngineError> {
        let shard = Shard::of(self.program, parameter, parameter.value, self.place);
        let positions = masks.positions(parameter, shard)?;
        let room = self.program.value(compressed).local_elements;
        if positions.len() > room {
            let tensor = parameter.name.clone();
            let kept = positions.len();
            return Err(EngineError::TooManyKept { tensor, kept, room });
        }
        Ok((positions, room))
    }

    /// Prunes a program's initial values.
    ///
    /// # Errors
    /// Masks that keep more than the program was built for; the job was stopped.
    pub fn prune(&mut self, masks: &Masks, initial: InitialValues) -> Result<(), EngineError> {
        self.use_masks(&mut masks.reader())?;
        for (index, parameter) in self.program.parameters.iter().enumerate() {
            if let Some(compressed) = parameter.compressed {
                self.draw(index, initial)?;
                self.zero_pruned(ParameterId(index), parameter.value, compressed)?;
            }
        }
        Ok(())
    }

    /// Makes zero what is pruned of a dense weight; says whether something was not.
    pub(crate) fn zero_pruned(
        &mut self,
        parameter: ParameterId,
        value: ValueId,
        compressed: ValueId,
    ) -> Result<bool, EngineError> {
        let storage = self.program.value(value).storage;
        let mut buffer = self.slots.take(storage)?;
        let part = self.kept_part(parameter, compressed)?;
        let backend = self.backend.clone();
        let was_not = backend.upload(&mut buffer.whole_mut(), |numbers| {
            let Some(part) = part else { return false };
            let mut kept = vec![B::Real::default(); part.places().count()];
            part.compress(numbers, &mut kept);
            let dense = part.expanded(&kept);
            // Not even a number that is none.
            let bits = |number: &B::Real| number.to_f64().abs().to_bits();
            let was_not = numbers.iter().zip(&dense).any(|(number, pruned)| bits(number) != bits(pruned));
            numbers.copy_from_slice(&dense);
            was_not
        })?;
        self.slots.put(storage, buffer);
        Ok(was_not)
    }
}
