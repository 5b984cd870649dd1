//! Message-driven (AxoNN): a stage works on whatever message has arrived. Here the order is found once, by simulation
//! with a backward twice as long as a forward and messages that take no time, and then followed: two runs are equal.
//!
//! Stage 0 begins `min(p, m)` microbatches, then a new one for every gradient that it has finished. Every stage takes a
//! backward before a forward if both are there. At most `min(p, m)` microbatches are in flight on any stage.

use super::{Action, Pass, Pipeline};

/// A stage while the order is found. Microbatches arrive and begin in ascending order, so counts say which.
#[derive(Clone, Default)]
struct Stage {
    /// Microbatches whose forward or backward may begin: arrived, by pass.
    arrived: [usize; 2],
    /// Microbatches whose forward or backward has begun, by pass.
    begun: [usize; 2],
    /// The running pass and when it ends.
    running: Option<(Pass, usize)>,
    list: Vec<Action>,
}

impl Stage {
    /// Begins a backward that is there, else a forward that is there, if the stage is idle.
    fn begin(&mut self, now: usize) {
        let there = |pass: &Pass| self.begun[*pass as usize] < self.arrived[*pass as usize];
        let Some(pass) = [Pass::Backward, Pass::Forward].into_iter().find(there) else { return };
        if self.running.is_none() {
            let length = if pass == Pass::Backward { 2 } else { 1 };
            self.running = Some((pass, now + length));
            self.list.push(Action { pass, microbatch: self.begun[pass as usize], chunk: 0 });
            self.begun[pass as usize] += 1;
        }
    }
}

/// The lists of all stages.
pub(super) fn actions(pipeline: Pipeline) -> Vec<Vec<Action>> {
    let last = pipeline.stages - 1;
    let m = pipeline.microbatches;
    let mut stages = vec![Stage::default(); pipeline.stages];
    stages[0].arrived[Pass::Forward as usize] = pipeline.stages.min(m);
    let mut now = 0;
    while stages.iter().any(|stage| stage.list.len() < 2 * m) {
        for index in 0..=last {
            let Some((pass, _)) = stages[index].running.take_if(|(_, end)| *end == now) else { continue };
            let (receiver, pass) = match pass {
                Pass::Forward if index == last => (last, Pass::Backward),
                Pass::Forward => (index + 1, pass),
                Pass::Backward if index == 0 => (0, Pass::Forward),
                _ => (index - 1, pass),
            };
            let arrived = &mut stages[receiver].arrived[pass as usize];
            *arrived = m.min(*arrived + 1);
        }
        stages.iter_mut().for_each(|stage| stage.begin(now));
        now += 1;
    }
    stages.into_iter().map(|stage| stage.list).collect()
}
