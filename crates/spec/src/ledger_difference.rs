//! Where what was counted is not what was predicted.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{AxesLedger, RankLedger};

/// A count of a rank that is not the predicted one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LedgerDifference {
    /// The rank.
    pub rank: usize,
    /// What is counted, in words.
    pub what: String,
    /// How much of it was to be; `None`: it is in no prediction.
    pub predicted: Option<u64>,
    /// How much of it there was; `None`: none of it was ever counted.
    pub counted: Option<u64>,
}

impl fmt::Display for LedgerDifference {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let told = |count: Option<u64>| count.map_or_else(|| "nothing".to_owned(), |count| count.to_string());
        let Self { rank, what, predicted, counted } = self;
        write!(f, "rank {rank}, {what}: {} predicted, {} counted", told(*predicted), told(*counted))
    }
}

impl RankLedger {
    /// The first count of `counted` that is not what this prediction says; `None` where the two are equal.
    pub fn difference(&self, counted: &Self) -> Option<LedgerDifference> {
        // Steps are compared as they are done: words are made only where there is something to say.
        if self == counted {
            return None;
        }
        let predicted = counts(self);
        let counted = counts(counted);
        let differ = |what: &&String| predicted.get(*what) != counted.get(*what);
        let what = predicted.keys().chain(counted.keys()).find(differ)?.clone();
        let [predicted, counted] = [predicted, counted].map(|counts| counts.get(&what).copied());
        Some(LedgerDifference { rank: self.rank, what, predicted, counted })
    }
}

/// Everything that a ledger says, by what it is: two ledgers with equal counts are equal.
fn counts(ledger: &RankLedger) -> BTreeMap<String, u64> {
    let RankLedger { rank, axes, layers, flops, elements, memory } = ledger;
    let mut counts = BTreeMap::from([("number of the rank".to_owned(), *rank as u64)]);
    for (place, layer) in layers.iter().enumerate() {
        counts.insert(format!("{}, its place among layers", layer.layer), place as u64);
        counts.extend(transfers(&layer.layer, &layer.axes));
    }
    counts.extend(transfers("the whole step", axes));
    let kinds = [
        ("forward products", flops.gemm_forward),
        ("products for gradients of inputs", flops.gemm_input_gradient),
        ("products for gradients of weights", flops.gemm_weight_gradient),
        ("forward attention", flops.attention_forward),
        ("attention backward", flops.attention_backward),
    ];
    counts.extend(kinds.map(|(kind, flops)| (format!("FLOP of {kind}"), flops)));
    counts.extend(elements.iter().map(|(operation, elements)| (format!("elements of {operation}"), *elements)));
    counts.extend(memory.peak_of.iter().map(|(class, bytes)| (format!("peak bytes of {}", class.name()), *bytes)));
    counts
        .extend(memory.now.iter().map(|(class, bytes)| (format!("bytes of {} after the step", class.name()), *bytes)));
    counts.insert("peak bytes".to_owned(), memory.peak);
    counts.insert("allocated bytes".to_owned(), memory.allocated);
    counts
}

fn transfers(of: &str, axes: &AxesLedger) -> impl Iterator<Item = (String, u64)> {
    axes.iter().flat_map(move |(axes, kinds)| {
        let collectives = (format!("{of}, kinds of collectives over {axes}"), kinds.len() as u64);
        let each = kinds.iter().flat_map(move |(kind, transfer)| {
            let name = |what: &str| format!("{of}, {} over {axes}, {what}", kind.name());
            [
                (name("calls"), transfer.calls),
                (name("payload bytes"), transfer.payload_bytes),
                (name("wire bytes"), transfer.wire_bytes),
            ]
        });
        each.chain([collectives])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CollectiveKind, FlopsLedger, LayerLedger, MemoryClass, MemoryLedger, Transfer};

    fn ledger() -> RankLedger {
        let transfer = Transfer { calls: 2, payload_bytes: 64, wire_bytes: 32 };
        let axes = AxesLedger::from([("x".to_owned(), BTreeMap::from([(CollectiveKind::AllReduce, transfer)]))]);
        let layer = |name: &str, axes: &AxesLedger| LayerLedger { layer: name.to_owned(), axes: axes.clone() };
        RankLedger {
            rank: 1,
            layers: vec![layer("block 0", &axes), layer("head", &AxesLedger::new())],
            axes,
            flops: FlopsLedger { gemm_forward: 5, ..FlopsLedger::default() },
            elements: BTreeMap::from([("adamw".into(), 7)]),
            memory: MemoryLedger::new(),
        }
    }

    /// A change and the difference that it makes.
    type Case = (fn(&mut RankLedger), &'static str);

    #[test]
    fn whatever_differs_is_named() {
        assert_eq!(ledger().difference(&ledger()), None);
        let told = |counted: &RankLedger| ledger().difference(counted).unwrap().to_string();
        let cases: [Case; 15] = [
            (
                |it| it.axes.values_mut().flat_map(BTreeMap::values_mut).for_each(|transfer| transfer.wire_bytes += 1),
                "the whole step, all-reduce over x, wire bytes: 32 predicted, 33 counted",
            ),
            (|it| it.rank = 2, "number of the rank: 1 predicted, 2 counted"),
            (|it| it.axes.clear(), "the whole step, all-reduce over x, calls: 2 predicted, nothing counted"),
            (
                |it| drop(it.axes.insert("y".to_owned(), BTreeMap::new())),
                "the whole step, kinds of collectives over y: nothing predicted, 0 counted",
            ),
            (
                |it| {
                    let kinds = it.layers[0].axes.get_mut("x").unwrap();
                    kinds.get_mut(&CollectiveKind::AllReduce).unwrap().calls = 3;
                },
                "block 0, all-reduce over x, calls: 2 predicted, 3 counted",
            ),
            (|it| it.layers.truncate(1), "head, its place among layers: 1 predicted, nothing counted"),
            (|it| it.flops.gemm_forward = 6, "FLOP of forward products: 5 predicted, 6 counted"),
            (|it| it.flops.gemm_input_gradient = 1, "FLOP of products for gradients of inputs: 0 predicted, 1 counted"),
            (|it| it.flops.gemm_weight_gradient = 1, "FLOP of products for gradients of weights: 0 pre"),
            (|it| it.flops.attention_forward = 1, "FLOP of forward attention: 0 predicted, 1 counted"),
            (|it| it.flops.attention_backward = 1, "FLOP of attention backward: 0 predicted, 1 counted"),
            (
                |it| it.elements.values_mut().for_each(|elements| *elements = 6),
                "elements of adamw: 7 predicted, 6 counted",
            ),
            (|it| it.memory.allocated = 4, "allocated bytes: 0 predicted, 4 counted"),
            (
                |it| it.memory.take(MemoryClass::GatheredWeights, 4),
                "bytes of gathered weights after the step: 0 predicted, 4 counted",
            ),
            (
                |it| {
                    it.memory.take(MemoryClass::Buffers, 4);
                    it.memory.give_back(MemoryClass::Buffers, 4);
                },
                "peak bytes: 0 predicted, 4 counted",
            ),
        ];
        for (change, expected) in cases {
            let mut counted = ledger();
            change(&mut counted);
            assert!(told(&counted).starts_with(&format!("rank 1, {expected}")), "{}", told(&counted));
        }
        let mut turned = ledger();
        turned.layers.reverse();
        assert_eq!(told(&turned), "rank 1, block 0, its place among layers: 0 predicted, 1 counted");
    }
}
