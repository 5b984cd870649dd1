//! What a simulation reports.

use std::collections::BTreeMap;
use std::fmt;

use quadrille_spec::AxisSet;
use quadrille_step::Layer;
use quadrille_step::schedule::Action;

/// A stream of a stage's rank: what lies on one lane never overlaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// The compute stream.
    Compute,
    /// The communication stream of a set of axes.
    Axes(AxisSet),
    /// The link to another stage.
    Link {
        /// The stage that receives.
        to: usize,
    },
    /// Between the device and the memory of its host.
    Host,
}

impl Lane {
    /// `compute`, `collective`, `message` or `copy`.
    pub fn category(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Axes(_) => "collective",
            Self::Link { .. } => "message",
            Self::Host => "copy",
        }
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compute => f.write_str("compute"),
            Self::Axes(axes) => write!(f, "collectives {}", axes.key()),
            Self::Link { to } => write!(f, "messages to stage {to}"),
            Self::Host => f.write_str("copies of states"),
        }
    }
}

/// Something that takes time on one lane. Neighbouring element-wise operations of a layer are one event.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Event {
    /// The stage.
    pub stage: usize,
    /// Where.
    pub lane: Lane,
    /// The operation's or collective's name, `element-wise`, or `message`.
    pub name: &'static str,
    /// The layer that it belongs to.
    pub layer: Layer,
    /// The pass that began it; `None`: the update.
    pub action: Option<Action>,
    /// The number of the operation of that pass or update that began it, of several the first; on a link that of the message among
    /// those that the pass sends. `None`: what ranks agree on before a pass.
    pub number: Option<usize>,
    /// Seconds from the beginning of the step.
    pub start_s: f64,
    /// Seconds from the beginning of the step.
    pub end_s: f64,
}

/// What begins an event: a pass or the update, and the number of the operation or message in it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Begun {
    pub action: Option<Action>,
    pub number: Option<usize>,
}

/// A pass or update of a stage, from its first operation to the end of its last, waits for collectives included. Where
/// an update waits for other stages it is cut.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PassSpan {
    /// The stage.
    pub stage: usize,
    /// Which pass; `None`: the update.
    pub action: Option<Action>,
    /// Seconds from the beginning of the step.
    pub start_s: f64,
    /// Seconds from the beginning of the step.
    pub end_s: f64,
}

/// What the compute stream of a stage does during a step, in seconds. The first four add up to [`Self::total_s`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StageTimes {
    /// It computes.
    pub busy_s: f64,
    /// It waits for collectives, or computes more slowly beside them by so much, by the axes of those that run meanwhile: while one
    /// waits for its stream, of those before it there; beside several streams, of the one that is busy longest.
    pub waiting_on_collectives_s: BTreeMap<AxisSet, f64>,
    /// It waits for copies to and from the memory of its host.
    pub waiting_on_host_s: f64,
    /// It waits for other stages, the pipeline's bubble: for messages to arrive or to be taken, and for stages that
    /// have not yet come to a common reduction.
    pub waiting_on_stages_s: f64,
    /// Of all this: from the beginning of the update to its end.
    pub update_s: f64,
}

/// The same while it is counted: there are few sets of axes.
#[derive(Debug, Clone, Default)]
pub(super) struct Times {
    pub busy_s: f64,
    pub waiting_on_collectives_s: Vec<(AxisSet, f64)>,
    pub waiting_on_host_s: f64,
    pub waiting_on_stages_s: f64,
    pub update_s: f64,
}

impl From<Times> for StageTimes {
    fn from(times: Times) -> Self {
        let Times { busy_s, waiting_on_collectives_s, waiting_on_host_s, waiting_on_stages_s, update_s } = times;
        let waiting_on_collectives_s = waiting_on_collectives_s.into_iter().collect();
        Self { busy_s, waiting_on_collectives_s, waiting_on_host_s, waiting_on_stages_s, update_s }
    }
}

impl StageTimes {
    /// The step of this stage.
    pub fn total_s(&self) -> f64 {
        let waiting = self.waiting_on_host_s + self.waiting_on_stages_s;
        self.busy_s + self.waiting_on_collectives_s.values().sum::<f64>() + waiting
    }
}

/// One step of every stage, when steps follow each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Simulation {
    /// From the end of one step to the end of the next.
    pub step_seconds: f64,
    /// By stage.
    pub stages: Vec<StageTimes>,
    /// By stage, in order of time.
    pub passes: Vec<PassSpan>,
    /// By stage and lane, in order of time. Gathers that the update leaves to the next step may end after this one.
    pub events: Vec<Event>,
}

impl Simulation {
    /// Waiting for other stages over all else, of all stages together: idle over ideal time, as Megatron-LM (PTD-P,
    /// section 2.2) counts the bubble; 0 if nothing takes time.
    pub fn bubble(&self) -> f64 {
        let sum = |of: fn(&StageTimes) -> f64| self.stages.iter().map(of).sum::<f64>();
        let waiting = sum(|stage| stage.waiting_on_stages_s);
        let ideal = sum(StageTimes::total_s) - waiting;
        if ideal > 0.0 { waiting / ideal } else { 0.0 }
    }
}
