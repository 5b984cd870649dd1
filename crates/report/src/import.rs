//! What others have measured, read into a cluster.

use quadrille_measure::logs::Refit;
use quadrille_measure::step_fit::{Matched, Scaled};
use quadrille_run::units::{decimal, percent};
use quadrille_spec::Tier;

use crate::table;

/// Tiers that were fitted again to logs, and products that were scaled to measured steps.
pub struct ImportReport<'a> {
    /// The tiers.
    pub refits: &'a [Refit],
    /// The products, if steps were read.
    pub scaled: Option<&'a Scaled>,
}

impl ImportReport<'_> {
    /// For people: before and after.
    pub fn text(&self) -> String {
        let tiers = if self.refits.is_empty() { String::new() } else { self.tiers() };
        tiers + &self.scaled.map_or(String::new(), products)
    }

    fn tiers(&self) -> String {
        let rows = self.refits.iter().flat_map(|refit| {
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
        table(&header, &rows.collect::<Vec<_>>()) + "\n"
    }

    /// What the cluster's source says from now on, behind what `source` has said; by how many logs of which tools.
    pub fn source(&self, source: &str, logs: &[(&str, usize)]) -> String {
        let mut parts = vec![source.trim_end_matches('.').to_owned()];
        let tools = logs.iter().filter(|(_, logs)| *logs > 0).map(|(tool, logs)| format!("{logs} logs of {tool}"));
        let tools = tools.collect::<Vec<_>>().join(" and ");
        for refit in self.refits {
            let (tier, error) = (&refit.after.name, percent(refit.error.mean));
            parts.push(format!("tier {tier} fitted to {tools}, mean error {error}"));
        }
        if let Some(Scaled { factor, steps, .. }) = self.scaled {
            parts.push(format!("products times {factor:.4} to fit {} measured steps", steps.len()));
        }
        parts.join("; by quadrille calibrate: ")
    }
}

fn products(Scaled { factor, most_before, most, steps }: &Scaled) -> String {
    let (before, now) = (percent(*most_before), percent(*most));
    let rows = steps.iter().map(|Matched { step, measured_seconds, seconds_before, seconds }| {
        let seconds = [measured_seconds, seconds_before, seconds].map(|seconds| format!("{seconds:.6}"));
        [step.clone()].into_iter().chain(seconds).collect()
    });
    let table = table(&["step", "measured s", "before s", "now s"], &rows.collect::<Vec<_>>());
    format!("products times {factor:.4}: at most {before} of the peak before, {now} now\n{table}\n")
}
