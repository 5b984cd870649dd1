//! Collectives that a layer stands still for, whatever is beside it.

use std::collections::BTreeMap;

use quadrille_step::{Layer, Operation, Section, StageProgram, StorageId};
use rustc_hash::FxHashSet;

/// Places in a section where a layer waits for what it has just issued, of what it has made itself, to go on with it: nothing
/// that other layers do can come between.
pub(super) fn stalls(stage: &StageProgram, section: &Section) -> Vec<usize> {
    let storage = |value| stage.value(value).storage;
    // What layers have made; what they have issued of it, with nothing since; and what they have waited for, and where.
    let mut made: FxHashSet<(Layer, StorageId)> = FxHashSet::default();
    let mut just_issued: FxHashSet<StorageId> = FxHashSet::default();
    let mut waited: BTreeMap<StorageId, (usize, Layer)> = BTreeMap::new();
    let mut stalls = Vec::new();
    for (at, op) in section.ops.iter().enumerate() {
        let operands = op.operation.operands();
        match op.operation {
            Operation::Issue(collective) if collective.size(stage.grid()) > 1 => {
                if made.contains(&(op.layer, storage(collective.input))) {
                    just_issued.insert(storage(collective.output));
                }
            }
            Operation::Wait(collective) if collective.size(stage.grid()) > 1 => {
                if just_issued.remove(&storage(collective.output)) {
                    waited.insert(storage(collective.output), (at, op.layer));
                }
                just_issued.clear();
            }
            _ => just_issued.clear(),
        }
        // Weights' gradients may be used later, after other layers.
        if !matches!(op.operation, Operation::Wait(_)) && !op.weight_gradient {
            for value in operands.reads() {
                if let Some((at, _)) = waited.remove(&storage(*value)).filter(|(_, layer)| *layer == op.layer) {
                    stalls.push(at);
                }
            }
        }
        made.extend(operands.writes().iter().map(|value| (op.layer, storage(*value))));
    }
    stalls
}
