//! The whole training: its days, what it costs, and what failures leave of its time.

use quadrille_plan::goodput::{CHECKPOINT_BANDWIDTH, CheckpointTime, Failures, MTBF_HOURS, RESTART_SECONDS};
use quadrille_plan::native::{Answer, Derived, Question, said_days};
use quadrille_run::units::{decimal, long, percent, seconds};
use serde_json::{Value, json};

/// What is known of every layout's training, the names of columns.
pub(super) fn header(question: &Question) -> Vec<&'static str> {
    let mut header = Vec::new();
    header.extend(question.budget.failures.map(|_| ["useful", "checkpoint every"]).into_iter().flatten());
    header.extend(question.tokens.map(|_| ["days", "device-hours"]).into_iter().flatten());
    header.extend(question.tokens.and(question.price_per_hour).map(|_| "cost"));
    header
}

/// The same of one.
pub(super) fn row(question: &Question, derived: &Derived) -> Vec<String> {
    let mut row = Vec::new();
    row.extend(derived.goodput.iter().flat_map(|goodput| {
        let steps = if goodput.interval_steps == 1 { "step" } else { "steps" };
        let every = format!("{} {steps} ({})", goodput.interval_steps, long(goodput.interval_seconds));
        [percent(goodput.share), every]
    }));
    row.extend(derived.days.map(|days| match days {
        ..MANY => format!("{days:.2}"),
        f64::INFINITY => "for ever".to_owned(),
        _ => format!("{days:.3e}"),
    }));
    row.extend(derived.device_hours.map(|hours| finite(hours, |hours| decimal(hours, "").trim_end().to_owned())));
    let currency = question.budget.currency;
    row.extend(derived.cost.map(|cost| finite(cost, |cost| format!("{} {currency}", grouped(cost)))));
    row
}

/// A number as it is told, if it is one: what is too large for that has none.
fn finite(number: f64, told: impl Fn(f64) -> String) -> String {
    if number.is_finite() { told(number) } else { "-".to_owned() }
}

/// What days are reckoned with, on lines of their own.
pub(super) fn reckoned(answer: &Answer) -> String {
    let Answer { question, search, front, .. } = answer;
    let mut text = String::new();
    if let Some(deadline) = &search.deadline {
        text += &format!("within {}", said_days(deadline.days()));
        if let Some(fewest) = front.iter().map(|ranked| ranked.candidate.devices()).min() {
            text += &format!(": {fewest} devices are the fewest that do, of those that were searched");
        }
        text += "\n";
    }
    text + &question.budget.failures.as_ref().map_or_else(String::new, failures_text)
}

fn failures_text(failures: &Failures) -> String {
    let origin = |known: bool, origin: &'static str| if known { origin } else { "as said" };
    let mtbf = origin(failures.mtbf_hours == MTBF_HOURS, "measured elsewhere: Llama 3 405B, 16,384 H100");
    let restart = origin(failures.restart_seconds == RESTART_SECONDS, "assumed");
    let checkpoint = match failures.checkpoint {
        CheckpointTime::Seconds(time) => format!("{}, as said", seconds(time)),
        CheckpointTime::Bandwidth(bandwidth) => {
            let origin = origin(bandwidth == CHECKPOINT_BANDWIDTH, "measured elsewhere, likewise");
            format!("a rank's states at {} ({origin})", decimal(bandwidth, "B/s"))
        }
    };
    format!(
        "failures: one in {} device-hours\n\
         ({mtbf});\n\
         a checkpoint takes {checkpoint},\n\
         a restart {} ({restart}); days, hours and cost are expected ones\n",
        grouped(failures.mtbf_hours),
        seconds(failures.restart_seconds),
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

/// Fields of a layout's entry.
pub(super) fn fields(question: &Question, derived: &Derived) -> Vec<(&'static str, Value)> {
    let mut fields = Vec::new();
    fields.extend(derived.goodput.map(|goodput| {
        let value = json!({
            "share": goodput.share,
            "checkpoint_s": goodput.checkpoint_seconds,
            "interval_steps": goodput.interval_steps,
            "interval_s": goodput.interval_seconds,
            "failures_per_day": goodput.failures_per_day,
        });
        ("goodput", value)
    }));
    fields.extend(derived.days.map(|days| ("days", json!(days))));
    fields.extend(derived.device_hours.map(|hours| ("device_hours", json!(hours))));
    if let Some(cost) = derived.cost {
        fields.push(("cost", json!(cost)));
        fields.push(("currency", json!(question.budget.currency.to_string())));
    }
    fields
}

/// Fields of the whole document.
pub(super) fn document(answer: &Answer) -> Vec<(&'static str, Value)> {
    let Answer { question, search, front, .. } = answer;
    let mut fields = Vec::new();
    fields.extend(question.budget.failures.map(|failures| {
        let (bandwidth, seconds) = match failures.checkpoint {
            CheckpointTime::Bandwidth(bandwidth) => (Some(bandwidth), None),
            CheckpointTime::Seconds(seconds) => (None, Some(seconds)),
        };
        let value = json!({
            "mtbf_hours": failures.mtbf_hours,
            "checkpoint_bandwidth": bandwidth,
            "checkpoint_s": seconds,
            "restart_s": failures.restart_seconds,
        });
        ("failures", value)
    }));
    if let Some(deadline) = &search.deadline {
        fields.push(("within_days", json!(deadline.days())));
        let fewest = front.iter().map(|ranked| ranked.candidate.devices()).min();
        fields.extend(fewest.map(|devices| ("fewest_gpus", json!(devices))));
    }
    fields
}

#[cfg(test)]
mod tests {
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
        let usual = failures_text(&Failures::MEASURED_ELSEWHERE);
        for words in [
            "one in 50,677 device-hours\n(measured elsewhere: Llama 3",
            "122 MB/s (measured elsewhere",
            "600.0 s (assumed)",
        ] {
            assert!(usual.contains(words), "{words}: {usual}");
        }
        let checkpoint = CheckpointTime::Seconds(30.0);
        let said = failures_text(&Failures { mtbf_hours: 1e4, checkpoint, restart_seconds: 60.0 });
        assert!(said.contains("10,000 device-hours\n(as said)") && !said.contains("elsewhere"), "{said}");
        assert!(usual.lines().all(|line| line.chars().count() <= 80), "{usual}");
    }
}
