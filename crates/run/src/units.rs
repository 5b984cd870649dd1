//! Numbers with units, for people.

/// `1.50 GiB`.
pub fn bytes(bytes: u64) -> String {
    scaled(bytes as f64, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB"])
}

/// `12.3 TFLOP`, `7.50 G`: a decimal prefix before a unit.
pub fn decimal(value: f64, unit: &str) -> String {
    scaled(value, 1e3, &["", "K", "M", "G", "T", "P", "E"]) + unit
}

/// `1.234 s`, `12.30 ms`.
pub fn seconds(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        v if v >= 1.0 || v == 0.0 => (value, "s"),
        v if v >= 1e-3 => (value * 1e3, "ms"),
        _ => (value * 1e6, "us"),
    };
    if scaled.abs() >= MANY {
        return format!("{scaled:.2e} {unit}");
    }
    let digits = match scaled.abs() {
        v if v < 10.0 => 3,
        v if v < 100.0 => 2,
        _ => 1,
    };
    format!("{scaled:.digits$} {unit}")
}

/// The same, of an hour and more in hours: `2.19 h`.
pub fn long(value: f64) -> String {
    if (HOUR..MANY * HOUR).contains(&value) { format!("{:.2} h", value / HOUR) } else { seconds(value) }
}

/// Seconds of an hour.
const HOUR: f64 = 3600.0;

/// `12.3%`: of a part of a whole.
pub fn percent(share: f64) -> String {
    format!("{:.1}%", 100.0 * share)
}

/// The shortest decimal that reads as the same number.
pub fn shortest(number: f64) -> String {
    format!("{number:?}")
}

/// From here on the digits before a point are too many to be read.
const MANY: f64 = 1e9;

/// Three significant digits and a unit.
fn scaled(mut value: f64, base: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while value >= base && unit + 1 < units.len() {
        value /= base;
        unit += 1;
    }
    if value.abs() >= MANY {
        return format!("{value:.2e} {}", units[unit]);
    }
    let digits = match value {
        _ if unit == 0 && value.fract() == 0.0 => 0,
        v if v < 10.0 => 2,
        v if v < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_few_digits_and_a_unit() {
        assert_eq!([decimal(1e300, "B/s"), seconds(1e300)], ["1.00e282 EB/s", "1.00e300 s"]);
        assert_eq!([bytes(7), bytes(1536), bytes(3 << 30)], ["7 B", "1.50 KiB", "3.00 GiB"]);
        assert_eq!([decimal(12.34e12, "FLOP"), decimal(7.5e9, "")], ["12.3 TFLOP", "7.50 G"]);
        assert_eq!([0.0, 1.2344, 12.3e-3, 4e-7].map(seconds), ["0.000 s", "1.234 s", "12.30 ms", "0.400 us"]);
        assert_eq!([3599.0, 7878.7].map(long), ["3599.0 s", "2.19 h"]);
        assert_eq!((percent(0.125), shortest(0.1)), ("12.5%".to_owned(), "0.1".to_owned()));
    }
}
