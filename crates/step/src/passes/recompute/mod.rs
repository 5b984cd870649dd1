//! Recomputation: what the forward pass does not keep is computed again in the backward pass, just before its first
//! use there, by the same operations on the same operands.
//!
//! A practice may also give up inputs of products that are gathered ([`crate::Practice::gathers_inputs_again`]), and repeat
//! whole segments.
//!
//! A segment is one block, or with `full:k` the next `k` blocks of the piece. What is dropped of it:
//! - selective: outputs of norms and of the activation function, and what is gathered from them;
//! - full: everything but what other layers read, that is, the residual stream between segments.
//!
//! Communication-aware (CAC, dissertation section 7.3.2): the outputs of collectives on activations are kept, and what
//! recomputation gathers of weights over z, or of keys and values over context, serves the backward pass as well. So no
//! collective is repeated but the broadcasts of SUMMA's weight panels, which are never kept.

mod again;

use std::collections::BTreeMap;

use quadrille_spec::{Axis, CollectiveKind, Recompute};

use crate::builder::Builder;
use crate::operation::Remade;
use crate::{Collective, Layer, Op, Operation, StepError, StorageId, ValueId};
use again::Again;

/// Adds to `backward` what has to be computed again.
pub(crate) fn recompute(b: &mut Builder, forward: &[Op], backward: &mut Vec<Op>) -> Result<(), StepError> {
    if b.layout.recompute == Recompute::None && !b.practice.gathers_inputs_again {
        return Ok(());
    }
    let forward = Forward::new(b, forward);
    let mut again = Again::new(b, forward);
    for op in backward.drain(..) {
        again.backward(op)?;
    }
    *backward = again.out;
    Ok(())
}

/// The forward pass of a piece with what is given up of it.
struct Forward<'f> {
    ops: &'f [Op],
    /// By operation: the storages that it reads and those that it writes.
    touched: Vec<[Vec<StorageId>; 2]>,
    /// By segment: its operations.
    segments: BTreeMap<usize, Vec<usize>>,
    /// By storage that is given up: its segment.
    dropped: BTreeMap<StorageId, usize>,
    /// By storage: the last operation that writes it.
    last_write: BTreeMap<StorageId, usize>,
}

impl<'f> Forward<'f> {
    fn new(b: &Builder, ops: &'f [Op]) -> Self {
        let storages = |values: &[ValueId]| values.iter().map(|value| b.values[value.0].storage).collect();
        let touched = |op: &Op| {
            let operands = op.operation.operands();
            [storages(operands.reads()), storages(operands.writes())]
        };
        let touched = ops.iter().map(touched).collect();
        let mut forward =
            Self { ops, touched, segments: BTreeMap::new(), dropped: BTreeMap::new(), last_write: BTreeMap::new() };
        let segments = segments(ops, b.layout.recompute);
        for (index, segment) in segments.iter().enumerate() {
            forward.last_write.extend(forward.touched[index][1].iter().map(|storage| (*storage, index)));
            if let Some(segment) = *segment {
                forward.segments.entry(segment).or_default().push(index);
                let given_up = forward.given_up(b, index);
                forward.dropped.extend(given_up.into_iter().map(|storage| (storage, segment)));
            }
        }
        for (index, segment) in segments.into_iter().enumerate() {
            forward.keep(b, index, segment);
        }
        forward.dropped.retain(|storage, _| !b.storages[storage.0].persistent);
        forward
    }

    /// What an operation of a block writes and the forward pass does not keep.
    fn given_up(&self, b: &Builder, index: usize) -> Vec<StorageId> {
        let [reads, writes] = &self.touched[index];
        let again = b.practice.gathers_inputs_again && gathers_input(b, &self.ops[index].operation);
        match b.layout.recompute {
            Recompute::Full { .. } => return writes.clone(),
            _ if again => return writes.clone(),
            Recompute::None => return Vec::new(),
            Recompute::Selective => {}
        }
        match self.ops[index].operation.remade() {
            Remade::Always(value) => vec![b.values[value.0].storage],
            Remade::WithInputs if reads.iter().all(|storage| self.dropped.contains_key(storage)) => writes.clone(),
            Remade::WithInputs | Remade::Never => Vec::new(),
        }
    }

    /// Keeps what another segment reads, and what has been communicated.
    fn keep(&mut self, b: &Builder, index: usize, segment: Option<usize>) {
        let [reads, writes] = &self.touched[index];
        for storage in reads {
            if self.dropped.get(storage).is_some_and(|at| Some(*at) != segment) {
                self.dropped.remove(storage);
            }
        }
        // What was decided stays: the same choice again could be another one.
        if matches!(self.ops[index].operation, Operation::Route(_) | Operation::CountChoices(_)) {
            self.dropped.retain(|storage, _| !writes.contains(storage));
        }
        if let Operation::Wait(collective) = self.ops[index].operation
            && b.layout.keep_communicated
            && b.values[collective.output.0].chunk.is_some()
            && !gathers_again(b, collective)
        {
            for storage in writes {
                self.dropped.remove(storage);
            }
        }
    }
}

/// By operation: the segment that it belongs to, if it is part of a block.
fn segments(ops: &[Op], recompute: Recompute) -> Vec<Option<usize>> {
    let block = |op: &Op| match op.layer {
        Layer::Block(index) => Some(index),
        _ => None,
    };
    let first = ops.iter().filter_map(block).min().unwrap_or(0);
    let every = match recompute {
        Recompute::Full { every } => every,
        Recompute::None | Recompute::Selective => 1,
    };
    ops.iter().map(|op| block(op).map(|index| (index - first) / every)).collect()
}

/// Whether it gathers the rows of a product's input.
pub(super) fn gathers_input(b: &Builder, operation: &Operation) -> bool {
    let (Operation::Issue(collective) | Operation::Wait(collective)) = operation else { return false };
    let of_tokens = b.values[collective.output.0].chunk.is_some();
    collective.kind == CollectiveKind::AllGather && of_tokens && collective.axes != Axis::Context.only()
}

/// Whether a gather is one that the backward pass repeats in any case: of weights over z, of keys and values over
/// context.
fn gathers_again(b: &Builder, collective: Collective) -> bool {
    let weight = b.values[collective.output.0].chunk.is_none();
    collective.kind == CollectiveKind::AllGather
        && ((weight && collective.axes == Axis::Z.only()) || collective.axes == Axis::Context.only())
}
