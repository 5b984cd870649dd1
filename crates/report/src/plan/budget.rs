//! The whole training: its days, what it costs, and what failures leave of its time.

use quadrille_plan::goodput::{CHECKPOINT_BANDWIDTH, MTBF_HOURS, RESTART_SECONDS};
use quadrille_plan::native::said_days;
use quadrille_run::units::{decimal, long, percent, seconds};

use super::{FailureAssumptions, PlanReport, PricedLayout};

/// Columns of what is known of every layout's training.
pub(super) fn header(layouts: &[&PricedLayout]) -> Vec<&'static str> {
    let any = |is_known: fn(&PricedLayout) -> bool| layouts.iter().any(|layout| is_known(layout));
    let mut header = Vec::new();
    header
        .extend(any(|layout| layout.goodput.is_some()).then_some(["useful", "checkpoint every"]).into_iter().flatten());
    header.extend(any(|layout| layout.days.is_some()).then_some(["days", "device-hours"]).into_iter().flatten());
    header.extend(any(|layout| layout.cost.is_some()).then_some("cost"));
    header
}

/// Cells of these columns.
pub(super) fn row(layout: &PricedLayout) -> Vec<String> {
    let mut row = Vec::new();
    row.extend(layout.goodput.iter().flat_map(|goodput| {
        let steps = if goodput.interval_steps == 1 { "step" } else { "steps" };
        let every = format!("{} {steps} ({})", goodput.interval_steps, long(goodput.interval_s));
        [percent(goodput.share), every]
    }));
    row.extend(layout.days.map(|days| match days {
        ..MANY => format!("{days:.2}"),
        f64::INFINITY => "for ever".to_owned(),
        _ => format!("{days:.3e}"),
    }));
    row.extend(layout.device_hours.map(|hours| finite(hours, |hours| decimal(hours, "").trim_end().to_owned())));
    let currency = layout.currency.as_deref().unwrap_or_default();
    row.extend(layout.cost.map(|cost| finite(cost, |cost| format!("{} {currency}", grouped(cost)))));
    row
}

/// A number as it is told, if it is one: what is too large for that has none.
fn finite(number: f64, told: impl Fn(f64) -> String) -> String {
    if number.is_finite() { told(number) } else { "-".to_owned() }
}

/// Assumptions behind days, on lines of their own.
pub(super) fn reckoned(report: &PlanReport) -> String {
    let mut text = String::new();
    if let Some(days) = report.within_days {
        text += &format!("within {}", said_days(days));
        if let Some(fewest) = report.fewest_gpus {
            text += &format!(": {fewest} devices are the fewest that do, of those that were searched");
        }
        text += "\n";
    }
    text + &report.failures.as_ref().map_or_else(String::new, failures_text)
}

fn failures_text(failures: &FailureAssumptions) -> String {
    let origin = |known: bool, origin: &'static str| if known { origin } else { "as said" };
    let mtbf = origin(failures.mtbf_hours == MTBF_HOURS, "measured elsewhere: Llama 3 405B, 16,384 H100");
    let restart = origin(failures.restart_s == RESTART_SECONDS, "assumed");
    let by_bandwidth = |bandwidth: f64| {
        let origin = origin(bandwidth == CHECKPOINT_BANDWIDTH, "measured elsewhere, likewise");
        format!("a rank's states at {} ({origin})", decimal(bandwidth, "B/s"))
    };
    let checkpoint = failures.checkpoint_s.map(|time| format!("{}, as said", seconds(time)));
    let checkpoint = checkpoint.or(failures.checkpoint_bandwidth.map(by_bandwidth)).unwrap_or_default();
    format!(
        "failures: one in {} device-hours\n\
         ({mtbf});\n\
         a checkpoint takes {checkpoint},\n\
         a restart {} ({restart}); days, hours and cost are expected ones\n",
        grouped(failures.mtbf_hours),
        seconds(failures.restart_s),
    )
}

/// From here on numbers are told by their exponents.
const MANY: f64 = 1e15;

/// `12,345`, fewer digits of what is small, an exponent of what nobody counts.
fn grouped(number: f64) -> String {
    if number != 0.0 && number.abs() < 0.01 {
        return format!("{number:.2e}");
    }
    if number.abs() < 100.0 {
        return format!("{number:.2}");
    }
    if number.abs() >= MANY {
        return format!("{number:.3e}");
    }
    let digits = format!("{number:.0}");
    let (sign, digits) = digits.split_at(digits.len() - digits.trim_start_matches('-').len());
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) && digit.is_ascii_digit() {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{sign}{grouped}")
}

#[cfg(test)]
mod tests {
    use quadrille_plan::goodput::{CheckpointTime, Failures};

    use super::*;

    #[test]
    fn digits_come_in_groups_of_three() {
        let of = [0.0, 1.234, 99.5, 123.4, 1234.5, 12_345.0, 1_234_567.0, -4321.0, 1e300, 1e-300].map(grouped);
        let told = ["0.00", "1.23", "99.50", "123", "1,234", "12,345", "1,234,567", "-4,321", "1.000e300", "1.00e-300"];
        assert_eq!(of, told);
        assert_eq!([f64::INFINITY, 1e3].map(|number| finite(number, grouped)), ["-", "1,000"]);
    }

    #[test]
    fn numbers_that_nobody_said_have_an_origin() {
        let usual = failures_text(&FailureAssumptions::from(&Failures::MEASURED_ELSEWHERE));
        for words in [
            "one in 50,677 device-hours\n(measured elsewhere: Llama 3",
            "122 MB/s (measured elsewhere",
            "600.0 s (assumed)",
        ] {
            assert!(usual.contains(words), "{words}: {usual}");
        }
        let checkpoint = CheckpointTime::Seconds(30.0);
        let said = Failures { mtbf_hours: 1e4, checkpoint, restart_seconds: 60.0 };
        let said = failures_text(&FailureAssumptions::from(&said));
        assert!(said.contains("10,000 device-hours\n(as said)") && !said.contains("elsewhere"), "{said}");
        assert!(usual.lines().all(|line| line.chars().count() <= 80), "{usual}");
    }
}
