//! Recomputation: what the forward pass does not keep is computed again in the backward pass, just before its first
//! use there, by the same operations on the same operands.
//!
//! A segment is one block, or with `full:k` the next `k` blocks of the piece. What is dropped of it:
//! - selective: outputs of norms and of the activation function, and what is gathered from them;
//! - full: everything but what other layers read, that is, the residual stream between segments.
//!
//! Communication-aware (CAC, dissertation section 7.3.2): the outputs of collectives are kept, but for gathered weights:
//! one that recomputation gathers serves the backward product as well. So no collective is repeated.

use std::collections::{BTreeMap, BTreeSet};

use quadrille_spec::{Axis, CollectiveKind, Recompute};

use crate::builder::Builder;
use crate::{Collective, Layer, Op, Operation, StepError, StorageId, ValueId};

/// Adds to `backward` what has to be computed again.
pub(crate) fn recompute(b: &mut Builder, forward: &[Op], backward: &mut Vec<Op>) -> Result<(), StepError> {
    if b.layout.recompute == Recompute::None {
        return Ok(());
    }
    let dropped = dropped(b, forward);
    let mut again = Again { b, forward, dropped, fresh: BTreeMap::new(), values: BTreeMap::new(), out: Vec::new() };
    for op in backward.drain(..) {
        again.backward(op)?;
    }
    *backward = again.out;
    Ok(())
}

/// The segment that a layer belongs to, among the blocks of a piece that begins with block `first`.
fn segment(layer: Layer, first: usize, recompute: Recompute) -> Option<usize> {
    let Layer::Block(index) = layer else { return None };
    match recompute {
        Recompute::Full { every } => Some((index - first) / every),
        _ => Some(index - first),
    }
}

/// The storages that the forward pass gives up.
fn dropped(b: &Builder, forward: &[Op]) -> BTreeSet<StorageId> {
    let storage = |value: &ValueId| b.values[value.0].storage;
    let blocks = forward.iter().filter_map(|op| match op.layer {
        Layer::Block(index) => Some(index),
        _ => None,
    });
    let first = blocks.min().unwrap_or(0);
    let segment = |op: &Op| segment(op.layer, first, b.layout.recompute);
    let mut dropped = BTreeMap::new();
    for op in forward.iter().filter(|op| segment(op).is_some()) {
        let (reads, writes) = op.operation.operands();
        let given_up: Vec<ValueId> = match &op.operation {
            _ if matches!(b.layout.recompute, Recompute::Full { .. }) => writes,
            Operation::Norm { output, .. } => vec![*output],
            Operation::BiasGelu { activated, .. } => vec![*activated],
            Operation::Issue(_)
            | Operation::Wait(_)
            | Operation::Pack { .. }
            | Operation::Unpack { .. }
            | Operation::CopyPanel { .. }
            | Operation::SliceRows { .. }
            | Operation::SliceColumns { .. }
                if reads.iter().all(|value| dropped.contains_key(&storage(value))) =>
            {
                writes
            }
            _ => continue,
        };
        dropped.extend(given_up.iter().map(|value| (storage(value), segment(op))));
    }
    for op in forward {
        let (reads, writes) = op.operation.operands();
        let keeps_output = match op.operation {
            Operation::Wait(collective) => b.layout.keep_communicated && !gathers_weight(b, collective),
            _ => false,
        };
        // What another segment reads, or what is kept because it was communicated.
        let elsewhere = |value: &&ValueId| dropped.get(&storage(value)).is_some_and(|at| *at != segment(op));
        let mut kept: BTreeSet<StorageId> = reads.iter().filter(elsewhere).map(storage).collect();
        kept.extend(writes.iter().filter(|_| keeps_output).map(storage));
        dropped.retain(|storage, _| !kept.contains(storage));
    }
    dropped.into_keys().filter(|storage| !b.storages[storage.0].persistent).collect()
}

fn gathers_weight(b: &Builder, collective: Collective) -> bool {
    collective.kind == CollectiveKind::AllGather
        && collective.axes == Axis::Z.only()
        && b.values[collective.output.0].chunk.is_none()
}

/// The backward pass as it is put together.
struct Again<'b, 'm, 'f> {
    b: &'b mut Builder<'m>,
    forward: &'f [Op],
    dropped: BTreeSet<StorageId>,
    /// By dropped storage: the one that holds its contents again.
    fresh: BTreeMap<StorageId, StorageId>,
    /// What values of the forward pass, and weights gathered a second time, are called now.
    values: BTreeMap<ValueId, ValueId>,
    out: Vec<Op>,
}

impl Again<'_, '_, '_> {
    fn storage(&self, value: ValueId) -> StorageId {
        self.b.values[value.0].storage
    }

    /// Emits an operation of the backward pass, after what it needs.
    fn backward(&mut self, op: Op) -> Result<(), StepError> {
        let (reads, _) = op.operation.operands();
        let mut needed: BTreeSet<StorageId> = reads.iter().map(|value| self.storage(*value)).collect();
        needed.retain(|storage| self.dropped.contains(storage) && !self.fresh.contains_key(storage));
        if !needed.is_empty() {
            self.run_again(needed)?;
        }
        if let Operation::Issue(collective) | Operation::Wait(collective) = op.operation
            && self.is_gathered(collective)
        {
            return Ok(());
        }
        self.emit(&op);
        Ok(())
    }

    /// Whether recomputation has gathered the weight already and, communication-aware, it is not gathered again.
    fn is_gathered(&mut self, collective: Collective) -> bool {
        if !self.b.layout.keep_communicated || !gathers_weight(self.b, collective) {
            return false;
        }
        let same = |op: &Op| match op.operation {
            Operation::Wait(other) => {
                other.input == collective.input && other.kind == collective.kind && other.axes == collective.axes
            }
            _ => false,
        };
        let Some(Operation::Wait(other)) = self.forward.iter().find(|op| same(op)).map(|op| &op.operation) else {
            return false;
        };
        match self.values.get(&other.output).copied() {
            Some(gathered) => {
                self.values.insert(collective.output, gathered);
                true
            }
            None => false,
        }
    }

    /// Emits the operations of the forward pass that give the contents of `needed`.
    fn run_again(&mut self, mut needed: BTreeSet<StorageId>) -> Result<(), StepError> {
        let mut chosen = BTreeSet::new();
        loop {
            let before = chosen.len();
            for (index, op) in self.forward.iter().enumerate().rev() {
                let (reads, writes) = op.operation.operands();
                if writes.iter().any(|value| needed.contains(&self.storage(*value))) && chosen.insert(index) {
                    let touched = reads.iter().chain(&writes).map(|value| self.storage(*value));
                    needed.extend(touched.filter(|each| self.dropped.contains(each) && !self.fresh.contains_key(each)));
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
        for index in chosen {
            let op = &self.forward[index];
            self.check_final(index, op, &needed)?;
            let operation = self.needed_part(&op.operation);
            self.emit(&Op { operation, ..op.clone() });
        }
        Ok(())
    }

    /// The operation without the outputs that were kept.
    fn needed_part(&self, operation: &Operation) -> Operation {
        match operation {
            Operation::BiasGelu { output, activated, .. } if !self.dropped.contains(&self.storage(*output)) => {
                Operation::Gelu { input: *output, output: *activated }
            }
            _ => operation.clone(),
        }
    }

    /// Gives a value of a dropped storage its second name.
    fn rename(&mut self, value: ValueId) {
        if let Some(storage) = self.fresh.get(&self.storage(value)).copied()
            && !self.values.contains_key(&value)
        {
            let again = crate::Value { storage, ..self.b.values[value.0].clone() };
            self.b.values.push(again);
            self.values.insert(value, ValueId(self.b.values.len() - 1));
        }
    }

    /// What the operation reads must be what its storage holds in the end, or be written in this round before it.
    fn check_final(&self, index: usize, op: &Op, written_now: &BTreeSet<StorageId>) -> Result<(), StepError> {
        let (reads, writes) = self.needed_part(&op.operation).operands();
        for value in reads.into_iter().filter(|value| !writes.contains(value)) {
            let storage = self.storage(value);
            if written_now.contains(&storage) || self.b.values[value.0].chunk.is_none() {
                continue;
            }
            let writes_it = |later: &&Op| later.operation.operands().1.iter().any(|w| self.storage(*w) == storage);
            if self.forward[index + 1..].iter().any(|later| writes_it(&later)) {
                let (value, operation) = (self.b.values[value.0].name.clone(), op.operation.name());
                return Err(StepError::Overwritten { value, operation });
            }
        }
        Ok(())
    }

    /// Emits the operation on the values' second names, also of those that are views of a written one.
    fn emit(&mut self, op: &Op) {
        let (reads, writes) = op.operation.operands();
        reads.into_iter().chain(writes).for_each(|value| self.rename(value));
        let operation = op.operation.with_values(|value| self.values.get(&value).copied().unwrap_or(value));
        self.out.push(Op { operation, ..op.clone() });
    }
}
