//! What was measured, as text and as comma-separated values.

use quadrille_measure::collectives::Measured;
use quadrille_run::units::{bytes, percent, shortest};

use crate::{Text, table};

/// A table; predictions where there are some.
pub fn text(measured: &[Measured]) -> Text {
    let predicted = measured.iter().any(|row| row.predicted_seconds.is_some());
    let mut header = vec![
        "collective",
        "ranks",
        "size",
        "algorithm",
        "us",
        "spread",
        "algorithm GB/s",
        "bus GB/s",
        "of native",
        "copy GB/s",
        "bus / copy",
    ];
    if predicted {
        header.extend(["predicted us", "error"]);
    }
    let microseconds = |seconds: f64| format!("{:.1}", 1e6 * seconds);
    let row = |row: &Measured| {
        let mut cells = vec![
            row.kind.name().to_owned(),
            row.ranks.to_string(),
            bytes(row.bytes),
            row.algorithm.to_string(),
            microseconds(row.seconds),
            percent(row.spread),
            rate(row.algorithm_gb_s),
            rate(row.bus_gb_s),
            format!("{:.2}", row.ratio_to_native),
            rate(row.copy_gb_s),
            percent(row.ratio_to_copy),
        ];
        if let (Some(seconds), Some(error)) = (row.predicted_seconds, row.predicted_error) {
            cells.extend([microseconds(seconds), format!("{:+.0}%", 100.0 * error)]);
        }
        cells
    };
    let legend = "\nof native: the time of the native collective over this one's; above 1, this one is faster\n";
    let table = table(&header, &measured.iter().map(row).collect::<Vec<_>>());
    Text::from(table.spare(&["copy GB/s", "bus / copy", "algorithm GB/s"])) + legend
}

/// Small messages move hundredths of a GB/s.
fn rate(gb_s: f64) -> String {
    if gb_s < 1.0 { format!("{gb_s:.3}") } else { format!("{gb_s:.1}") }
}

/// For comma-separated values: a header and a row for every collective, number of ranks, algorithm and size.
pub fn rows(measured: &[Measured]) -> impl Iterator<Item = Vec<String>> {
    const HEADER: [&str; 15] = [
        "collective",
        "ranks",
        "per_node",
        "algorithm",
        "bytes",
        "runs",
        "seconds",
        "spread",
        "algorithm_gb_s",
        "bus_gb_s",
        "ratio_to_native",
        "copy_gb_s",
        "ratio_to_copy",
        "predicted_seconds",
        "predicted_error",
    ];
    let row = |row: &Measured| {
        let optional = |number: Option<f64>| number.map_or_else(String::new, shortest);
        vec![
            row.kind.name().to_owned(),
            row.ranks.to_string(),
            row.per_node.to_string(),
            row.algorithm.to_string(),
            row.bytes.to_string(),
            row.runs.to_string(),
            shortest(row.seconds),
            shortest(row.spread),
            shortest(row.algorithm_gb_s),
            shortest(row.bus_gb_s),
            shortest(row.ratio_to_native),
            shortest(row.copy_gb_s),
            shortest(row.ratio_to_copy),
            optional(row.predicted_seconds),
            optional(row.predicted_error),
        ]
    };
    std::iter::once(HEADER.map(str::to_owned).to_vec()).chain(measured.iter().map(row))
}
