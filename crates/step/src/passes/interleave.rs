//! Chunked overlap (ATP, section 4.1): the rows of a microbatch in chunks; while one chunk's collective is under way
//! the other chunks compute.
//!
//! Gathered weights serve all chunks; gradients of weights are summed over the chunks and reduced after the last, which
//! changes their rounding.

use std::collections::BTreeMap;

use crate::builder::Builder;
use crate::operation::Write;
use crate::{Op, Operation, StorageId, ValueId};

/// What each chunk calls the values of token rows of the first, where it has other names for them.
type Copies = Vec<BTreeMap<ValueId, ValueId>>;

/// Replaces passes over the first chunk, whose values begin with `first`, by passes over all chunks of the layout.
pub(crate) fn interleave(b: &mut Builder, first: usize, forward: &mut Vec<Op>, backward: &mut Vec<Op>) -> Copies {
    let copies = copies(b, first);
    for ops in [forward, backward] {
        if copies.len() > 1 {
            *ops = interleaved(b, &copies, ops);
        }
    }
    copies
}

/// Values of token rows in storages of their own for every further chunk.
fn copies(b: &mut Builder, first: usize) -> Copies {
    let mut copies = vec![BTreeMap::new()];
    if b.layout.overlap_chunks == 1 {
        return copies;
    }
    let of_tokens: Vec<ValueId> =
        (first..b.values.len()).map(ValueId).filter(|value| b.values[value.0].chunk.is_some()).collect();
    for chunk in 1..b.layout.overlap_chunks {
        let mut storages: BTreeMap<StorageId, StorageId> = BTreeMap::new();
        let mut copy = BTreeMap::new();
        for id in &of_tokens {
            let mut value = b.values[id.0].clone();
            value.chunk = Some(chunk);
            value.storage = *storages.entry(value.storage).or_insert_with(|| {
                b.storages.push(b.storages[value.storage.0].clone());
                StorageId(b.storages.len() - 1)
            });
            value.counts = value.counts.map(|counts| copy[&counts]);
            b.values.push(value);
            copy.insert(*id, ValueId(b.values.len() - 1));
        }
        copies.push(copy);
    }
    copies
}

/// The operations of all chunks: up to each issue in turn.
fn interleaved(b: &Builder, copies: &Copies, ops: &[Op]) -> Vec<Op> {
    let of_tokens = |op: &Op| op.operation.operands().all().iter().any(|value| b.values[value.0].chunk.is_some());
    let last = copies.len() - 1;
    let mut all = Vec::new();
    let ends = |op: &Op| matches!(op.operation, Operation::Issue(_)) && of_tokens(op);
    for piece in ops.split_inclusive(ends) {
        for (chunk, copy) in copies.iter().enumerate() {
            for op in piece {
                if of_tokens(op) {
                    all.push(Op { operation: of_chunk(b, op, chunk, copy), ..*op });
                } else if chunk == if op.weight_gradient { last } else { 0 } {
                    // What is done once for all chunks: gathers before the first, reductions of gradients after the last.
                    all.push(*op);
                }
            }
        }
    }
    all
}

/// The operation on a chunk's values; from the second chunk on what is written to gradients is added.
fn of_chunk(b: &Builder, op: &Op, chunk: usize, copy: &BTreeMap<ValueId, ValueId>) -> Operation {
    let mut operation = op.operation.with_values(|value| copy.get(&value).copied().unwrap_or(value));
    let gradients = operation.operands().writes().iter().any(|output| b.values[output.0].chunk.is_none());
    if chunk > 0
        && gradients
        && let Some(write) = operation.write_mut()
    {
        *write = Write::Accumulate;
    }
    operation
}
