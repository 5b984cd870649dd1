//! The weights of a block are gathered together and stay until its pass ends.

use std::collections::BTreeMap;

use quadrille_spec::{Axis, CollectiveKind};

use crate::builder::Builder;
use crate::operation::kind;
use crate::{Collective, Layer, Op, Operation, ValueId, When};

/// By layer: all gathers over z at its beginning, each weight once, held until its end.
pub(super) fn apply(b: &Builder, ops: &mut Vec<Op>) {
    let gathers = |op: &Op| match op.operation {
        Operation::Issue(collective) | Operation::Wait(collective) if is_gather(b, collective) => Some(collective),
        _ => None,
    };
    let mut out = Vec::with_capacity(ops.len());
    // What is gathered a second time; operations of other overlap chunks may come to it later.
    let mut renamed = BTreeMap::new();
    for block in ops.chunk_by(|a, b| a.layer == b.layer) {
        let Layer::Block(_) = block[0].layer else {
            out.extend_from_slice(block);
            continue;
        };
        // By weight: what it was first gathered to.
        let mut first: BTreeMap<ValueId, (ValueId, Op)> = BTreeMap::new();
        let mut order = Vec::new();
        for op in block {
            // A wait whose issue lies before another layer's operations has been done there.
            let Some((collective, true)) = gathers(op).map(|collective| (collective, is_issue(op))) else { continue };
            let (whole, _) = *first.entry(collective.input).or_insert_with(|| {
                order.push(collective.input);
                (collective.output, *op)
            });
            renamed.insert(collective.output, whole);
        }
        let issued = order.iter().map(|weight| first[weight]);
        let waited = issued.clone().filter_map(|(_, op)| {
            let Operation::Issue(collective) = op.operation else { return None };
            Some(Op { operation: Operation::Wait(collective), ..op })
        });
        // A shard may still be on its way from the last update.
        for weight in &order {
            out.extend(block.iter().filter(|op| carries(op, *weight)));
            out.push(first[weight].1);
        }
        out.extend(waited);
        let others = |op: &&Op| gathers(op).is_none() && !order.iter().any(|weight| carries(op, *weight));
        for op in block.iter().filter(others) {
            let operation = op.operation.with_values(|value| renamed.get(&value).copied().unwrap_or(value));
            out.push(Op { operation, ..*op });
        }
        out.extend(issued.map(|(whole, op)| {
            let operation = kind::Hold { input: whole, output: None }.into();
            Op { operation, when: When::Always, ..op }
        }));
    }
    *ops = out;
}

fn is_issue(op: &Op) -> bool {
    matches!(op.operation, Operation::Issue(_))
}

/// Whether it waits for what the last update has sent of a weight.
fn carries(op: &Op, weight: ValueId) -> bool {
    let Operation::WaitCarried(collective) = op.operation else { return false };
    collective.output == weight
}

fn is_gather(b: &Builder, collective: Collective) -> bool {
    let weight = b.values[collective.output.0].chunk.is_none();
    weight && collective.kind == CollectiveKind::AllGather && collective.axes == Axis::Z.only()
}
