//! How long a schedule takes, if every message takes the same time.

use std::collections::VecDeque;

use super::check::{check_order, training_passes};
use super::{Action, Pipeline, ScheduleError};

/// When an action runs, in the unit of the given times, from the begin of the first action at 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// Begin.
    pub start: f64,
    /// End.
    pub end: f64,
}

/// When every action runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Timing {
    /// By stage, in the order of its list.
    pub spans: Vec<Vec<Span>>,
    /// When the last action of all ends.
    pub total: f64,
}

impl Timing {
    /// Per stage: the time in which it works.
    pub fn busy(&self) -> Vec<f64> {
        self.spans.iter().map(|spans| spans.iter().map(|span| span.end - span.start).sum()).collect()
    }

    /// Per stage: the time of the whole in which it is idle.
    pub fn idle(&self) -> Vec<f64> {
        self.busy().into_iter().map(|busy| self.total - busy).collect()
    }

    /// The bubble over the ideal time (Megatron-LM PTD-P, section 2.2): idle over working time of all stages together.
    /// 0 if no work takes time.
    pub fn bubble(&self) -> f64 {
        let busy: f64 = self.busy().iter().sum();
        if busy == 0.0 { 0.0 } else { self.idle().iter().sum::<f64>() / busy }
    }
}

/// Times lists of actions: every stage runs its own in order, each as soon as its message is there; messages take no
/// time and senders do not wait. `times` gives the time of an action on a stage, not negative, in any unit.
///
/// # Errors
///
/// As [`check`](super::check); the lists have weight gradients everywhere or nowhere.
pub fn makespan(
    lists: &[Vec<Action>],
    pipeline: Pipeline,
    times: impl Fn(usize, Action) -> f64,
) -> Result<Timing, ScheduleError> {
    check_order(lists, pipeline, training_passes(lists))?;
    execute(lists, pipeline, times, 0.0)
}

/// [`makespan`] of lists that [`actions`](super::actions) has made, with messages that each take the time `message`, however
/// many are under way, in the unit of `times`: no execution in this order that takes these times at least is shorter.
///
/// # Errors
///
/// Lists that wait for each other for ever.
///
/// # Panics
///
/// Lists of another pipeline.
pub fn execute(
    lists: &[Vec<Action>],
    pipeline: Pipeline,
    times: impl Fn(usize, Action) -> f64,
    message: f64,
) -> Result<Timing, ScheduleError> {
    let mut ends: Vec<Option<f64>> = vec![None; pipeline.slots()];
    let mut spans: Vec<Vec<Span>> = lists.iter().map(|list| Vec::with_capacity(list.len())).collect();
    // Stages that may be able to go on.
    let mut waiting: VecDeque<usize> = (0..lists.len()).collect();
    while let Some(stage) = waiting.pop_front() {
        let before = spans[stage].len();
        let mut free = spans[stage].last().map_or(0.0, |span| span.end);
        for &action in &lists[stage][before..] {
            let arrival = match pipeline.source(stage, action) {
                Some((sender, sending)) => ends[pipeline.slot(sender, sending)].map(|end| end + message),
                None => Some(0.0),
            };
            let Some(arrival) = arrival else { break };
            let start = free.max(arrival);
            free = start + times(stage, action);
            ends[pipeline.slot(stage, action)] = Some(free);
            spans[stage].push(Span { start, end: free });
        }
        if spans[stage].len() > before {
            waiting.extend([(stage + 1) % pipeline.stages, (stage + pipeline.stages - 1) % pipeline.stages]);
        }
    }
    for (stage, list) in lists.iter().enumerate() {
        let stuck = list.get(spans[stage].len()).and_then(|action| Some((*action, pipeline.source(stage, *action)?)));
        if let Some((action, (sender, needed))) = stuck {
            return Err(ScheduleError::Deadlock { stage, action, sender, needed });
        }
    }
    let total = spans.iter().flatten().map(|span| span.end).fold(0.0, f64::max);
    Ok(Timing { spans, total })
}
