//! What a search by AxoNN's communication model has found: for people and as a document.

use quadrille_papers::axonn::{Candidate, Plan};
use quadrille_run::shown_layout;
use quadrille_run::units::bytes;
use quadrille_spec::{Axis, Field, FieldValue, LayoutFile, SpecError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ByName, ReportVersion, Text, table};

/// What was searched, and what was found.
pub struct AxonnReport<'a> {
    /// The name of the model.
    pub model: &'a str,
    /// The name of the cluster.
    pub cluster: &'a str,
    /// What was found.
    pub found: &'a Plan,
    /// Seconds that it took.
    pub seconds: f64,
}

/// Grids of AxoNN's communication model, fastest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AxonnDocument {
    /// Version of the document.
    pub version: ReportVersion,
    /// Name of the model.
    pub model: String,
    /// Name of the cluster.
    pub cluster: String,
    /// Cost model: `axonn`.
    pub cost: String,
    /// Number of grids.
    pub candidates: usize,
    /// Number of legal grids.
    pub feasible: usize,
    /// Grids that break a rule, by rule.
    pub refusals: Vec<RefusedGrids>,
    /// Seconds of the search.
    pub seconds: f64,
    /// Grids, fastest first.
    pub plans: Vec<AxonnEntry>,
}

/// Grids that break a rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedGrids {
    /// Number of grids.
    pub grids: usize,
    /// The rule.
    pub rule: String,
    /// Message of one of them.
    pub example: String,
}

/// A grid with its communication.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AxonnEntry {
    /// Fields of the layout's file.
    pub layout: LayoutFile,
    /// Seconds of communication in a step.
    pub time_s: f64,
    /// Communication by axis.
    pub axes: ByName<AxisCost>,
    /// Bytes of the states of a rank.
    pub state_bytes: u64,
    /// True if the states fit into a device.
    pub fits: bool,
}

/// Communication along an axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AxisCost {
    /// Seconds in a step.
    pub time_s: f64,
    /// Bytes that a rank sends in a step.
    pub bytes: f64,
}

impl AxonnReport<'_> {
    /// The report as a document; values on the wire are of the type `dtype`, which need not be one that layouts run.
    pub fn document(&self, dtype: &str) -> AxonnDocument {
        let Self { model, cluster, found, seconds } = self;
        let refusal = |(grids, rule, example): (usize, &str, &SpecError)| RefusedGrids {
            grids,
            rule: rule.to_owned(),
            example: example.to_string(),
        };
        AxonnDocument {
            version: ReportVersion::CURRENT,
            model: (*model).to_owned(),
            cluster: (*cluster).to_owned(),
            cost: "axonn".to_owned(),
            candidates: found.grids,
            feasible: found.feasible,
            refusals: found.refusals.by_frequency().into_iter().map(refusal).collect(),
            seconds: *seconds,
            plans: found.ranked.iter().map(|candidate| AxonnEntry::new(candidate, dtype)).collect(),
        }
    }

    /// For people.
    pub fn text(&self) -> Text {
        let Self { model, cluster, found, seconds } = self;
        let header = ["grid", "time", "x", "y", "z", "data", "sent per rank", "states"];
        let milliseconds = |seconds: f64| format!("{:.3} ms", seconds * 1e3);
        let rows: Vec<Vec<String>> = found
            .ranked
            .iter()
            .map(|Candidate { layout, price, state_bytes, fits }| {
                let axes = Axis::AXONN.map(|axis| price.on(axis));
                let total: f64 = axes.iter().map(|cost| cost.bytes).sum();
                [layout.grid.to_string(), milliseconds(price.seconds())]
                    .into_iter()
                    .chain(axes.iter().map(|cost| milliseconds(cost.seconds)))
                    .chain([bytes(total as u64), bytes(*state_bytes) + if *fits { "" } else { " (too large)" }])
                    .collect()
            })
            .collect();
        let mut text = Text::from(format!(
            "{model} on {cluster}: {} of {} grids are legal (searched in {:.0} us)\n\
             communication time per step by AxoNN's equations 1-7; computation is not in it\n\
             states: 16 bytes a parameter over x*y*z, without activations\n\n",
            found.feasible,
            found.grids,
            seconds * 1e6
        ));
        text += table(&header, &rows).spare(&["x", "y", "z", "data", "states"]);
        let refusals = found.refusals.by_frequency();
        if !refusals.is_empty() {
            text += "\nnot legal, with an example each:\n";
        }
        for (grids, rule, example) in refusals {
            let grids = format!("{grids} grid{}", if grids == 1 { "" } else { "s" });
            text += format!("{grids}: {rule} ({example})\n");
        }
        text
    }
}

impl AxonnEntry {
    fn new(candidate: &Candidate, dtype: &str) -> Self {
        let Candidate { layout, price, state_bytes, fits } = candidate;
        let cost = |axis: Axis| {
            let cost = price.on(axis);
            (axis.name(), AxisCost { time_s: cost.seconds, bytes: cost.bytes })
        };
        Self {
            // Layouts that run know fewer types.
            layout: shown_layout(layout).with(Field::Dtype, FieldValue::Name(dtype.to_owned())),
            time_s: price.seconds(),
            axes: Axis::AXONN.into_iter().map(cost).collect(),
            state_bytes: *state_bytes,
            fits: *fits,
        }
    }
}
