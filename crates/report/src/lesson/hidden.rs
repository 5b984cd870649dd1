//! What hides communication: what is computed between its begin and the wait for it, by the program, and for how long, by a
//! simulation.

use std::collections::{BTreeMap, HashMap};

use quadrille_cost::simulation::{Event, Lane, Simulation};
use quadrille_spec::AxisSet;
use quadrille_step::schedule::{Action, Pass};
use quadrille_step::{Collective, Layer, Operation, Section, StageProgram};
use serde::Serialize;

use super::moves::Found;

/// Where the wait for something that was begun stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Waited {
    /// Nothing is computed meanwhile.
    AtOnce,
    /// Other operations of the pass are.
    Later,
    /// The pass ends before it.
    InAnotherPass,
    /// A message: only who receives it waits.
    ByOthers,
}

/// What hides something that moves.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Hidden {
    /// Where the wait stands in the program.
    pub waited: Waited,
    /// The operations between, as the program has them, each name once.
    pub under: Vec<String>,
    /// Seconds that it takes in the simulated step, of all calls of a layer; none without a simulation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// Of these, while the rank computes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden_s: Option<f64>,
}

impl Hidden {
    /// Nothing hides it.
    pub(super) fn at_once() -> Self {
        Self { waited: Waited::AtOnce, under: Vec::new(), seconds: None, hidden_s: None }
    }

    pub(super) fn message() -> Self {
        Self { waited: Waited::ByOthers, ..Self::at_once() }
    }

    /// By the order of the operations of a section, of which one begins it.
    pub(super) fn in_program(section: &Section, issue: usize) -> Self {
        let Operation::Issue(begun) = section.ops[issue].operation else { return Self::at_once() };
        let is_wait = |operation: &Operation| matches!(operation, Operation::Wait(waited) if same(waited, &begun));
        let after = &section.ops[issue + 1..];
        let wait = after.iter().position(|op| is_wait(&op.operation));
        let mut under: Vec<String> = Vec::new();
        for op in after[..wait.unwrap_or(after.len())].iter().filter(|op| op.operation.group().computes()) {
            let name = op.operation.name();
            if !under.iter().any(|known| known == name) {
                under.push(name.to_owned());
            }
        }
        let waited = match wait {
            None => Waited::InAnotherPass,
            Some(_) if under.is_empty() => Waited::AtOnce,
            Some(_) => Waited::Later,
        };
        Self { waited, under, ..Self::at_once() }
    }

    /// With what hides another one of the same kind.
    pub(super) fn add(&mut self, other: &Self) {
        self.waited = self.waited.max(other.waited);
        self.under.extend(other.under.iter().filter(|name| !self.under.contains(name)).cloned().collect::<Vec<_>>());
        let sum = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a + b);
        self.seconds = sum(self.seconds, other.seconds);
        self.hidden_s = sum(self.hidden_s, other.hidden_s);
    }

    /// In a few words.
    pub fn told(&self) -> String {
        let products = ["gemm", "attention", "router", "adamw"];
        let (large, small): (Vec<&String>, Vec<&String>) =
            self.under.iter().partition(|name| products.iter().any(|product| name.starts_with(product)));
        let named: Vec<&str> = large.into_iter().chain(small).map(String::as_str).collect();
        let work = match named.as_slice() {
            [] => "nothing".to_owned(),
            [one] => (*one).to_owned(),
            [one, two] => format!("{one}, {two}"),
            [one, two, ..] => format!("{one}, {two} .."),
        };
        let place = match self.waited {
            Waited::AtOnce => "waited for at once".to_owned(),
            Waited::Later => format!("under {work}"),
            Waited::InAnotherPass => "under the rest of the pass".to_owned(),
            Waited::ByOthers => "under the next pass".to_owned(),
        };
        match (self.seconds, self.hidden_s) {
            (Some(seconds), Some(hidden)) if seconds > 0.0 => {
                format!(
                    "{:.0}% of {} hidden, {place}",
                    100.0 * hidden / seconds,
                    quadrille_run::units::seconds(seconds)
                )
            }
            _ => place,
        }
    }
}

fn same(a: &Collective, b: &Collective) -> bool {
    (a.kind, a.axes, a.input, a.output) == (b.kind, b.axes, b.input, b.output)
}

/// What a simulation calls one after the other in the order of their begin: those of a pass of a layer.
type Queue = (Option<Action>, Layer, AxisSet, &'static str);

/// Adds to what a rank of the stage moves how long that takes and how much of it is hidden in a simulated step.
pub(super) fn simulated(found: &mut [Found], stage: &StageProgram, simulation: &Simulation) {
    let of_stage = || simulation.events.iter().filter(|event| event.stage == stage.stage);
    let computing: Vec<[f64; 2]> =
        of_stage().filter(|event| event.lane == Lane::Compute).map(|event| [event.start_s, event.end_s]).collect();
    let mut queues: HashMap<Queue, Vec<&Event>> = HashMap::new();
    for event in of_stage() {
        let axes = match event.lane {
            Lane::Axes(axes) => axes,
            Lane::Link { .. } => quadrille_spec::Axis::Pipe.only(),
            Lane::Compute | Lane::Host => continue,
        };
        queues.entry((event.action, event.layer, axes, event.name)).or_default().push(event);
    }
    let mut asked: BTreeMap<Option<Pass>, Vec<usize>> = BTreeMap::new();
    for (index, each) in found.iter().enumerate() {
        asked.entry(each.pass).or_default().push(index);
    }
    for (pass, members) in asked {
        for action in actions(stage, pass) {
            let mut taken: HashMap<Queue, usize> = HashMap::new();
            for index in &members {
                let each = &mut found[*index];
                if action.is_some_and(|action| action.chunk != each.chunk || !runs(each, stage, action)) {
                    continue;
                }
                let name = if each.told.kind.name() == "send" { "message" } else { each.told.kind.name() };
                let queue = (action, each.layer, each.axes, name);
                let place = taken.entry(queue).or_default();
                if let Some(event) = queues.get(&queue).and_then(|events| events.get(*place)) {
                    let hidden = &mut each.told.hidden;
                    *hidden.seconds.get_or_insert(0.0) += event.end_s - event.start_s;
                    *hidden.hidden_s.get_or_insert(0.0) += overlap(&computing, [event.start_s, event.end_s]);
                }
                *place += 1;
            }
        }
    }
}

/// The passes of a kind over all microbatches; once none for the update.
fn actions(stage: &StageProgram, pass: Option<Pass>) -> Vec<Option<Action>> {
    let Some(pass) = pass else { return vec![None] };
    let chunks = 0..stage.chunks.len();
    let of_chunk = |chunk| (0..stage.layout.microbatches()).map(move |microbatch| Action { pass, microbatch, chunk });
    chunks.flat_map(of_chunk).map(Some).collect()
}

/// Whether a pass over a microbatch does it.
fn runs(found: &Found, stage: &StageProgram, action: Action) -> bool {
    let Some(op) = found.op else { return true };
    let when = stage.section(action).ops[op].when;
    when.includes(action.microbatch, stage.layout.microbatches(), Default::default())
}

/// Seconds of a span within any of some that follow each other.
fn overlap(spans: &[[f64; 2]], [start, end]: [f64; 2]) -> f64 {
    let first = spans.partition_point(|span| span[1] <= start);
    spans[first..].iter().take_while(|span| span[0] < end).map(|span| span[1].min(end) - span[0].max(start)).sum()
}
