//! The backward pass with the operations of the forward pass that it needs again.

use std::collections::{BTreeMap, BTreeSet};

use quadrille_spec::{Layout, Recompute};

use super::{Forward, gathers_again, gathers_input};
use crate::builder::Builder;
use crate::{Collective, Op, Operation, StepError, StorageId, Value, ValueId, kind};

/// The backward pass as it is put together.
pub(super) struct Again<'b, 'm, 'f> {
    b: &'b mut Builder<'m>,
    forward: Forward<'f>,
    /// By dropped storage: the one that holds its contents again.
    fresh: BTreeMap<StorageId, StorageId>,
    /// What values of the forward pass, and of gathers that are not repeated, are called now.
    values: BTreeMap<ValueId, ValueId>,
    /// By input of a gather that the backward pass would repeat: its output in the forward pass.
    gathers: BTreeMap<ValueId, ValueId>,
    /// By values that keys and values are packed from: the packed ones in the forward pass.
    packed: BTreeMap<ValueId, ValueId>,
    /// The operations so far.
    pub out: Vec<Op>,
}

impl<'b, 'm, 'f> Again<'b, 'm, 'f> {
    pub fn new(b: &'b mut Builder<'m>, forward: Forward<'f>) -> Self {
        let mut gathers = BTreeMap::new();
        let mut packed = BTreeMap::new();
        for op in forward.ops {
            match op.operation {
                Operation::Wait(collective) if gathers_again(b, collective) => {
                    gathers.insert(collective.input, collective.output);
                }
                Operation::PackKeysValues(kind::PackKeysValues { input, output, .. }) => {
                    packed.insert(input, output);
                }
                _ => {}
            }
        }
        Self { b, forward, fresh: BTreeMap::new(), values: BTreeMap::new(), gathers, packed, out: Vec::new() }
    }

    fn storage(&self, value: ValueId) -> StorageId {
        self.b.values[value.0].storage
    }

    /// Whether a storage was given up and is not there again.
    fn is_missing(&self, storage: &StorageId) -> bool {
        self.forward.dropped.contains_key(storage) && !self.fresh.contains_key(storage)
    }

    /// Emits an operation of the backward pass, after what it needs.
    pub fn backward(&mut self, op: Op) -> Result<(), StepError> {
        let operands = op.operation.operands();
        let mut needed: BTreeSet<StorageId> = operands.reads().iter().map(|value| self.storage(*value)).collect();
        needed.retain(|storage| self.is_missing(storage));
        if !needed.is_empty() {
            self.run_again(needed, op.weight_gradient)?;
        }
        let is_there = self.b.layout.keep_communicated
            && match op.operation {
                Operation::PackKeysValues(kind::PackKeysValues { input, output, .. }) => {
                    self.takes_packed(input, output)?
                }
                Operation::Issue(collective) | Operation::Wait(collective) => self.takes_gathered(collective),
                _ => false,
            };
        if !is_there {
            self.emit(&op);
        }
        Ok(())
    }

    /// Keys and values that the attention has gathered again serve its backward as well; they are gathered here if the
    /// attention itself is not needed.
    fn takes_packed(&mut self, input: ValueId, output: ValueId) -> Result<bool, StepError> {
        let Some((local, gathered)) =
            self.packed.get(&input).and_then(|local| Some((*local, *self.gathers.get(local)?)))
        else {
            return Ok(false);
        };
        let storage = self.storage(gathered);
        if self.is_missing(&storage) {
            self.run_again([storage].into(), false)?;
        }
        self.gathers.insert(output, gathered);
        let again = self.values.get(&local).copied();
        Ok(again.is_some())
    }

    /// Whether recomputation has gathered the same already.
    fn takes_gathered(&mut self, collective: Collective) -> bool {
        if !gathers_again(self.b, collective) {
            return false;
        }
        let gathered = self.gathers.get(&collective.input).and_then(|output| self.values.get(output)).copied();
        if let Some(gathered) = gathered {
            self.values.insert(collective.output, gathered);
        }
        gathered.is_some()
    }

    /// Emits the operations of the forward pass that give the contents of `needed`. Inputs that a practice gathers again
    /// `for_weight` gradients are put off with them, but for those that something else is made of here: a norm of what a stage
    /// before has sent.
    fn run_again(&mut self, mut needed: BTreeSet<StorageId>, for_weight: bool) -> Result<(), StepError> {
        // With full recomputation products that come again need them too.
        let full = matches!(self.b.layout.recompute, Recompute::Full { .. });
        let for_weight = for_weight && !full && self.b.practice.gathers_inputs_again;
        let segments: BTreeSet<usize> = needed.iter().map(|storage| self.forward.dropped[storage]).collect();
        let ops: Vec<usize> = segments.iter().flat_map(|segment| self.forward.segments[segment].clone()).collect();
        let mut chosen = BTreeSet::new();
        needed.extend(self.results(&ops));
        loop {
            let before = chosen.len();
            for index in ops.iter().rev().copied() {
                let [reads, writes] = &self.forward.touched[index];
                if writes.iter().any(|storage| needed.contains(storage)) && chosen.insert(index) {
                    needed.extend(reads.iter().chain(writes).filter(|storage| self.is_missing(storage)));
                }
            }
            if chosen.len() == before {
                break;
            }
        }
        for storage in &needed {
            self.b.storages.push(self.b.storages[storage.0].clone());
            self.fresh.insert(*storage, StorageId(self.b.storages.len() - 1));
        }
        let others = chosen.iter().filter(|index| !gathers_input(self.b, &self.forward.ops[**index].operation));
        let read_here: BTreeSet<StorageId> =
            others.flat_map(|index| &self.forward.touched[*index][0]).copied().collect();
        for index in chosen {
            let op = &self.forward.ops[index];
            let operation = self.needed_part(&op.operation);
            self.check_final(index, &operation, &needed)?;
            let is_read = self.forward.touched[index][1].iter().any(|storage| read_here.contains(storage));
            let weight_gradient = for_weight && gathers_input(self.b, &operation) && !is_read;
            self.emit(&Op { operation, weight_gradient, ..*op });
        }
        Ok(())
    }

    /// What full recomputation makes of some operations beside what is asked for: what is kept with their results and,
    /// where whole segments are repeated, everything that is not there again.
    fn results(&self, ops: &[usize]) -> Vec<StorageId> {
        let Layout { recompute: Recompute::Full { .. }, keep_communicated, .. } = *self.b.layout else {
            return Vec::new();
        };
        let whole = self.b.practice.repeats_whole_segments && !keep_communicated;
        let made = |index: &&usize| whole || matches!(self.forward.ops[**index].operation, Operation::Hold(_));
        let written = ops.iter().filter(made).flat_map(|index| &self.forward.touched[*index][1]).copied();
        let again = |storage: &StorageId| !self.fresh.contains_key(storage) && !self.b.storages[storage.0].persistent;
        written.filter(again).collect()
    }

    /// The operation without the outputs that were kept.
    fn needed_part(&self, operation: &Operation) -> Operation {
        match operation {
            Operation::BiasActivation(kind::BiasActivation { function, output, activated, .. })
                if !self.forward.dropped.contains_key(&self.storage(*output)) =>
            {
                Operation::Activate(kind::Activate { function: *function, input: *output, output: *activated })
            }
            _ => *operation,
        }
    }

    /// What the operation reads must be what its storage holds in the end, or be written in this round before it.
    fn check_final(
        &self,
        index: usize,
        operation: &Operation,
        written_now: &BTreeSet<StorageId>,
    ) -> Result<(), StepError> {
        let operands = operation.operands();
        for value in operands.reads().iter().filter(|value| !operands.writes().contains(value)) {
            let storage = self.storage(*value);
            let later = self.forward.last_write.get(&storage).is_some_and(|last| *last > index);
            if later && !written_now.contains(&storage) && self.b.values[value.0].chunk.is_some() {
                let value = self.b.values[value.0].name.clone();
                let operation = operation.name();
                return Err(StepError::Overwritten { value, operation });
            }
        }
        Ok(())
    }

    /// Gives a value of a storage that is there again its second name.
    fn rename(&mut self, value: ValueId) {
        if let Some(storage) = self.fresh.get(&self.storage(value)).copied()
            && !self.values.contains_key(&value)
        {
            let again = Value { storage, ..self.b.values[value.0].clone() };
            self.b.values.push(again);
            self.values.insert(value, ValueId(self.b.values.len() - 1));
        }
    }

    /// Emits the operation on the values' second names, also of those that are views of a written one.
    fn emit(&mut self, op: &Op) {
        op.operation.operands().all().iter().for_each(|value| self.rename(*value));
        let operation = op.operation.with_values(|value| self.values.get(&value).copied().unwrap_or(value));
        self.out.push(Op { operation, ..*op });
    }
}
