//! A simulated step: its timeline, and where the time of each stage goes.

use std::collections::BTreeMap;

use quadrille_cost::simulation::{Simulation, timeline};
use quadrille_run::units::seconds;
use quadrille_spec::{Layout, Offload};
use serde_json::{Value, json};

use crate::{Text, table};

/// Columns of timelines for narrow terminals.
const NARROW: usize = 60;
const NARROWEST: usize = 30;

/// A timeline whose lines have at most so many columns.
fn drawn(simulation: &Simulation, width: usize) -> String {
    let label = format!("stage {} ||", simulation.stages.len().saturating_sub(1)).len();
    timeline(simulation, width.saturating_sub(label))
}

/// For people: the timeline in so many columns, then a table of the stages.
pub fn text(simulation: &Simulation, layout: &Layout, width: usize) -> Text {
    // Of states that lie in the host's memory.
    let copied = layout.offload != Offload::None;
    let rows = simulation.stages.iter().enumerate().map(|(stage, times)| {
        // The sum of nothing would be -0.
        let collectives = times.waiting_on_collectives_s.values().fold(0.0, |sum, seconds| sum + seconds);
        let copies = copied.then_some(times.waiting_on_host_s);
        let spent = [times.busy_s, collectives].into_iter().chain(copies);
        let spent = spent.chain([times.waiting_on_stages_s, times.update_s]);
        std::iter::once(stage.to_string()).chain(spent.map(seconds)).collect()
    });
    let copies = copied.then_some("waits for copies");
    let header = ["stage", "computes", "waits for collectives"].into_iter().chain(copies);
    let header: Vec<&str> = header.chain(["waits for stages", "of it the update"]).collect();
    let head = format!(
        "\nsimulated step {}, bubble {:.1}% of all other time, in the mean of all stages\n",
        seconds(simulation.step_seconds),
        100.0 * simulation.bubble(),
    );
    let sizes = [width, NARROW, NARROWEST].map(|width| drawn(simulation, width));
    Text::from(head) + Text::drawing(sizes) + "\n" + table(&header, &rows.collect::<Vec<_>>())
}

/// The same numbers as a document; seconds.
pub fn document(simulation: &Simulation, width: usize) -> Value {
    let stages = simulation.stages.iter().map(|times| {
        let collectives = times.waiting_on_collectives_s.iter().map(|(axes, seconds)| (axes.key(), *seconds));
        json!({
            "busy_s": times.busy_s,
            "waiting_on_collectives_s": collectives.collect::<BTreeMap<_, _>>(),
            "waiting_on_host_s": times.waiting_on_host_s,
            "waiting_on_stages_s": times.waiting_on_stages_s,
            "update_s": times.update_s,
        })
    });
    json!({
        "step_s": simulation.step_seconds,
        "bubble": simulation.bubble(),
        "stages": stages.collect::<Vec<_>>(),
        "timeline": drawn(simulation, width).lines().collect::<Vec<_>>(),
    })
}
