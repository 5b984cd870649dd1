//! A simulated step: its timeline, and where the time of each stage goes.

use std::collections::BTreeMap;

use quadrille_cost::simulation::{Simulation, timeline};
use quadrille_run::units::seconds;
use quadrille_spec::{Layout, Offload};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Text, table};

/// Columns of timelines for narrow terminals.
const NARROW: usize = 60;
const NARROWEST: usize = 30;

/// A simulated step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SimulationReport {
    /// Seconds of the step.
    pub step_s: f64,
    /// Bubble as a part of all other time, in the mean of all stages.
    pub bubble: f64,
    /// Time of each stage.
    pub stages: Vec<StageTimes>,
    /// Lines of a drawing of the step.
    pub timeline: Vec<String>,
    /// The drawing for terminals of several widths; no part of documents.
    #[serde(skip)]
    pub drawings: [String; 3],
    /// True if the optimizer's states are in the host's memory; no part of documents.
    #[serde(skip)]
    pub is_offloaded: bool,
}

/// Seconds of a stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StageTimes {
    /// Seconds that it computes.
    pub busy_s: f64,
    /// Seconds of exposed collectives by their axes.
    pub waiting_on_collectives_s: BTreeMap<String, f64>,
    /// Seconds of exposed copies from and to the host's memory.
    pub waiting_on_host_s: f64,
    /// Seconds of waiting for other stages.
    pub waiting_on_stages_s: f64,
    /// Seconds of the update, which are among the others.
    pub update_s: f64,
}

impl SimulationReport {
    /// Report of a step of a layout, with a drawing of so many columns.
    pub fn new(simulation: &Simulation, layout: &Layout, width: usize) -> Self {
        let stages = simulation.stages.iter().map(|times| {
            let collectives = times.waiting_on_collectives_s.iter().map(|(axes, seconds)| (axes.key(), *seconds));
            StageTimes {
                busy_s: times.busy_s,
                waiting_on_collectives_s: collectives.collect(),
                waiting_on_host_s: times.waiting_on_host_s,
                waiting_on_stages_s: times.waiting_on_stages_s,
                update_s: times.update_s,
            }
        });
        let drawings = [width, NARROW, NARROWEST].map(|width| drawn(simulation, width));
        Self {
            step_s: simulation.step_seconds,
            bubble: simulation.bubble(),
            stages: stages.collect(),
            timeline: drawings[0].lines().map(str::to_owned).collect(),
            drawings,
            is_offloaded: layout.offload != Offload::None,
        }
    }

    /// The drawing, then a table of the stages.
    pub fn text(&self) -> Text {
        let rows = self.stages.iter().enumerate().map(|(stage, times)| {
            // The sum of nothing would be -0.
            let collectives = times.waiting_on_collectives_s.values().fold(0.0, |sum, seconds| sum + seconds);
            let copies = self.is_offloaded.then_some(times.waiting_on_host_s);
            let spent = [times.busy_s, collectives].into_iter().chain(copies);
            let spent = spent.chain([times.waiting_on_stages_s, times.update_s]);
            std::iter::once(stage.to_string()).chain(spent.map(seconds)).collect()
        });
        let copies = self.is_offloaded.then_some("waits for copies");
        let header = ["stage", "computes", "waits for collectives"].into_iter().chain(copies);
        let header: Vec<&str> = header.chain(["waits for stages", "of it the update"]).collect();
        let head = format!(
            "\nsimulated step {}, bubble {:.1}% of all other time, in the mean of all stages\n",
            seconds(self.step_s),
            100.0 * self.bubble,
        );
        Text::from(head) + Text::drawing(self.drawings.clone()) + "\n" + table(&header, &rows.collect::<Vec<_>>())
    }
}

/// A timeline whose lines have at most so many columns.
fn drawn(simulation: &Simulation, width: usize) -> String {
    let label = format!("stage {} ||", simulation.stages.len().saturating_sub(1)).len();
    timeline(simulation, width.saturating_sub(label))
}
