//! What was found, for people.

use quadrille_cost::native::Framework;
use quadrille_evidence::Oversized;
use quadrille_plan::native::explain::{Part, ROUNDING};
use quadrille_plan::native::{Answer, Derived, Question, Ranked, RefusedBy, Reserve, Setting};
use quadrille_run::units::{bytes, decimal, seconds};
use quadrille_spec::{ElementType, Imbalance, Layout, SpecError, counted};

use super::advised::advised_text;
use super::assumed::assumed_text;
use super::band::band_text;
use super::budget;
use super::rates::utilization;
use super::{explanation_text, memory};
use crate::candidate::{notation, others, recompute, schedule, share, sizes};
use crate::{Table, Text, table};

/// All of it.
///
/// # Errors
/// A reserve of more than a device has.
pub fn text(answer: &Answer) -> Result<Text, SpecError> {
    let setting = &answer.search.setting;
    let mut text = Text::from(stopped(answer)) + headline(answer.question, setting)? + looked_at(answer);
    text += budget::reckoned(answer) + "\n";
    text += tables(answer);
    if let Some(explanation) = &answer.explanation {
        text += explanation_text(explanation, setting);
        text += refused(answer);
    }
    Ok(text)
}

/// The part of runs that fit of the recommended layout, as a warning where many do not, and published runs of the device that ran
/// though they are called too large.
pub(super) fn risk_text(question: &Question, ranked: &Ranked) -> String {
    let framework = question.framework.on_devices(ranked.candidate.devices());
    let device = question.cluster.device_memory.filter(|_| framework.reserved_deviation > 0);
    let Some(device) = device else { return String::new() };
    let fitting = framework.fitting_runs(&ranked.price.memory, device);
    let part = percent_below(fitting);
    let safe = 100.0 * Reserve::SAFE_RUNS;
    let text = match (fitting >= Reserve::SAFE_RUNS, question.safe_capacity()) {
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
    text + &oversized_text(question)
}

/// As [`differences_text`], of a layout that a search has found.
pub(super) fn found_differences_text(question: &Question, ranked: &Ranked) -> String {
    question.layout(ranked).map_or_else(|_| String::new(), |layout| differences_text(question, &layout))
}

/// Parts of a layout that the framework has in another way or lacks, a line each.
pub(super) fn differences_text(question: &Question, layout: &Layout) -> String {
    let differences = question.differences(layout);
    differences.iter().map(|part| format!("note: not the same in {}: {part}\n", question.framework.name)).collect()
}

/// A part in percent, rounded down: 95% are said of no fewer.
fn percent_below(part: f64) -> String {
    format!("{:.0}%", (100.0 * part).floor())
}

/// Published runs of the question's device that ran, and how many of them are called too large.
pub(super) fn oversized(question: &Question) -> Option<&'static Oversized> {
    let device = question.cluster.device.as_ref()?;
    Oversized::on(&device.name, &question.framework)
}

/// The same for people.
pub(super) fn oversized_text(question: &Question) -> String {
    let Some(Oversized { device, framework, ran, called_too_large }) = oversized(question) else {
        return String::new();
    };
    format!(
        "note: {called_too_large} of {ran} published runs on {device} by {framework} that ran are called too large\n"
    )
}

/// A warning, before all else, if not everything was looked at.
fn stopped(answer: &Answer) -> String {
    if !answer.found.stopped {
        return String::new();
    }
    let mut text = String::from(
        "SEARCH CUT by `search.limit` before everything was looked at: the best of what was, and there may be faster layouts;\n\
         the same limit gives the same layouts on every machine\n",
    );
    if answer.found.counts.priced < answer.found.ranked.len() as u64 {
        text += "the usual layouts, which are priced before all others, are not counted here\n";
    }
    if answer.found.too_long > 0 {
        let layouts = counted(answer.found.too_long, "layout");
        text += &format!(
            "left out: {layouts} of so many passes or blocks that a price takes seconds; without a limit they have one\n"
        );
    }
    if !answer.search.front {
        return text;
    }
    let numbers: Vec<_> = answer.incomplete.iter().map(ToString::to_string).collect();
    format!("{text}numbers of GPUs that were not searched completely: {}\n", numbers.join(", "))
}

/// The tables of what was found: the front, if it was asked for, then the advised and the fastest, the parts of their steps and
/// their memory.
pub fn tables(answer: &Answer) -> Text {
    let Answer { question, search, found, .. } = answer;
    let mut text = Text::new();
    if search.front {
        let shown = shown_front(answer);
        text += Text::heading(&format!(
            "front over devices, time and memory: {} of {} layouts",
            shown.len(),
            answer.front.len()
        ));
        text += ranking(question, &search.setting, &shown);
    }
    if !found.ranked.is_empty() {
        let marked = Some(&answer.advised).filter(|advised| **advised != answer.best);
        let others = found.ranked.iter().filter(|ranked| Some(*ranked) != marked);
        let ranked: Vec<_> = marked.into_iter().chain(others).collect();
        let of = if search.distinct { ", the best variant of each grid" } else { ", variants too" };
        if search.front {
            text += "\n";
            text += Text::heading(&format!("fastest on {} devices{of}", question.devices));
        }
        text += advised_text(answer);
        let variants = ranked.iter().map(|ranked| variants(answer, ranked)).collect::<Vec<_>>();
        text += ranking_with(question, &search.setting, &ranked, marked, answer.variants.as_ref().map(|_| variants));
        text += band_text(question, &ranked[0].candidate);
        text += &risk_text(question, ranked[0]);
        text += &found_differences_text(question, ranked[0]);
        text += assumed_text(&answer.sensitivities, answer.advised.price.seconds);
        text += tables_of(&search.setting, &ranked, marked);
    }
    text
}

/// Number of variants of a layout; nothing of one without a variant among the fastest.
fn variants(answer: &Answer, ranked: &Ranked) -> String {
    answer.variants_of(ranked).map_or("-".to_owned(), count)
}

/// The parts of the layouts' steps, and their memory.
pub fn tables_of(setting: &Setting, layouts: &[&Ranked], marked: Option<&Ranked>) -> Text {
    let mark = place(layouts, marked);
    Text::from("\n")
        + Text::heading("parts of a step")
        + parts_table(layouts).marked(mark)
        + "\n"
        + Text::heading("memory of the rank that needs most")
        + memory_table(setting, layouts).marked(mark)
}

/// Where a layout is among others.
fn place(layouts: &[&Ranked], marked: Option<&Ranked>) -> Option<usize> {
    layouts.iter().position(|ranked| Some(*ranked) == marked)
}

/// At most as many layouts of every number of devices as are wanted, the fastest.
fn shown_front<'a>(answer: &'a Answer) -> Vec<&'a Ranked> {
    let of_devices = |ranked: &&Ranked| ranked.candidate.devices();
    let mut shown: Vec<&Ranked> = Vec::new();
    for ranked in &answer.front {
        let devices = ranked.candidate.devices();
        if shown.iter().filter(|other| of_devices(other) == devices).count() < answer.search.top {
            shown.push(ranked);
        }
    }
    shown
}

/// What was looked at, on one line.
pub fn looked_at(answer: &Answer) -> String {
    let counts = &answer.found.counts;
    format!(
        "{}{} of {} grids and {} of {} configurations are legal: {} priced, {} of them fit; {} too large and {} too slow by \
         bounds ({} of searching)\n",
        if answer.found.stopped { "so far " } else { "" },
        counts.legal_grids,
        counts.grids,
        count(counts.legal),
        count(counts.enumerated),
        count(counts.priced),
        count(counts.fitting),
        count(counts.too_large),
        count(counts.too_slow),
        seconds(answer.seconds),
    )
}

/// A number of layouts, of many with three digits.
fn count(number: u64) -> String {
    match number {
        0..100_000 => number.to_string(),
        _ => decimal(number as f64, "").trim_end().to_owned(),
    }
}

/// What each rule refused.
pub fn refused(answer: &Answer) -> Text {
    let refusals = answer.refusals();
    if refusals.is_empty() {
        return "\nno grid or configuration broke a rule\n".into();
    }
    let lines = refusals.iter().map(|RefusedBy { rule, grids, configurations, example }| {
        let amounts = [(*grids, "grid"), (*configurations, "configuration")];
        let named = |(amount, what): &(u64, &str)| format!("{amount} {what}{}", if *amount == 1 { "" } else { "s" });
        let amounts = amounts.iter().filter(|(amount, _)| *amount > 0).map(named);
        let amounts = amounts.collect::<Vec<_>>().join(" and ");
        format!("  {rule}: {amounts}, e.g. {example}\n")
    });
    Text::from("\n") + Text::heading("refused, by rule") + lines.collect::<String>()
}

/// What is trained where, and what TFLOP/s, MFU and HFU are.
///
/// # Errors
/// A reserve of more than a device has.
pub fn headline(question: &Question, setting: &Setting) -> Result<String, SpecError> {
    let device = question.cluster.device.as_ref().map_or("devices", |device| device.name.as_str());
    let reserved = match (question.cluster.device_memory, question.reserved()?) {
        (None, _) => String::new(),
        (Some(memory), 0) => format!(", with {} of memory each", bytes(memory)),
        (Some(memory), reserved) => {
            let kept = format!(", {} of the {} of each kept free", bytes(reserved), bytes(memory));
            match question.reserve {
                Reserve::Runs(part) => kept + &format!(" so that {}% of runs fit", (1000.0 * part).round() / 10.0),
                _ => kept,
            }
        }
    };
    let used = match (setting.per_node, question.cluster.node_devices()) {
        (Some(used), Some(node)) if question.devices > used => format!(" ({used} of the {node} of each node)"),
        _ => String::new(),
    };
    let pruned = |sparsity| format!(", {sparsity} of its blocks' matrices pruned, as if every tile kept as many");
    let pruned = setting.framework.sparsity.map(pruned);
    let fullest = match &question.imbalance {
        Imbalance::Times(1.0) => String::new(),
        Imbalance::Times(times) => format!(", the rank priced that has {times} times the mean of the rows of experts"),
        Imbalance::Measured(_) => ", the rank priced that had most of the rows of experts in a run".to_owned(),
    };
    Ok(format!(
        "{} ({} parameters{}) on {} {device} of {}{used}, {} sequences of {} tokens a step, by {}{reserved}{fullest}\n",
        question.model.name,
        decimal(question.model.parameters() as f64, "").trim_end(),
        pruned.unwrap_or_default(),
        question.devices,
        question.cluster.name,
        question.global_batch,
        question.seq_len,
        trainer(&setting.framework, device),
    ) + &utilization(question, setting))
}

/// What trains, and where its values are not of its usual type, why.
fn trainer(framework: &Framework, device: &str) -> String {
    if framework.is_own() || framework.dtype == ElementType::Bf16 {
        framework.name.to_owned()
    } else {
        format!("{} in {}, since {device} has no bf16", framework.name, framework.dtype)
    }
}

/// Layouts with what follows from their prices.
pub fn ranking(question: &Question, setting: &Setting, layouts: &[&Ranked]) -> Table {
    ranking_with(question, setting, layouts, None, None)
}

/// The same with a mark on one of them, and with the number of variants of each.
fn ranking_with(
    question: &Question,
    setting: &Setting,
    layouts: &[&Ranked],
    marked: Option<&Ranked>,
    variants: Option<Vec<String>>,
) -> Table {
    let several = layouts.iter().any(|ranked| ranked.candidate.devices() != question.devices);
    let mut header = vec!["layout", "step"];
    header.extend(several.then_some("devices"));
    header.extend(COLUMNS);
    header.extend(variants.is_some().then_some("variants"));
    header.extend(budget::header(question));
    let row = |(at, ranked): (usize, &&Ranked)| {
        let derived = question.derived(setting, ranked);
        let mark = if Some(*ranked) == marked { "* " } else { "" };
        let mut row = vec![format!("{mark}{}", notation(&ranked.candidate)), seconds(ranked.price.seconds)];
        row.extend(several.then(|| ranked.candidate.devices().to_string()));
        row.extend(cells(ranked, &derived));
        row.extend(variants.as_ref().map(|variants| variants[at].clone()));
        row.extend(budget::row(question, &derived));
        row
    };
    let table = table(&header, &layouts.iter().enumerate().map(row).collect::<Vec<_>>());
    table.spare(&SPARE).marked(place(layouts, marked))
}

/// What is told of a layout behind its time.
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

/// Columns that a narrow terminal goes without: what follows from others first.
pub(crate) const SPARE: [&str; 7] = ["HFU", "in a domain", "variants", "device-hours", "tokens/s", "TFLOP/s", "MFU"];

/// The cells of [`COLUMNS`].
pub(crate) fn cells(Ranked { candidate, price }: &Ranked, derived: &Derived) -> [String; 11] {
    [
        sizes(candidate.sizes),
        sizes(candidate.inside),
        candidate.microbatch.to_string(),
        schedule(candidate),
        recompute(candidate),
        others(candidate),
        decimal(derived.tokens_per_second, "").trim_end().to_owned(),
        format!("{:.1}", derived.tflops_per_device),
        format!("{:.1}%", 100.0 * derived.mfu),
        format!("{:.1}%", 100.0 * derived.hfu),
        bytes(price.memory.total()),
    ]
}

/// Memory by class.
fn memory_table(setting: &Setting, layouts: &[&Ranked]) -> Table {
    let classes = layouts.first().map(|ranked| memory(&ranked.price).map(|(class, _)| class));
    let header = ["layout", "total", "free", "runs that fit", "stage"].into_iter().chain(classes.into_iter().flatten());
    let header: Vec<_> = header.collect();
    let row = |ranked: &&Ranked| {
        let total = ranked.price.memory.total();
        let free = setting.capacity.map_or("-".to_owned(), |capacity| bytes(capacity.saturating_sub(total)));
        let runs = |device| percent_below(setting.framework.fitting_runs(&ranked.price.memory, device));
        let fitting = setting.cluster.device_memory.map(runs);
        let classes = memory(&ranked.price).map(|(_, amount)| bytes(amount));
        let fitting = fitting.unwrap_or("-".to_owned());
        [notation(&ranked.candidate), bytes(total), free, fitting, ranked.price.memory.stage.to_string()]
            .into_iter()
            .chain(classes)
            .collect()
    };
    let table = table(&header, &layouts.iter().map(row).collect::<Vec<_>>());
    table.spare(&["stage", "buffers", "framework"])
}

/// The parts of each step in percent, without those that no layout has.
fn parts_table(layouts: &[&Ranked]) -> Table {
    // What rounding leaves of a bubble is none.
    let present =
        |part: &Part| layouts.iter().any(|ranked| part.of(&ranked.price.parts) > ROUNDING * ranked.price.seconds);
    let parts: Vec<Part> = Part::ALL.into_iter().filter(present).collect();
    let header: Vec<_> = ["layout", "step"].into_iter().chain(parts.iter().map(|part| part.name())).collect();
    let row = |ranked: &&Ranked| {
        let price = &ranked.price;
        let shares = parts.iter().map(|part| share(part.of(&price.parts), price));
        [notation(&ranked.candidate), seconds(price.seconds)].into_iter().chain(shares).collect()
    };
    table(&header, &layouts.iter().map(row).collect::<Vec<_>>())
}
