//! What ranks send, compute and hold in a step: predicted beside counted.

use std::collections::BTreeMap;

use quadrille_run::units::{bytes, decimal};
use quadrille_spec::{CollectiveKind, FlopsLedger, Ledger, MemoryClass, RankLedger, Transfer};

use super::read::{Ledgers, Run};
use crate::drawing::{heading, paragraph, table};

/// The part of the page.
pub fn ledgers(run: &Run) -> String {
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
            format!("bytes, FLOPs and memory of all {ranks} ranks as predicted, as integers, in every step")
        }
        _ => "The counted ledger DIFFERS from the prediction in at least one step; counted is the last one.".to_owned(),
    };
    let transfers = rows(
        ["axes and collective", "calls", "payload", "on the wire"],
        &transfers(predicted),
        counted.map(transfers).as_ref(),
        |at, value| if at == 0 { value.to_string() } else { bytes(value) },
    );
    let work =
        rows(["work", "FLOP"], &work(predicted), counted.map(work).as_ref(), |_, value| decimal(value as f64, ""));
    let memory = rows(["memory", "held"], &memory(predicted), counted.map(memory).as_ref(), |_, v| bytes(v));
    heading(2, "Ledger of a step")
        + &paragraph(&told)
        + &heading(3, &format!("Sent by {ranks} rank(s) together"))
        + &match transfers.len() {
            1 => paragraph("no communication"),
            _ => table("", &transfers),
        }
        + &heading(3, &format!("Computed by {ranks} rank(s) together"))
        + &table("", &work)
        + &heading(3, "Held by the rank that holds most of it")
        + &table("", &memory)
}

/// What is counted of a name, in the order of the columns.
type Counts<const N: usize> = Vec<(String, [u64; N])>;

/// A row for every name; each column twice: predicted, counted. Numbers that differ are written out.
fn rows<const N: usize, const M: usize>(
    header: [&str; M],
    predicted: &Counts<N>,
    counted: Option<&Counts<N>>,
    told: impl Fn(usize, u64) -> String,
) -> Vec<Vec<String>> {
    let [first, columns @ ..] = header.as_slice() else { return Vec::new() };
    let heads = columns.iter().flat_map(|column| [format!("{column}, predicted"), format!("{column}, counted")]);
    let mut rows = vec![std::iter::once((*first).to_owned()).chain(heads).collect::<Vec<_>>()];
    let find = |counts: &Counts<N>, name: &str| counts.iter().find(|(of, _)| of == name).map(|(_, counts)| *counts);
    let only_counted = counted.into_iter().flatten().filter(|(name, _)| find(predicted, name).is_none());
    for (name, _) in predicted.iter().chain(only_counted) {
        let mut row = vec![name.clone()];
        let [predicted, counts] = [Some(predicted), counted].map(|counts| counts.map(|counts| find(counts, name)));
        for at in 0..N {
            // What one side does not know at all, it has nothing of.
            let [one, other] = [predicted, counts].map(|side| side.map(|counts| counts.map_or(0, |counts| counts[at])));
            let differ = other.is_some_and(|other| one != Some(other));
            let cell = |value: Option<u64>| match value {
                None => "-".to_owned(),
                Some(value) if differ => value.to_string(),
                Some(value) => told(at, value),
            };
            row.extend([cell(one), cell(other)]);
        }
        rows.push(row);
    }
    rows
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
    fn counts_that_differ_are_written_out() {
        let of = |name: &str, count: u64| (name.to_owned(), [count]);
        let told = |_: usize, value: u64| bytes(value);
        let text = |row: &[&str]| row.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
        let predicted = vec![of("a", 2048), of("b", 4096)];
        let both = rows(["", "held"], &predicted, Some(&vec![of("a", 2048), of("b", 4097), of("c", 1)]), told);
        assert_eq!(both[0], text(&["", "held, predicted", "held, counted"]));
        assert_eq!(both[1], text(&["a", "2.00 KiB", "2.00 KiB"]));
        assert_eq!(both[2], text(&["b", "4096", "4097"]));
        assert_eq!(both[3], text(&["c", "0", "1"]));
        assert_eq!(rows(["", "held"], &predicted, None, told)[1], text(&["a", "2.00 KiB", "-"]));
    }
}
