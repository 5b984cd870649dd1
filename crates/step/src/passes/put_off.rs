//! Weight gradients apart from input gradients, for zero-bubble schedules.

use std::collections::BTreeMap;

use crate::{Op, StepError, StorageId, Value};

/// Takes the operations that serve weight gradients out of a backward pass.
///
/// # Errors
/// An operation that stays would change what one of them reads: never for the blocks of this crate.
pub(crate) fn put_off_weight_gradients(values: &[Value], backward: &mut Vec<Op>) -> Result<Vec<Op>, StepError> {
    let mut last_write: BTreeMap<StorageId, usize> = BTreeMap::new();
    for (index, op) in backward.iter().enumerate().filter(|(_, op)| !op.weight_gradient) {
        last_write.extend(op.operation.operands().writes().iter().map(|value| (values[value.0].storage, index)));
    }
    for (index, op) in backward.iter().enumerate().filter(|(_, op)| op.weight_gradient) {
        let operands = op.operation.operands();
        let changed = |value: &&crate::ValueId| last_write.get(&values[value.0].storage).is_some_and(|at| *at > index);
        if let Some(value) = operands.reads().iter().find(changed) {
            let (value, operation) = (values[value.0].name.clone(), op.operation.name());
            return Err(StepError::Overwritten { value, operation });
        }
    }
    let (put_off, kept): (Vec<Op>, Vec<Op>) = backward.drain(..).partition(|op| op.weight_gradient);
    *backward = kept;
    Ok(put_off)
}
