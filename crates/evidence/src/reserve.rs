//! What runs took of a device beside their tensors, as a distribution: fitted on all tables of bytes and of runs out of memory but
//! one, and held against that one.

use std::collections::BTreeMap;

use quadrille_cost::native::normal_below;
use quadrille_plan::native::Reserve;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::evaluate::Entry;
use crate::run::Measured;
use crate::sources::Reading;

/// The part of runs that a plan lets fit where nobody says otherwise.
const USUAL: f64 = Reserve::USUAL_RUNS;
/// The part of rows that no distribution explains: typed wrongly, or with tensors that the model does not know.
const STRANGE: f64 = 0.005;
/// Of a strange row's bytes per byte: any of fifty gigabytes.
const ANY: f64 = 1.0 / 50e9;
/// Means and deviations that are tried, in bytes.
const STEP: f64 = 5e8;
const MEANS: usize = 40;
const DEVIATIONS: usize = 16;

/// What is known of a run's memory beside its tensors.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Beside {
    /// So many bytes were taken.
    Taken(f64),
    /// It ran with so much room.
    AtMost(f64),
    /// It was out of memory with so much room.
    Above(f64),
}

/// A normal distribution of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Distribution {
    /// Its mean.
    pub mean: f64,
    /// One deviation.
    pub deviation: f64,
}

/// How plans that let [`Reserve::USUAL_RUNS`] of runs fit would have judged published runs, each by a distribution that was fitted
/// without its table.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Judged {
    /// Fitted on all tables: what frameworks have.
    pub of_all: Distribution,
    /// Runs that were out of memory.
    pub out_of_memory: usize,
    /// Those of them that are called fitting.
    pub called_fitting: usize,
    /// Runs that ran.
    pub ran: usize,
    /// Those of them that are called too large.
    pub called_too_large: usize,
}

impl Distribution {
    fn part(&self, room: f64) -> f64 {
        if room < 0.0 { 0.0 } else { normal_below((room - self.mean) / self.deviation) }
    }

    /// The negative logarithm of how likely the rows are.
    fn unlikelihood(&self, rows: &[Beside]) -> f64 {
        let of = |row: &Beside| {
            let likely = match *row {
                Beside::Taken(bytes) => {
                    let x = (bytes - self.mean) / self.deviation;
                    let density = (-x * x / 2.0).exp() / self.deviation / (2.0 * std::f64::consts::PI).sqrt();
                    (1.0 - STRANGE) * density / ANY + STRANGE
                }
                Beside::AtMost(room) => (1.0 - STRANGE) * self.part(room) + STRANGE / 2.0,
                Beside::Above(room) => (1.0 - STRANGE) * (1.0 - self.part(room)) + STRANGE / 2.0,
            };
            -likely.ln()
        };
        rows.iter().map(of).sum()
    }

    /// The likeliest of a grid.
    fn of(rows: &[Beside]) -> Self {
        let tried = (0..MEANS).flat_map(|mean| (1..=DEVIATIONS).map(move |deviation| (mean, deviation)));
        let tried =
            tried.map(|(mean, deviation)| Self { mean: mean as f64 * STEP, deviation: deviation as f64 * STEP });
        let likeliest = tried.min_by(|a, b| a.unlikelihood(rows).total_cmp(&b.unlikelihood(rows)));
        likeliest.unwrap_or(Self { mean: 0.0, deviation: STEP })
    }
}

impl Judged {
    /// Of the sources that tell of runs out of memory.
    pub fn of(entries: &[Entry]) -> Self {
        let mut sources: Vec<&str> = Vec::new();
        for entry in entries.iter().filter(|entry| matches!(entry.run.measured, Measured::OutOfMemory)) {
            if !sources.contains(&entry.run.source.name) {
                sources.push(entry.run.source.name);
            }
        }
        let mut tables: BTreeMap<(&str, &str), Vec<Beside>> = BTreeMap::new();
        for entry in entries.iter().filter(|entry| sources.contains(&entry.run.source.name)) {
            let rows = tables.entry((entry.run.source.name, entry.row.table.as_str())).or_default();
            rows.extend(beside(entry));
        }
        let all: Vec<Beside> = tables.values().flatten().copied().collect();
        let mut judged =
            Self { of_all: Distribution::of(&all), out_of_memory: 0, called_fitting: 0, ran: 0, called_too_large: 0 };
        for (table, rows) in &tables {
            let others: Vec<Beside> =
                tables.iter().filter(|(name, _)| *name != table).flat_map(|(_, rows)| rows).copied().collect();
            let distribution = Distribution::of(&others);
            for row in rows {
                match *row {
                    Beside::Taken(_) => {}
                    Beside::AtMost(room) => {
                        judged.ran += 1;
                        judged.called_too_large += usize::from(distribution.part(room) < USUAL);
                    }
                    Beside::Above(room) => {
                        judged.out_of_memory += 1;
                        judged.called_fitting += usize::from(distribution.part(room) >= USUAL);
                    }
                }
            }
        }
        judged
    }
}

/// What a row says of memory beside tensors: its bytes, or the room that a device of the run had.
fn beside(entry: &Entry) -> Option<Beside> {
    let memory = &entry.price.memory;
    let tensors = (memory.total() - memory.framework) as f64;
    let room = entry.run.cluster.device_memory.map(|device| device as f64 - tensors);
    match entry.run.measured {
        Measured::PeakBytes(bytes, Reading::Device) => Some(Beside::Taken(bytes - tensors)),
        Measured::Seconds(_) => room.map(Beside::AtMost),
        Measured::OutOfMemory => room.map(Beside::Above),
        Measured::PeakBytes(..) | Measured::RestBytes(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes around ten gigabytes, runs with more room, none with less.
    #[test]
    fn the_likeliest_distribution_is_that_of_the_rows() {
        let taken = (-10..=10).map(|i| Beside::Taken(1e10 + 2e8 * f64::from(i)));
        let rows: Vec<Beside> = taken.chain([Beside::AtMost(1.5e10), Beside::Above(5e9)]).collect();
        let found = Distribution::of(&rows);
        assert!((found.mean - 1e10).abs() <= STEP, "{found:?}");
        assert!((1e9..=2e9).contains(&found.deviation), "{found:?}");
        assert!(found.part(2e10) > 0.999 && found.part(2e9) < 0.001 && found.part(-1.0) == 0.0);
    }
}
