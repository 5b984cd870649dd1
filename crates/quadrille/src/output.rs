//! Tables, units and JSON.

use serde::Serialize;

use crate::failure::Failure;

/// Prints a JSON document to standard output.
pub fn print_json(document: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(document).map_err(|error| Failure::Run(error.into()))?;
    print_text(&format!("{text}\n"))
}

/// Prints text to standard output; a closed pipe ends the output, not the program.
pub fn print_text(text: &str) -> Result<(), Failure> {
    use std::io::Write;
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::run(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// `1.50 GiB`.
pub fn bytes(bytes: u64) -> String {
    scaled(bytes as f64, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB"])
}

/// `12.3 TFLOP`, `7.50 G`: a decimal prefix before a unit.
pub fn decimal(value: f64, unit: &str) -> String {
    scaled(value, 1e3, &["", "K", "M", "G", "T", "P", "E"]) + unit
}

/// Three significant digits and a unit.
fn scaled(mut value: f64, base: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while value >= base && unit + 1 < units.len() {
        value /= base;
        unit += 1;
    }
    let digits = match value {
        _ if unit == 0 && value.fract() == 0.0 => 0,
        v if v < 10.0 => 2,
        v if v < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {}", units[unit])
}

/// Rows under a header, columns as wide as their widest cell; the first column to the left, others to the right.
pub fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let cell = |row: &Vec<String>, at: usize| row.get(at).map_or(0, |cell| cell.chars().count());
    let widths: Vec<usize> = (0..header.len())
        .map(|at| rows.iter().map(|row| cell(row, at)).max().unwrap_or(0).max(header[at].chars().count()))
        .collect();
    let line = |cells: Vec<&str>| {
        let padded = cells.iter().zip(&widths).enumerate().map(|(at, (cell, width))| match at {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    let body = rows.iter().map(|row| line(row.iter().map(String::as_str).collect()));
    std::iter::once(line(header.to_vec())).chain(body).collect()
}
