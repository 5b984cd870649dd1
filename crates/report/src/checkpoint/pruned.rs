//! Tables of pruned tensors.

use quadrille_checkpoint::PrunedTensor;

use super::of_all_blocks;
use crate::{Table, table};

/// Retained elements of each tensor, and of all; those of several blocks are one row.
pub(super) fn pruned_table(pruned: &[PrunedTensor]) -> Table {
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
