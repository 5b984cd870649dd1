//! What is kept of pruned tensors, and how far masks are from each other.

use quadrille_checkpoint::{Distances, EarlyBird, PrunedTensor};

use crate::table;

/// How many of each tensor's elements are kept, and of all; those of several blocks are one row.
pub fn pruned_table(pruned: &[PrunedTensor]) -> String {
    let mut rows: Vec<(String, u64, u64)> = Vec::new();
    for PrunedTensor { tensor, elements, kept } in pruned {
        let block = tensor.strip_prefix("block.").and_then(|rest| rest.split_once('.'));
        let name = block.map_or(tensor.clone(), |(_, part)| format!("block.*.{part}"));
        match rows.iter_mut().find(|row| row.0 == name) {
            Some(row) => (row.1, row.2) = (row.1 + elements, row.2 + kept),
            None => rows.push((name, *elements, *kept)),
        }
    }
    let all = |part: fn(&PrunedTensor) -> u64| pruned.iter().map(part).sum();
    rows.push(("all".to_owned(), all(|each| each.elements), all(|each| each.kept)));
    let cells = rows.into_iter().map(|(name, elements, kept)| {
        let part = 100.0 * kept as f64 / elements as f64;
        vec![name, elements.to_string(), kept.to_string(), format!("{part:.1}%")]
    });
    table(&["pruned tensor", "weights", "kept", ""], &cells.collect::<Vec<_>>())
}

/// The distances of a run's masks, and the first checkpoint at which they have settled.
pub fn distances_text(steps: &[Distances]) -> String {
    let cells = steps.iter().map(|found| {
        let distance = |at: usize| found.to_those_before.get(at).map_or(String::new(), |far| format!("{far:.4}"));
        std::iter::once(found.step.to_string()).chain((0..EarlyBird::MASKS - 1).map(distance)).collect()
    });
    let cells: Vec<Vec<String>> = cells.collect();
    let verdict = match settled_at(steps) {
        Some(step) => format!("settled at step {step}: five masks in a row, every two within {}", EarlyBird::NEAR),
        None => format!("not settled: no five masks in a row are, every two, within {}", EarlyBird::NEAR),
    };
    let header = ["step", "to the one before", "2 before", "3 before", "4 before"];
    format!("{}\n{verdict}\n", table(&header, &cells))
}

/// The first step at which masks have settled.
pub fn settled_at(steps: &[Distances]) -> Option<u64> {
    steps.iter().find(|found| found.settled).map(|found| found.step)
}
