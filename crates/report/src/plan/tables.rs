//! Tables of priced layouts: the ranking, the parts of their steps, their memory.

use quadrille_plan::native::explain::{Part, ROUNDING};
use quadrille_run::units::{bytes, decimal, seconds};

use super::text::{percent_below, short_count};
use super::{PricedLayout, budget};
use crate::{Table, Text, table};

/// Columns of a layout behind its time.
pub(crate) const COLUMNS: [&str; 11] = [
    "grid",
    "in a domain",
    "microbatch",
    "schedule",
    "recompute",
    "also",
    "tokens/s",
    "TFLOP/s",
    "MFU",
    "HFU",
    "memory",
];

/// Columns that a narrow terminal leaves out, those that follow from others first.
pub(crate) const SPARE: [&str; 7] = ["HFU", "in a domain", "variants", "device-hours", "tokens/s", "TFLOP/s", "MFU"];

/// Layouts with what follows from their prices, for a question of so many devices.
pub(super) fn ranking(layouts: &[&PricedLayout], devices: usize) -> Table {
    ranking_with(layouts, devices, None, false)
}

/// Layouts with a mark on one of them, and with the number of variants of each.
pub(super) fn ranking_with(
    layouts: &[&PricedLayout],
    devices: usize,
    marked: Option<usize>,
    with_variants: bool,
) -> Table {
    let several = layouts.iter().any(|layout| layout.devices != devices);
    let mut header = vec!["layout", "step"];
    header.extend(several.then_some("devices"));
    header.extend(COLUMNS);
    header.extend(with_variants.then_some("variants"));
    header.extend(budget::header(layouts));
    let row = |(at, layout): (usize, &&PricedLayout)| {
        let mark = if Some(at) == marked { "* " } else { "" };
        let mut row = vec![format!("{mark}{}", layout.notation), seconds(layout.time_s)];
        row.extend(several.then(|| layout.devices.to_string()));
        row.extend(cells(layout));
        row.extend(with_variants.then(|| layout.variants.map_or("-".to_owned(), short_count)));
        row.extend(budget::row(layout));
        row
    };
    let table = table(&header, &layouts.iter().enumerate().map(row).collect::<Vec<_>>());
    table.spare(&SPARE).marked(marked)
}

/// Cells of [`COLUMNS`].
pub(crate) fn cells(layout: &PricedLayout) -> [String; 11] {
    let words = &layout.words;
    [
        words.grid.clone(),
        words.domain.clone(),
        words.microbatch.to_string(),
        words.schedule.clone(),
        words.recompute.clone(),
        words.others.clone(),
        decimal(layout.tokens_per_s, "").trim_end().to_owned(),
        format!("{:.1}", layout.tflops_per_device),
        format!("{:.1}%", 100.0 * layout.mfu),
        format!("{:.1}%", 100.0 * layout.hfu),
        bytes(layout.memory_bytes),
    ]
}

/// Parts of the layouts' steps, and their memory, of devices of which layouts may use so many bytes.
pub(super) fn breakdown(layouts: &[&PricedLayout], capacity: Option<u64>, marked: Option<usize>) -> Text {
    Text::from("\n")
        + Text::heading("parts of a step")
        + parts_table(layouts).marked(marked)
        + "\n"
        + Text::heading("memory of the rank that needs most")
        + memory_table(layouts, capacity).marked(marked)
}

/// Parts of each step in percent, without those that no layout has.
fn parts_table(layouts: &[&PricedLayout]) -> Table {
    // A remainder of rounding is no bubble.
    let is_present = |part: &Part| layouts.iter().any(|layout| layout.parts_s.of(*part) > ROUNDING * layout.time_s);
    let parts: Vec<Part> = Part::ALL.into_iter().filter(is_present).collect();
    let header: Vec<_> = ["layout", "step"].into_iter().chain(parts.iter().map(|part| part.name())).collect();
    let row = |layout: &&PricedLayout| {
        let shares = parts.iter().map(|part| layout.share(layout.parts_s.of(*part)));
        [layout.notation.clone(), seconds(layout.time_s)].into_iter().chain(shares).collect()
    };
    table(&header, &layouts.iter().map(row).collect::<Vec<_>>())
}

/// Memory by class.
fn memory_table(layouts: &[&PricedLayout], capacity: Option<u64>) -> Table {
    let classes = layouts.first().map(|layout| layout.memory.by_class().map(|(class, _)| class));
    let header = ["layout", "total", "free", "runs that fit", "stage"].into_iter().chain(classes.into_iter().flatten());
    let header: Vec<_> = header.collect();
    let row = |layout: &&PricedLayout| {
        let total = layout.memory_bytes;
        let free = capacity.map_or("-".to_owned(), |capacity| bytes(capacity.saturating_sub(total)));
        let fitting = layout.fitting_runs.map_or("-".to_owned(), percent_below);
        let classes = layout.memory.by_class().map(|(_, amount)| bytes(amount));
        [layout.notation.clone(), bytes(total), free, fitting, layout.memory.stage.to_string()]
            .into_iter()
            .chain(classes)
            .collect()
    };
    let table = table(&header, &layouts.iter().map(row).collect::<Vec<_>>());
    table.spare(&["stage", "buffers", "framework"])
}
