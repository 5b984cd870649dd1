//! The recommended layout, and what the fastest gains over it, in words.

use quadrille_plan::native::Reserve;
use quadrille_run::units::percent;

use super::PlanReport;

/// Line on the recommended layout; empty where the fastest was asked for.
pub(super) fn advised_text(report: &PlanReport) -> String {
    let PlanReport { plans, advised, search, .. } = report;
    let is_safe = |bytes: u64| search.safe_capacity.is_none_or(|most| bytes <= most);
    let is_fastest_safe = plans.first().is_none_or(|fastest| is_safe(fastest.memory_bytes));
    if !is_fastest_safe && is_safe(advised.plan.memory_bytes) {
        return safe_text(report);
    }
    let Some(tolerance) = search.tolerance.map(percent) else { return String::new() };
    match advised.index {
        Some(0) if report.stopped => {
            format!("advised: the fastest so far; nothing simpler that was looked at is within {tolerance} of it\n")
        }
        Some(0) => format!("advised: the fastest, since nothing simpler is within {tolerance} of it\n"),
        _ => format!(
            "advised (*): the simplest within {tolerance} of the fastest, which predictions do not tell apart;\n\
             the fastest takes {} less\n",
            percent(advised.gain_of_fastest)
        ),
    }
}

/// The line where too few runs of the fastest fit.
fn safe_text(report: &PlanReport) -> String {
    let within = report.search.tolerance.map(|tolerance| format!("simplest within {} of the ", percent(tolerance)));
    format!(
        "advised (*): the {}fastest of those that {:.0}% of runs fit into; the fastest of all takes {} less\n",
        within.unwrap_or_default(),
        100.0 * Reserve::SAFE_RUNS,
        percent(report.advised.gain_of_fastest)
    )
}
