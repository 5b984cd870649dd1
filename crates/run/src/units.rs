//! Numbers with units, for people.

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
