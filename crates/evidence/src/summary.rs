//! Statistics by source and table.

use std::collections::BTreeMap;

use quadrille_plan::statistics::{Errors, Pair, kendall_tau, regret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::evaluate::{Entry, Evaluation};
use crate::oversized::Oversized;
use crate::reserve::Judged;
use crate::run::Measured;
use crate::sources::{SOURCES, Source};

/// All statistics of a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Seconds, by source, then those of its tables where it has several.
    pub times: Vec<Times>,
    /// Order of layouts.
    pub ranking: Ranking,
    /// Bytes, by source.
    pub memory: Vec<Times>,
    /// Out-of-memory outcomes, by what each source takes beside tensors.
    pub fits: Fits,
    /// The same by distributions that were fitted without the table in question.
    pub judged: Judged,
    /// Runs that ran, and those that a plan calls too large, by device and kind of framework.
    pub oversized: Vec<Oversized>,
}

/// How much of a set parameters were fitted on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Fitted {
    /// Nothing: the set is a test.
    No,
    /// A part.
    Partly,
    /// All.
    Yes,
}

impl Fitted {
    /// Of a set, by whether each of its elements was fitted on.
    fn of(each: impl Iterator<Item = bool> + Clone) -> Self {
        match (each.clone().any(|fitted| fitted), each.clone().all(|fitted| fitted)) {
            (false, _) => Self::No,
            (true, false) => Self::Partly,
            (true, true) => Self::Yes,
        }
    }
}

/// Errors of a source or of one of its tables.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Times {
    /// The source.
    pub source: String,
    /// One of its tables; `None`: all.
    pub table: Option<String>,
    /// How much of it parameters of devices or networks were fitted on.
    pub fitted: Fitted,
    /// Predicted against measured.
    pub errors: Errors,
}

/// How well layouts of one model on one machine are ordered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ranking {
    /// Over all groups; `None` without any.
    pub all: Option<Order>,
    /// By source.
    pub sources: Vec<Order>,
    /// Groups of at least three layouts.
    pub groups: Vec<Group>,
}

/// The order of layouts in several groups.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Order {
    /// The source; `None`: all.
    pub source: Option<String>,
    /// On how many of them parameters of devices or networks were fitted.
    pub fitted: Fitted,
    /// How many groups.
    pub groups: usize,
    /// How many layouts.
    pub layouts: usize,
    /// Mean of Kendall's tau over the groups.
    pub mean_tau: Option<f64>,
    /// Mean over the groups of the measured time of the layout that the model chooses over the best, less 1.
    pub mean_regret: f64,
    /// The largest of them.
    pub largest_regret: f64,
}

/// Layouts of one model on one machine, with one batch and one kind of kernels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Group {
    /// The source.
    pub source: String,
    /// Whether parameters of devices or networks were fitted on their table.
    pub fitted: bool,
    /// What they have in common.
    pub name: String,
    /// How many.
    pub layouts: usize,
    /// Kendall's tau.
    pub tau: Option<f64>,
    /// The measured time of the chosen one over the best, less 1.
    pub regret: f64,
}

/// Out-of-memory outcomes, and runs that did fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fits {
    /// Runs that ended for want of memory.
    pub out_of_memory: usize,
    /// Those of them that the model says fit.
    pub called_fitting: usize,
    /// Runs of the same sources with a measured time.
    pub ran: usize,
    /// Those of them that the model says do not fit.
    pub called_too_large: usize,
}

/// Layouts that a group has at least.
const LEAST: usize = 3;

impl Summary {
    /// Of all rows of a file.
    pub fn of(evaluation: &Evaluation) -> Self {
        let entries = &evaluation.entries;
        Self {
            times: errors(entries, Source::is_fitted, |entry| entry.is_time()),
            ranking: Ranking::of(entries),
            memory: errors(entries, Source::is_fitted_on_memory, |entry| !entry.is_time()),
            fits: Fits::of(entries),
            judged: Judged::of(entries),
            oversized: Oversized::of(entries),
        }
    }
}

/// `is_fitted`: whether the quantity of a table is one that parameters were fitted on.
fn errors(entries: &[Entry], is_fitted: fn(&Source, &str) -> bool, wanted: impl Fn(&Entry) -> bool) -> Vec<Times> {
    let mut list = Vec::new();
    for source in &SOURCES {
        let of_source = entries.iter().filter(|entry| entry.run.source.name == source.name && wanted(entry));
        let mut tables: BTreeMap<String, Vec<Pair>> = BTreeMap::new();
        for entry in of_source {
            if let Some(pair) = entry.pair() {
                tables.entry(table(entry)).or_default().push(pair);
            }
        }
        let all: Vec<Pair> = tables.values().flatten().copied().collect();
        let fitted = Fitted::of(tables.keys().map(|table| is_fitted(source, table)));
        let line = |table: Option<String>, pairs: &[Pair]| {
            let errors = Errors::of(pairs)?;
            let of_table = |table: &String| Fitted::of(std::iter::once(is_fitted(source, table)));
            Some(Times {
                source: source.name.to_owned(),
                fitted: table.as_ref().map_or(fitted, of_table),
                table,
                errors,
            })
        };
        list.extend(line(None, &all));
        if tables.len() > 1 {
            list.extend(tables.into_iter().filter_map(|(table, pairs)| line(Some(table), &pairs)));
        }
    }
    list
}

/// The table of a row, by kind of memory where that was measured; Megatron's tests, each a table, are one.
fn table(entry: &Entry) -> String {
    match (entry.run.measured, entry.run.source.name) {
        (Measured::RestBytes(_), _) => "between steps".to_owned(),
        (Measured::PeakBytes(..), "Megatron CI") if entry.row.table.contains("memory_speed") => "peak, 7 B".to_owned(),
        (Measured::PeakBytes(..), "Megatron CI") => "peak, small".to_owned(),
        _ => entry.row.table.clone(),
    }
}

impl Ranking {
    fn of(entries: &[Entry]) -> Self {
        let mut groups: BTreeMap<(usize, String), Vec<&Entry>> = BTreeMap::new();
        for entry in entries.iter().filter(|entry| entry.is_time()) {
            let source = SOURCES.iter().position(|source| source.name == entry.run.source.name).unwrap_or(0);
            groups.entry((source, group(entry))).or_default().push(entry);
        }
        let groups: Vec<Group> = groups
            .into_iter()
            .filter(|(_, entries)| entries.len() >= LEAST)
            .filter_map(|((source, name), entries)| {
                let pairs: Vec<Pair> = entries.iter().filter_map(|entry| entry.pair()).collect();
                let source = &SOURCES[source];
                Some(Group {
                    source: source.name.to_owned(),
                    fitted: entries.iter().any(|entry| source.is_fitted(&entry.row.table)),
                    name,
                    layouts: pairs.len(),
                    tau: kendall_tau(&pairs),
                    regret: regret(&pairs)?,
                })
            })
            .collect();
        let sources = SOURCES.iter().filter_map(|source| {
            let of_source: Vec<&Group> = groups.iter().filter(|group| group.source == source.name).collect();
            Order::of(Some(source.name), &of_source)
        });
        let all: Vec<&Group> = groups.iter().collect();
        Self { all: Order::of(None, &all), sources: sources.collect(), groups }
    }
}

impl Order {
    fn of(source: Option<&'static str>, groups: &[&Group]) -> Option<Self> {
        let mean = |values: Vec<f64>| {
            let count = values.len() as f64;
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / count)
        };
        Some(Self {
            source: source.map(str::to_owned),
            fitted: Fitted::of(groups.iter().map(|group| group.fitted)),
            groups: groups.len(),
            layouts: groups.iter().map(|group| group.layouts).sum(),
            mean_tau: mean(groups.iter().filter_map(|group| group.tau).collect()),
            mean_regret: mean(groups.iter().map(|group| group.regret).collect())?,
            largest_regret: groups.iter().map(|group| group.regret).fold(0.0, f64::max),
        })
    }
}

/// What the layouts of a group have in common.
fn group(entry: &Entry) -> String {
    let run = &entry.run;
    let row = entry.row;
    let kernel = row.notes.split(';').find_map(|note| note.trim().strip_prefix("kernel "));
    format!(
        "{} (L={} h={} a={}, s={}) on {} {}, batch {}{}{}",
        run.model.name,
        run.model.layers(),
        run.model.hidden,
        run.model.classic().heads,
        run.seq_len,
        run.candidate.devices(),
        row.gpu,
        run.global_batch,
        kernel.map_or(String::new(), |kernel| format!(", {kernel}")),
        if row.table.is_empty() { String::new() } else { format!("; {}", row.table) },
    )
}

impl Fits {
    fn of(entries: &[Entry]) -> Self {
        let out: Vec<&Entry> =
            entries.iter().filter(|entry| matches!(entry.run.measured, Measured::OutOfMemory)).collect();
        let sources: Vec<&str> = out.iter().map(|entry| entry.run.source.name).collect();
        let ran = || entries.iter().filter(|entry| entry.is_time() && sources.contains(&entry.run.source.name));
        Self {
            out_of_memory: out.len(),
            called_fitting: out.iter().filter(|entry| entry.fits()).count(),
            ran: ran().count(),
            called_too_large: ran().filter(|entry| !entry.fits()).count(),
        }
    }
}
