//! The text of a plan.

use quadrille_evidence::Oversized;
use quadrille_plan::native::{RefusedBy, Reserve};
use quadrille_run::units::{decimal, seconds};
use quadrille_spec::counted;

use super::advised::advised_text;
use super::assumed::assumed_text;
use super::band::band_text;
use super::tables::{breakdown, ranking, ranking_with};
use super::{PlanReport, PricedLayout, budget};
use crate::Text;

/// All of a plan, for people.
pub fn text(report: &PlanReport) -> Text {
    let mut text = Text::from(stopped(report)) + report.search.headline.text() + looked_at(report);
    text += budget::reckoned(report) + "\n";
    text += tables(report);
    if let Some(explanation) = &report.explanation {
        text += explanation.text(&report.advised.plan, report.search.capacity);
        text += refused(report);
    }
    text
}

/// Part of runs into which the recommended layout fits, a warning where it is small, and published runs of the device that ran
/// though they are called too large.
pub(super) fn risk_text(report: &PlanReport) -> String {
    let PlanReport { advised, search, .. } = report;
    let Some(fitting) = advised.plan.fitting_runs.filter(|_| search.memory_varies) else { return String::new() };
    let part = percent_below(fitting);
    let safe = 100.0 * Reserve::SAFE_RUNS;
    let text = match (fitting >= Reserve::SAFE_RUNS, search.safe_capacity) {
        (true, _) => format!("it fits in {part} of runs, by what they took beside their tensors\n"),
        (false, Some(_)) => format!(
            "warning: {part} of runs would fit, by what they took beside their tensors: a risk, for no layout was found\n\
             that {safe:.0}% of them fit into; more devices, or other constraints, may have one\n"
        ),
        (false, None) => format!(
            "warning: {part} of runs would fit, by what they took beside their tensors; a reserve of memory for more of\n\
             them, e.g. `runs:97%`, finds layouts that leave it\n"
        ),
    };
    text + &oversized_text(report.called_too_large.as_ref())
}

/// Parts of a layout that the framework has in another way or lacks, a line each.
pub(super) fn differences_text(framework: &str, differences: &[String]) -> String {
    differences.iter().map(|part| format!("note: not the same in {framework}: {part}\n")).collect()
}

/// A part in percent, rounded down: 95% are said of no fewer.
pub(super) fn percent_below(part: f64) -> String {
    format!("{:.0}%", (100.0 * part).floor())
}

/// Note on published runs that ran though they are called too large.
pub(super) fn oversized_text(oversized: Option<&Oversized>) -> String {
    let Some(Oversized { device, framework, ran, called_too_large }) = oversized else {
        return String::new();
    };
    format!(
        "note: {called_too_large} of {ran} published runs on {device} by {framework} that ran are called too large\n"
    )
}

/// Warning, before all else, if a limit ended the search.
fn stopped(report: &PlanReport) -> String {
    if !report.stopped {
        return String::new();
    }
    let mut text = String::from(
        "SEARCH CUT by `search.limit` before everything was looked at: the best of what was, and there may be faster layouts;\n\
         the same limit gives the same layouts on every machine\n",
    );
    if report.counts.priced < report.plans.len() as u64 {
        text += "the usual layouts, which are priced before all others, are not counted here\n";
    }
    if report.too_long > 0 {
        let layouts = counted(report.too_long, "layout");
        text += &format!(
            "left out: {layouts} of so many passes or blocks that a price takes seconds; without a limit they have one\n"
        );
    }
    let Some(incomplete) = &report.stopped_gpus else { return text };
    let numbers: Vec<_> = incomplete.iter().map(ToString::to_string).collect();
    format!("{text}numbers of GPUs that were not searched completely: {}\n", numbers.join(", "))
}

/// Tables of the layouts: the front, if it was asked for, then the recommended and the fastest, the parts of their steps and
/// their memory.
fn tables(report: &PlanReport) -> Text {
    let mut text = Text::new();
    if let Some(front) = &report.pareto {
        let shown = shown_front(front, report.search.top);
        text +=
            Text::heading(&format!("front over devices, time and memory: {} of {} layouts", shown.len(), front.len()));
        text += ranking(&shown, report.gpus);
    }
    let Some(fastest) = report.plans.first() else { return text };
    // The recommended layout stands before the others, with a mark.
    let is_fastest = report.advised.index == Some(0);
    let marked = (!is_fastest).then_some(&report.advised.plan);
    let others = report.plans.iter().enumerate().filter(|(at, _)| is_fastest || Some(*at) != report.advised.index);
    let layouts: Vec<_> = marked.into_iter().chain(others.map(|(_, layout)| layout)).collect();
    let mark = marked.map(|_| 0);
    let is_best_of_variants = fastest.variants.is_some();
    if report.pareto.is_some() {
        let of = if is_best_of_variants { ", the best variant of each grid" } else { ", variants too" };
        text += "\n";
        text += Text::heading(&format!("fastest on {} devices{of}", report.gpus));
    }
    text += advised_text(report);
    text += ranking_with(&layouts, report.gpus, mark, is_best_of_variants);
    text += band_text(&report.advised.plan);
    text += risk_text(report);
    text += differences_text(&report.framework, &report.framework_differences);
    text += assumed_text(report.assumed.as_ref());
    text + breakdown(&layouts, report.search.capacity, mark)
}

/// At most `most` layouts of every number of devices, the fastest.
fn shown_front(front: &[PricedLayout], most: usize) -> Vec<&PricedLayout> {
    let mut shown: Vec<&PricedLayout> = Vec::new();
    for layout in front {
        if shown.iter().filter(|other| other.devices == layout.devices).count() < most {
            shown.push(layout);
        }
    }
    shown
}

/// Numbers of grids and configurations that the search looked at, on one line.
fn looked_at(report: &PlanReport) -> String {
    let counts = &report.counts;
    format!(
        "{}{} of {} grids and {} of {} configurations are legal: {} priced, {} of them fit; {} too large and {} too slow by \
         bounds ({} of searching)\n",
        if report.stopped { "so far " } else { "" },
        counts.legal_grids,
        counts.grids,
        short_count(counts.legal),
        short_count(counts.configurations),
        short_count(counts.priced),
        short_count(counts.fitting),
        short_count(counts.too_large),
        short_count(counts.too_slow),
        seconds(report.seconds),
    )
}

/// A number of layouts, of many with three digits.
pub(super) fn short_count(number: u64) -> String {
    match number {
        0..100_000 => number.to_string(),
        _ => decimal(number as f64, "").trim_end().to_owned(),
    }
}

/// Refused grids and configurations by rule.
fn refused(report: &PlanReport) -> Text {
    if report.refusals.is_empty() {
        return "\nno grid or configuration broke a rule\n".into();
    }
    let lines = report.refusals.iter().map(|RefusedBy { rule, grids, configurations, example }| {
        let amounts = [(*grids, "grid"), (*configurations, "configuration")];
        let named = |(amount, what): &(u64, &str)| format!("{amount} {what}{}", if *amount == 1 { "" } else { "s" });
        let amounts = amounts.iter().filter(|(amount, _)| *amount > 0).map(named);
        let amounts = amounts.collect::<Vec<_>>().join(" and ");
        format!("  {rule}: {amounts}, e.g. {example}\n")
    });
    Text::from("\n") + Text::heading("refused, by rule") + lines.collect::<String>()
}
