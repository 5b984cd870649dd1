//! Passes that take the same time again: followed operation by operation once, from a time 0 of their own, and then repeated as
//! a whole. So they take the same to the last bit whenever they begin: what is decided by who comes first is decided alike.

use quadrille_step::schedule::Action;

use super::Event;
use super::exchange::entry;
use super::record::Times;

/// What a pass takes that begins with a free communication stream.
#[derive(Debug, Clone, Default)]
pub(super) struct Repeat {
    pub seconds: f64,
    /// What it adds to the times of its stage.
    pub times: Times,
    /// From the beginning of the pass.
    pub events: Vec<Event>,
}

/// The passes of a kind of stages that have been followed.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    /// By chunk and pass.
    known: Vec<[Option<Followed>; 3]>,
}

/// What is known of a pass that has been followed; `None`: it leaves collectives under way, and so is not the same again.
type Followed = Option<Repeat>;

impl Repeats {
    /// What is known of a pass; `None` as long as it was not followed.
    pub fn get(&mut self, action: Action) -> &mut Option<Followed> {
        let chunks = self.known.len().max(action.chunk + 1);
        self.known.resize_with(chunks, Default::default);
        &mut self.known[action.chunk][action.pass as usize]
    }
}

impl Repeat {
    /// Adds it to the record of a stage, for a pass that begins at `start`.
    pub fn add_to(&self, stage: usize, action: Action, start: f64, times: &mut Times, events: &mut Vec<Event>) {
        times.busy_s += self.times.busy_s;
        for (axes, waited) in &self.times.waiting_on_collectives_s {
            *entry(&mut times.waiting_on_collectives_s, *axes, 0.0) += waited;
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
