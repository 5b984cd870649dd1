//! What a search by AxoNN's communication model has found: for people and as a document.

use quadrille_papers::axonn::{Candidate, Plan};
use quadrille_run::shown_layout;
use quadrille_run::units::bytes;
use quadrille_spec::{Axis, Field, FieldValue, SpecError};
use serde_json::{Map, Value, json};

use crate::{Text, table};

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

impl AxonnReport<'_> {
    /// All of it, as `paper axonn plan --json` prints it; values on the wire are of the type `dtype`, which need not be one
    /// that layouts run.
    pub fn document(&self, dtype: &str) -> Value {
        let Self { model, cluster, found, seconds } = self;
        let refusal = |(grids, rule, example): (usize, &str, &SpecError)| json!({ "grids": grids, "rule": rule, "example": example.to_string() });
        json!({
            "model": model,
            "cluster": cluster,
            "cost": "axonn",
            "candidates": found.grids,
            "feasible": found.feasible,
            "refusals": found.refusals.by_frequency().into_iter().map(refusal).collect::<Vec<_>>(),
            "seconds": seconds,
            "plans": found.ranked.iter().map(|candidate| entry(candidate, dtype)).collect::<Vec<_>>(),
        })
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

fn entry(candidate: &Candidate, dtype: &str) -> Value {
    let Candidate { layout, price, state_bytes, fits } = candidate;
    let axes: Map<String, Value> = Axis::AXONN
        .into_iter()
        .map(|axis| {
            let cost = price.on(axis);
            (axis.name().to_owned(), json!({ "time_s": cost.seconds, "bytes": cost.bytes }))
        })
        .collect();
    // Layouts that run know fewer types.
    let layout = shown_layout(layout).with(Field::Dtype, FieldValue::Name(dtype.to_owned()));
    json!({
        "layout": layout,
        "time_s": price.seconds(),
        "axes": axes,
        "state_bytes": state_bytes,
        "fits": fits,
    })
}
