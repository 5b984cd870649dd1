//! What others have measured, read into a cluster.

use std::path::Path;

use quadrille_measure::Imported;
use quadrille_measure::logs::Refit;
use quadrille_measure::step_fit::{Matched, Scaled};
use quadrille_run::units::{decimal, percent};
use quadrille_spec::Tier;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ReportVersion, Text, table};

/// A mean error after fitting that is warned of, as a fraction.
const MUCH: f64 = 0.3;
/// What is worse than before by less looks the same in a table.
const SHOWN: f64 = 1e-3;

/// A cluster that was fitted to others' measurements: what `calibrate --json` prints with logs or steps.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ImportDocument {
    /// Version of the document.
    pub version: ReportVersion,
    /// File of the cluster.
    pub out: String,
    /// Tiers that were fitted again.
    pub tiers: Vec<Refit>,
    /// Scaled products; null where no steps were read.
    pub steps: Option<Scaled>,
    /// Warnings in words.
    pub warnings: Vec<String>,
}

/// Tiers that were fitted again to logs, and products that were scaled to measured steps.
pub struct ImportReport<'a>(pub &'a Imported);

impl ImportReport<'_> {
    /// For people: before and after.
    pub fn text(&self) -> Text {
        let mut text = if self.0.refits.is_empty() { Text::new() } else { self.tiers() };
        text.extend(self.0.scaled.as_ref().map(products));
        text
    }

    /// What is to be minded.
    pub fn warnings(&self) -> Vec<String> {
        self.0.refits.iter().filter_map(warning).collect()
    }

    /// Document of a cluster that was written to a file, with warnings in the words of the command line.
    pub fn document(&self, out: &Path, warnings: Vec<String>) -> ImportDocument {
        let Imported { refits, scaled } = self.0;
        let out = out.to_string_lossy().into_owned();
        ImportDocument { version: ReportVersion::CURRENT, out, tiers: refits.clone(), steps: scaled.clone(), warnings }
    }

    fn tiers(&self) -> Text {
        let rows = self.0.refits.iter().flat_map(|refit| {
            let before = (&refit.before, "before", &refit.error_before);
            [before, (&refit.after, "fitted", &refit.error)].map(|(tier, when, error)| {
                let Tier { name, links, bandwidth, efficiency, latency, half_bytes, .. } = tier;
                vec![
                    format!("{name}, {when}"),
                    decimal(*links as f64 * bandwidth * efficiency, "B/s"),
                    format!("{:.2}", 1e6 * latency),
                    decimal(*half_bytes, "B"),
                    error.samples.to_string(),
                    percent(error.mean),
                    percent(error.largest),
                ]
            })
        });
        let header = ["tier", "rate", "latency us", "half bytes", "times", "mean error", "largest"];
        Text::from(table(&header, &rows.collect::<Vec<_>>())) + "\n"
    }

    /// What the cluster's source says from now on, behind what `source` has said; by how many logs of which tools.
    pub fn source(&self, source: &str, logs: &[(&str, usize)]) -> String {
        let mut parts = vec![source.trim_end_matches('.').to_owned()];
        let tools = logs.iter().filter(|(_, logs)| *logs > 0).map(|(tool, logs)| format!("{logs} logs of {tool}"));
        let tools = tools.collect::<Vec<_>>().join(" and ");
        for refit in &self.0.refits {
            let tier = &refit.after.name;
            let error = percent(refit.error.mean);
            parts.push(format!("tier {tier} fitted to {tools}, mean error {error}"));
        }
        if let Some(Scaled { factor, steps, .. }) = &self.0.scaled {
            parts.push(format!("products times {factor:.4} to fit {} measured steps", steps.len()));
        }
        parts.join("; by quadrille calibrate: ")
    }
}

/// Of a tier that does not describe what was measured.
fn warning(refit: &Refit) -> Option<String> {
    let Refit { error_before, after, error, .. } = refit;
    let wrong = if error.mean > MUCH {
        format!("is above {}", percent(MUCH))
    } else if error.mean > error_before.mean + SHOWN {
        "is larger than before".to_owned()
    } else {
        return None;
    };
    let tier = &after.name;
    let before = percent(error_before.mean);
    let now = percent(error.mean);
    Some(format!(
        "tier {tier}: the mean error after fitting {wrong} ({before} before, {now} now); are `run.ranks`, `layout.per_node` \
         and `run.cluster` those of the logs?"
    ))
}

fn products(Scaled { factor, most_before, most, steps }: &Scaled) -> Text {
    let before = percent(*most_before);
    let now = percent(*most);
    let rows = steps.iter().map(|Matched { step, measured_seconds, seconds_before, seconds }| {
        let seconds = [measured_seconds, seconds_before, seconds].map(|seconds| format!("{seconds:.6}"));
        [step.clone()].into_iter().chain(seconds).collect()
    });
    let table = table(&["step", "measured s", "before s", "now s"], &rows.collect::<Vec<_>>());
    Text::from(format!("products times {factor:.4}: at most {before} of the peak before, {now} now\n")) + table + "\n"
}
