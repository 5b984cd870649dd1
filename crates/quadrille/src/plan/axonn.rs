//! `quadrille plan --cost axonn`: all grids of a number of ranks, ranked by AxoNN's communication model.

use std::time::Instant;

use quadrille_engine::Hyper;
use quadrille_papers::axonn::{Candidate, Plan, plan};
use quadrille_run::layout_json;
use quadrille_spec::{Axis, ElementType, Linear, SpecError};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::arguments::PlanArguments;
use crate::failure::Failure;
use crate::output::{bytes, print_json, print_text, table};
use crate::settings;

#[derive(Serialize)]
struct Document {
    model: String,
    cluster: String,
    cost: &'static str,
    /// Grids of this number of ranks.
    candidates: usize,
    /// Those that the model and the batch allow.
    feasible: usize,
    /// Why the others are not.
    refusals: Vec<Refusal>,
    /// Time of the search.
    seconds: f64,
    plans: Vec<Value>,
}

#[derive(Serialize)]
struct Refusal {
    grids: usize,
    rule: String,
    /// Of one of the grids.
    example: String,
}

/// Ranks grids and prints the best.
pub fn run(arguments: &PlanArguments) -> Result<(), Failure> {
    let settings = settings::settings(&arguments.model, "gpt-demo", Hyper::default())?;
    if arguments.layout.grid.as_deref().is_some_and(|grid| grid != "auto") {
        return Err(Failure::usage("plan ranks all grids of --ranks ranks; leave --grid out"));
    }
    let settings::Typed { request, cluster, .. } =
        settings::typed(&arguments.layout, None, &settings::Defaults::USUAL)?;
    if request.linear == Linear::Summa {
        let rule = "AxoNN's communication model prices pmm only; use --linear pmm, or --cost native";
        return Err(Failure::usage(format!("--linear summa: {rule}")));
    }
    let dtype = arguments.dtype.unwrap_or(ElementType::Bf16);
    let element_bytes = dtype.bytes();
    let start = Instant::now();
    let found = plan(&settings.model, &cluster, request.grid.ranks(), &request, element_bytes, arguments.top as usize)?;
    let seconds = start.elapsed().as_secs_f64();
    if !arguments.json {
        return print_text(&text(&found, &settings.model.name, &cluster.name, seconds));
    }
    print_json(&Document {
        model: settings.model.name,
        cluster: cluster.name,
        cost: "axonn",
        candidates: found.grids,
        feasible: found.feasible,
        refusals: refusals(&found),
        seconds,
        plans: found.ranked.iter().map(|candidate| entry(candidate, dtype)).collect(),
    })
}

fn refusals(found: &Plan) -> Vec<Refusal> {
    let refusal = |(grids, rule, example): (usize, &str, &SpecError)| Refusal {
        grids,
        rule: rule.to_owned(),
        example: example.to_string(),
    };
    found.refusals.by_frequency().into_iter().map(refusal).collect()
}

fn entry(candidate: &Candidate, dtype: ElementType) -> Value {
    let Candidate { layout, price, state_bytes, fits } = candidate;
    let axes: Map<String, Value> = Axis::AXONN
        .into_iter()
        .map(|axis| {
            let cost = price.on(axis);
            (axis.name().to_owned(), json!({ "time_s": cost.seconds, "bytes": cost.bytes }))
        })
        .collect();
    let mut layout = layout_json(layout);
    // Layouts that run know fewer types.
    layout["dtype"] = json!(dtype);
    json!({
        "layout": layout,
        "time_s": price.seconds(),
        "axes": axes,
        "state_bytes": state_bytes,
        "fits": fits,
    })
}

fn text(found: &Plan, model: &str, cluster: &str, seconds: f64) -> String {
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
    let mut text = format!(
        "{model} on {cluster}: {} of {} grids are legal (searched in {:.0} us)\n\
         communication time per step by AxoNN's equations 1-7; computation is not in it\n\
         states: 16 bytes a parameter over x*y*z, without activations\n\n",
        found.feasible,
        found.grids,
        seconds * 1e6
    );
    text += &table(&header, &rows);
    let refusals = refusals(found);
    if !refusals.is_empty() {
        text += "\nnot legal, with an example each:\n";
    }
    for Refusal { grids, rule, example } in refusals {
        let grids = format!("{grids} grid{}", if grids == 1 { "" } else { "s" });
        text += &format!("{grids}: {rule} ({example})\n");
    }
    text
}
