//! Weight gradients apart from input gradients, for zero-bubble schedules.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Op, StepError, StorageId, Value, ValueId};

/// Takes the operations that serve weight gradients out of a backward pass.
///
/// # Errors
/// An operation that stays would change what one of them reads, or reads what one of them writes: never for the blocks of this
/// crate.
pub(crate) fn put_off_weight_gradients(values: &[Value], backward: &mut Vec<Op>) -> Result<Vec<Op>, StepError> {
    let mut last_write: BTreeMap<StorageId, usize> = BTreeMap::new();
    for (index, op) in backward.iter().enumerate().filter(|(_, op)| !op.weight_gradient) {
        last_write.extend(op.operation.operands().writes().iter().map(|value| (values[value.0].storage, index)));
    }
    for (index, op) in backward.iter().enumerate().filter(|(_, op)| op.weight_gradient) {
        let operands = op.operation.operands();
        let changed = |value: &&ValueId| last_write.get(&values[value.0].storage).is_some_and(|at| *at > index);
        if let Some(value) = operands.reads().iter().find(changed) {
            let value = values[value.0].name.clone();
            let operation = op.operation.name();
            return Err(StepError::Overwritten { value, operation });
        }
    }
    check_results(values, backward)?;
    let (put_off, kept): (Vec<Op>, Vec<Op>) = backward.drain(..).partition(|op| op.weight_gradient);
    *backward = kept;
    Ok(put_off)
}

/// Whether operations that stay find what they read, though others go.
fn check_results(values: &[Value], backward: &[Op]) -> Result<(), StepError> {
    let storage = |value: &ValueId| values[value.0].storage;
    let mut put_off: BTreeSet<StorageId> = BTreeSet::new();
    for op in backward {
        let operands = op.operation.operands();
        if op.weight_gradient {
            put_off.extend(operands.writes().iter().map(storage));
            continue;
        }
        if let Some(value) = operands.reads().iter().find(|value| put_off.contains(&storage(value))) {
            let value = values[value.0].name.clone();
            let operation = op.operation.name();
            return Err(StepError::Unwritten { value, operation });
        }
        operands.writes().iter().for_each(|value| _ = put_off.remove(&storage(value)));
    }
    Ok(())
}
