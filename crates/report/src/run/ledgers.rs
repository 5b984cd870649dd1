//! What ranks send, compute and hold in a step: predicted beside counted.

use std::collections::BTreeMap;

use quadrille_spec::{CollectiveKind, FlopsLedger, Ledger, MemoryClass, RankLedger, Transfer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::read::{Ledgers, Run};
use crate::ledger::all_ranks;

/// A predicted count, and the counted one where there is one.
pub type CountPair = (u64, Option<u64>);

/// Ledgers of a step: sums over ranks, and the memory of the rank that holds most; every count as a pair of the predicted one
/// and the counted one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LedgerTables {
    /// A sentence on whether they are equal.
    pub told: String,
    /// Number of ranks.
    pub ranks: usize,
    /// True if they are equal, as integers; null where nothing was counted.
    pub equal: Option<bool>,
    /// Transfers by axes and collective.
    pub transfers: Vec<TransferCounts>,
    /// FLOPs by kind.
    pub flops: Vec<FlopCounts>,
    /// Most bytes of a rank by class.
    pub memory: Vec<ByteCounts>,
}

/// Transfers of one kind over the same axes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TransferCounts {
    /// Axes and collective.
    pub name: String,
    /// Number of calls.
    pub calls: CountPair,
    /// Bytes of the logical buffers.
    pub payload: CountPair,
    /// Bytes that are sent.
    pub wire: CountPair,
}

/// FLOPs of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FlopCounts {
    /// The kind.
    pub name: String,
    /// FLOPs.
    pub flops: CountPair,
}

/// Bytes of one class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ByteCounts {
    /// The class.
    pub name: String,
    /// Bytes.
    pub bytes: CountPair,
}

/// What all ranks send and compute, and what the rank holds that holds most: predicted, and counted where it was.
pub fn ledgers(run: &Run) -> LedgerTables {
    let ledgers = run.summary.as_ref().ok().map(|summary| &summary.ledger);
    let predicted = ledgers.map_or(&run.predicted, |ledgers| &ledgers.predicted);
    let counted = ledgers.and_then(|ledgers| ledgers.counted.as_ref());
    let ranks = predicted.ranks.len();
    let told = match (&run.summary, ledgers) {
        (Err(reason), _) => format!("{reason} What was counted is left out."),
        (Ok(_), Some(Ledgers { equal: None, .. })) => {
            "The last part of the run had no step left to do: what was counted is left out.".to_owned()
        }
        (Ok(_), Some(Ledgers { equal: Some(true), .. })) => {
            format!("bytes, FLOPs and memory of {} as predicted, as integers, in every step", all_ranks(ranks))
        }
        _ => "The counted ledger DIFFERS from the prediction in at least one step; counted is the last one.".to_owned(),
    };
    let transfers = rows(&transfers(predicted), counted.map(transfers).as_ref());
    let flops = rows(&work(predicted), counted.map(work).as_ref());
    let memory = rows(&memory(predicted), counted.map(memory).as_ref());
    LedgerTables {
        told,
        ranks,
        equal: ledgers.and_then(|ledgers| ledgers.equal),
        transfers: transfers
            .into_iter()
            .map(|(name, [calls, payload, wire])| TransferCounts { name, calls, payload, wire })
            .collect(),
        flops: flops.into_iter().map(|(name, [flops])| FlopCounts { name, flops }).collect(),
        memory: memory.into_iter().map(|(name, [bytes])| ByteCounts { name, bytes }).collect(),
    }
}

/// What is counted of a name, in the order of the columns.
type Counts<const N: usize> = Vec<(String, [u64; N])>;

/// An entry for every name, with both sides of each column. What one side does not know at all, it has nothing of.
fn rows<const N: usize>(predicted: &Counts<N>, counted: Option<&Counts<N>>) -> Vec<(String, [CountPair; N])> {
    let find =
        |counts: &Counts<N>, name: &str| counts.iter().find(|(of, _)| of == name).map_or([0; N], |(_, counts)| *counts);
    let is_predicted = |name: &str| predicted.iter().any(|(known, _)| known == name);
    let only_counted = counted.into_iter().flatten().filter(|(name, _)| !is_predicted(name));
    let row = |(name, _): &(String, [u64; N])| {
        let predicted = find(predicted, name);
        let counted = counted.map(|counts| find(counts, name));
        let pair = |at: usize| (predicted[at], counted.map(|counts| counts[at]));
        (name.clone(), std::array::from_fn(pair))
    };
    predicted.iter().chain(only_counted).map(row).collect()
}

/// Calls, payload and bytes on the wire of all ranks, by axes and collective.
fn transfers(ledger: &Ledger) -> Counts<3> {
    let mut sums: BTreeMap<(&str, CollectiveKind), Transfer> = BTreeMap::new();
    for (axes, kinds) in ledger.ranks.iter().flat_map(|rank| &rank.axes) {
        for (kind, transfer) in kinds {
            *sums.entry((axes, *kind)).or_default() += *transfer;
        }
    }
    let named = |((axes, kind), sum): ((&str, CollectiveKind), Transfer)| {
        (format!("{axes} {}", kind.name()), [sum.calls, sum.payload_bytes, sum.wire_bytes])
    };
    sums.into_iter().map(named).collect()
}

/// Those of one kind.
type Flops = fn(&FlopsLedger) -> u64;

/// FLOPs of all ranks by kind.
fn work(ledger: &Ledger) -> Counts<1> {
    let kinds: [(&str, Flops); 6] = [
        ("products, forward", |flops| flops.gemm_forward),
        ("products, gradients of inputs", |flops| flops.gemm_input_gradient),
        ("products, gradients of weights", |flops| flops.gemm_weight_gradient),
        ("attention, forward", |flops| flops.attention_forward),
        ("attention, backward", |flops| flops.attention_backward),
        ("all", FlopsLedger::total),
    ];
    let sum = |of: Flops| ledger.ranks.iter().map(|rank| of(&rank.flops)).sum();
    kinds.into_iter().map(|(name, of)| (name.to_owned(), [sum(of)])).collect()
}

/// The most bytes that a rank holds, by class.
fn memory(ledger: &Ledger) -> Counts<1> {
    let most = |of: &dyn Fn(&RankLedger) -> u64| [ledger.ranks.iter().map(of).max().unwrap_or(0)];
    let class = |class: MemoryClass| {
        (class.name().to_owned(), most(&|rank| rank.memory.peak_of.get(&class).copied().unwrap_or(0)))
    };
    let all = [
        ("all together, at peak".to_owned(), most(&|rank| rank.memory.peak)),
        ("all buffers".to_owned(), most(&|rank| rank.memory.allocated)),
    ];
    let of_host = |rank: &RankLedger| rank.memory.peak_of.contains_key(&MemoryClass::Host);
    let host = ledger.ranks.iter().any(of_host).then(|| class(MemoryClass::Host));
    MemoryClass::ALL.into_iter().map(class).chain(all).chain(host).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_either_side_have_both_numbers() {
        let of = |name: &str, count: u64| (name.to_owned(), [count]);
        let predicted = vec![of("a", 2048), of("b", 4096)];
        let counted = vec![of("a", 2048), of("b", 4097), of("c", 1)];
        let both = rows(&predicted, Some(&counted));
        let row = |name: &str, predicted: u64, counted: Option<u64>| (name.to_owned(), [(predicted, counted)]);
        assert_eq!(both, [row("a", 2048, Some(2048)), row("b", 4096, Some(4097)), row("c", 0, Some(1))]);
        assert_eq!(rows(&predicted, None)[1], row("b", 4096, None));
    }
}
