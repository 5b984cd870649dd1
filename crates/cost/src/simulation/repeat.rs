//! Passes that take the same time again: followed operation by operation once, and then repeated as a whole.

use quadrille_step::schedule::Action;

use super::{Event, StageTimes};

/// What a pass takes that begins with a free communication stream.
#[derive(Debug, Clone, Default)]
pub(super) struct Repeat {
    pub seconds: f64,
    /// What it adds to the times of its stage.
    pub times: StageTimes,
    /// From the beginning of the pass.
    pub events: Vec<Event>,
}

/// The passes of a kind of stages that have been followed.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    /// By chunk and pass.
    known: Vec<[Option<Repeat>; 3]>,
}

impl Repeats {
    pub fn get(&self, action: Action) -> Option<&Repeat> {
        self.known.get(action.chunk)?[action.pass as usize].as_ref()
    }

    pub fn insert(&mut self, action: Action, repeat: Repeat) {
        let chunks = self.known.len().max(action.chunk + 1);
        self.known.resize_with(chunks, Default::default);
        self.known[action.chunk][action.pass as usize] = Some(repeat);
    }
}

impl Repeat {
    /// The difference between two states of a stage's record, `seconds` apart: at `start` and after the pass.
    pub fn between(start: f64, seconds: f64, before: &StageTimes, after: &StageTimes, events: &[Event]) -> Self {
        let mut times = after.clone();
        times.busy_s -= before.busy_s;
        for (axes, waited) in &before.waiting_on_collectives_s {
            *times.waiting_on_collectives_s.entry(*axes).or_default() -= waited;
        }
        times.waiting_on_collectives_s.retain(|_, waited| *waited > 0.0);
        let shifted = |event: &Event| Event { start_s: event.start_s - start, end_s: event.end_s - start, ..*event };
        Self { seconds, times, events: events.iter().map(shifted).collect() }
    }

    /// Adds it to the record of a stage, for a pass that begins at `start`.
    pub fn add_to(&self, stage: usize, action: Action, start: f64, times: &mut StageTimes, events: &mut Vec<Event>) {
        times.busy_s += self.times.busy_s;
        for (axes, waited) in &self.times.waiting_on_collectives_s {
            *times.waiting_on_collectives_s.entry(*axes).or_default() += waited;
        }
        events.extend(self.events.iter().map(|event| Event {
            stage,
            action: Some(action),
            start_s: start + event.start_s,
            end_s: start + event.end_s,
            ..*event
        }));
    }
}
