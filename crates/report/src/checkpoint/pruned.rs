//! What is kept of pruned tensors, and how far masks are from each other.

use quadrille_checkpoint::{Distances, EarlyBird, PrunedTensor};

use super::of_all_blocks;
use crate::{Table, Text, table};

/// How many of each tensor's elements are kept, and of all; those of several blocks are one row.
pub fn pruned_table(pruned: &[PrunedTensor]) -> Table {
    let mut rows: Vec<(String, u64, u64)> = Vec::new();
    for PrunedTensor { tensor, elements, kept } in pruned {
        let name = of_all_blocks(tensor);
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
pub fn distances_text(steps: &[Distances]) -> Text {
    let cells = steps.iter().map(|found| {
        let distance = |at: usize| found.to_those_before.get(at).map_or(String::new(), |far| format!("{far:.4}"));
        std::iter::once(found.step.to_string()).chain((0..EarlyBird::MASKS - 1).map(distance)).collect()
    });
    let cells: Vec<Vec<String>> = cells.collect();
    let masks = EarlyBird::MASKS;
    let near = EarlyBird::NEAR;
    let verdict = match settled_at(steps) {
        Some(step) => format!("settled at step {step}: {masks} masks in a row, every two within {near}"),
        None if steps.len() < masks => {
            format!("of {} checkpoints nothing can be said: it takes {masks}; let a run keep more", steps.len())
        }
        None => format!("not settled: no {masks} masks in a row are, every two, within {near}"),
    };
    let before = (1..masks).map(|before| format!("{before} before"));
    let header: Vec<String> = std::iter::once("step".to_owned()).chain(before).collect();
    Text::from(table(&header, &cells)) + format!("\n{verdict}\n")
}

/// The first step at which masks have settled.
pub fn settled_at(steps: &[Distances]) -> Option<u64> {
    steps.iter().find(|found| found.settled).map(|found| found.step)
}
