//! What hides communication: what is computed between its begin and the wait for it, by the program, and for how long, by a
//! simulation.

use std::collections::HashMap;

use quadrille_cost::simulation::{Event, Lane, Simulation};
use quadrille_step::schedule::Action;
use quadrille_step::{Collective, Operation, Section, StageProgram};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::moves::{Found, Place};

/// Where the wait for something that was begun stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Waited {
    /// Nothing is computed meanwhile.
    AtOnce,
    /// Other operations of the pass are.
    Later,
    /// The pass ends before it.
    InAnotherPass,
    /// The step ends before it: the next one's forward pass waits.
    InNextStep,
    /// A message that is received: the pass waits for it before it begins.
    BeforePass,
    /// A message that is sent: only who receives it waits.
    ByOthers,
}

/// What hides something that moves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
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

    pub(super) fn message(is_sent: bool) -> Self {
        Self { waited: if is_sent { Waited::ByOthers } else { Waited::BeforePass }, ..Self::at_once() }
    }

    /// By the order of the operations of a section of the stage, of which one begins it.
    pub(super) fn in_program(stage: &StageProgram, section: &Section, issue: usize) -> Self {
        let begun = &section.ops[issue].operation;
        if let Operation::ReduceScalar(_) = begun {
            return Self::at_once();
        }
        let after = &section.ops[issue + 1..];
        let wait = after.iter().position(|op| waits_for(&op.operation, begun));
        let mut under: Vec<String> = Vec::new();
        for op in after[..wait.unwrap_or(after.len())].iter().filter(|op| op.operation.group().computes()) {
            let name = op.operation.name();
            if !under.iter().any(|known| known == name) {
                under.push(name.to_owned());
            }
        }
        let waited = match wait {
            None if is_carried(stage, begun) => Waited::InNextStep,
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
            Waited::InNextStep => "until the forward pass of the next step waits for it".to_owned(),
            Waited::BeforePass => "waited for before the pass begins".to_owned(),
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

/// Whether an operation waits for what another one of its section has begun.
fn waits_for(operation: &Operation, begun: &Operation) -> bool {
    match (operation, begun) {
        (Operation::Wait(waited), Operation::Issue(begun)) => same(waited, begun),
        (Operation::AwaitFetch(waited), Operation::Fetch(begun)) => waited.bucket == begun.bucket,
        (Operation::AwaitStore(waited), Operation::Store(begun)) => waited.bucket == begun.bucket,
        _ => false,
    }
}

/// Whether passes of the next step wait for what the update has begun.
fn is_carried(stage: &StageProgram, begun: &Operation) -> bool {
    let Operation::Issue(begun) = begun else { return false };
    let mut ops = stage.chunks.iter().flat_map(|chunk| chunk.sections()).flat_map(|section| &section.ops);
    ops.any(|op| matches!(&op.operation, Operation::WaitCarried(waited) if same(waited, begun)))
}

fn same(a: &Collective, b: &Collective) -> bool {
    (a.kind, a.axes, a.input, a.output) == (b.kind, b.axes, b.input, b.output)
}

/// What begins something in a step: a pass, whether it is a message that it sends, and the number of the operation or message.
type Begin = (Option<Action>, bool, usize);

/// Adds to what a rank of the stage moves how long that takes and how much of it is hidden in a simulated step.
pub(super) fn simulated(found: &mut [Found], stage: &StageProgram, simulation: &Simulation) {
    let of_stage = || simulation.events.iter().filter(|event| event.stage == stage.stage);
    let computing: Vec<[f64; 2]> =
        of_stage().filter(|event| event.lane == Lane::Compute).map(|event| [event.start_s, event.end_s]).collect();
    let mut begun: HashMap<Begin, &Event> = HashMap::new();
    let mut decisions = Vec::new();
    for event in of_stage().filter(|event| event.lane != Lane::Compute) {
        match event.number {
            Some(number) => {
                begun.insert((event.action, matches!(event.lane, Lane::Link { .. }), number), event);
            }
            None => decisions.push(event),
        }
    }
    for each in found {
        let events: Vec<&Event> = match each.place {
            Place::Decision => decisions.clone(),
            Place::Received => Vec::new(),
            Place::Sent(number) | Place::Operation(number) => {
                let is_sent = matches!(each.place, Place::Sent(_));
                let actions = actions(stage, each).into_iter();
                actions.filter_map(|action| begun.get(&(action, is_sent, number)).copied()).collect()
            }
        };
        let hidden = &mut each.told.hidden;
        for event in events {
            *hidden.seconds.get_or_insert(0.0) += event.end_s - event.start_s;
            *hidden.hidden_s.get_or_insert(0.0) += overlap(&computing, [event.start_s, event.end_s]);
        }
    }
}

/// The passes over all microbatches that it may be of; once none for the update.
fn actions(stage: &StageProgram, found: &Found) -> Vec<Option<Action>> {
    let Some(pass) = found.pass else { return vec![None] };
    let chunk = found.chunk;
    (0..stage.layout.microbatches()).map(|microbatch| Some(Action { pass, microbatch, chunk })).collect()
}

/// Seconds of a span within any of some that follow each other.
fn overlap(spans: &[[f64; 2]], [start, end]: [f64; 2]) -> f64 {
    let first = spans.partition_point(|span| span[1] <= start);
    spans[first..].iter().take_while(|span| span[0] < end).map(|span| span[1].min(end) - span[0].max(start)).sum()
}
