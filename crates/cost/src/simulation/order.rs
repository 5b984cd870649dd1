//! In which order a stage does things.

use quadrille_spec::Axis;
use quadrille_step::StageProgram;
use quadrille_step::schedule::{Action, Pass, Step};

/// The next thing that a stage does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Next {
    Post(Action),
    /// A pass, or the update.
    Begin(Option<Action>),
    /// More of the pass or update that has begun.
    Continue,
    Release(Action),
}

/// How far a stage has come in the order of its program. A message-driven stage takes what has arrived, backward before
/// forward; its first stage begins a microbatch when fewer than `min(stages, microbatches)` are in flight. The
/// microbatches of each pass come in ascending order.
pub(super) struct Order<'a> {
    program: &'a StageProgram,
    /// The stage's steps, in order.
    list: &'a [Step],
    by_messages: bool,
    /// Steps of the optimizer that are over.
    pub steps: usize,
    /// The next of the stage's listed steps, if they are followed.
    listed: usize,
    /// Passes of this step that have begun, if messages drive them.
    begun: [usize; 2],
}

impl<'a> Order<'a> {
    pub fn new(program: &'a StageProgram, list: &'a [Step]) -> Self {
        Self { program, list, by_messages: program.is_message_driven(), steps: 0, listed: 0, begun: [0; 2] }
    }

    /// What comes next and when, given the earliest `time` of each possible thing, at least `now`; `None` if not known.
    #[inline]
    pub fn next(&self, now: f64, time: impl Fn(Next) -> Option<f64>) -> Option<(f64, Next)> {
        if self.by_messages {
            return self.next_arrived(now, time);
        }
        let next = match self.list.get(self.listed) {
            Some(Step::Post(action)) => Next::Post(*action),
            Some(Step::Run(action)) => Next::Begin(Some(*action)),
            Some(Step::Release(action)) => Next::Release(*action),
            None => Next::Begin(None),
        };
        Some((time(next)?, next))
    }

    fn next_arrived(&self, now: f64, time: impl Fn(Next) -> Option<f64>) -> Option<(f64, Next)> {
        let microbatches = self.program.layout.microbatches();
        let limit = microbatches.min(self.program.grid().size(Axis::Pipe));
        let [forwards, backwards] = self.begun;
        if backwards == microbatches {
            return Some((now, Next::Begin(None)));
        }
        let candidate = |pass, microbatch, possible: bool| {
            let next = Next::Begin(Some(Action { pass, microbatch, chunk: 0 }));
            Some((time(next).filter(|_| possible)?, next))
        };
        let backward = candidate(Pass::Backward, backwards, backwards < forwards);
        let forward = candidate(Pass::Forward, forwards, forwards < microbatches && forwards - backwards < limit);
        match (backward, forward) {
            (Some(backward), Some(forward)) if forward.0 < backward.0 => Some(forward),
            (backward, forward) => backward.or(forward),
        }
    }

    /// Goes on behind what is done now.
    pub fn advance(&mut self, next: Next) {
        match next {
            Next::Continue | Next::Begin(None) => return,
            Next::Begin(Some(Action { pass: Pass::Forward, .. })) => self.begun[0] += 1,
            Next::Begin(Some(Action { pass: Pass::Backward, .. })) => self.begun[1] += 1,
            Next::Begin(Some(_)) | Next::Post(_) | Next::Release(_) => {}
        }
        self.listed += 1;
    }

    /// Begins again.
    pub fn next_step(&mut self) {
        *self = Self { steps: self.steps + 1, ..Self::new(self.program, self.list) };
    }
}
