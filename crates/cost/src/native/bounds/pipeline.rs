//! How long a pipeline takes at least, from the passes of its pieces of layers.
//!
//! A stage waits for the first microbatch on its way in, does all its passes, and has the way out of the last one behind it.
//! In between it idles at least twice: after the forward passes that it may do before the first microbatch has come back
//! from behind it, and before the last one comes back. Messages between stages take their time on every way.

use std::ops::Range;

use quadrille_spec::{EvenPieces, Schedule};
use quadrille_step::schedule::{self, Action, ScheduleError};

use super::measured::Place;

/// Seconds of a microbatch: forward, backward, gradients of weights that are put off.
type Passes = [f64; 3];

/// Passes of a pipeline.
#[derive(Debug, Clone)]
pub(super) struct Pipeline {
    pub schedule: Schedule,
    pub stages: usize,
    /// Pieces of a stage.
    pub chunks: usize,
    pub microbatches: usize,
    /// Seconds of the messages of a microbatch between two stages.
    pub message: f64,
    /// Seconds of the first piece, of those between with fewer blocks and with one more, and of the last.
    pieces: [Passes; 4],
    /// Pieces with one more.
    longer: Range<usize>,
    /// Where blocks differ: seconds of every piece.
    each: Option<Each>,
}

/// Seconds of every piece, and of all those before each one and of all.
#[derive(Debug, Clone)]
struct Each {
    pieces: Vec<Passes>,
    before: Vec<Passes>,
}

impl Each {
    fn new(even: EvenPieces, pieces: usize, places: &[Place; 3]) -> Self {
        let of = |piece: usize| {
            let place = &places[if piece == 0 { 0 } else { 1 + usize::from(piece + 1 == pieces) }];
            place.passes.each_ref().map(|pass| pass.of(even.range(piece)))
        };
        let pieces: Vec<Passes> = (0..pieces).map(of).collect();
        let mut before = vec![[0.0; 3]];
        for (at, piece) in pieces.iter().enumerate() {
            before.push(std::array::from_fn(|pass| before[at][pass] + piece[pass]));
        }
        Self { pieces, before }
    }
}

/// Seconds that the passes of a step take at least.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Passed {
    /// Until the first stage can begin its update.
    pub first: f64,
    /// Until any stage can.
    pub any: f64,
}

impl Passed {
    /// Seconds of a step in which the first stage's update takes so long.
    pub fn with(self, update: f64) -> f64 {
        (self.first + update).max(self.any)
    }
}

/// A stage with what lies around it.
struct Around {
    /// The ways in and out, forward and backward.
    inward: f64,
    outward: f64,
    /// Passes of a microbatch.
    own: Passes,
    /// From the begin of the first forward pass to that of the first backward pass, and from the end of the last forward
    /// pass to that of the last backward pass.
    turns: [f64; 2],
    /// The passes that the stage can do meanwhile.
    meanwhile: [f64; 2],
    /// Whether all forward passes come before the first backward pass.
    all_forward_first: bool,
}

impl Pipeline {
    /// A pipeline whose pieces, as equal as possible, take at these places what their blocks say.
    pub fn new(
        schedule: Schedule,
        [stages, chunks, microbatches]: [usize; 3],
        even: EvenPieces,
        places: &[Place; 3],
        message: f64,
    ) -> Self {
        let at = |place: usize, blocks: usize| places[place].passes.each_ref().map(|pass| pass.at(blocks));
        let least = even.least();
        let last = even.blocks_of(stages * chunks - 1);
        let pieces = [at(0, even.blocks_of(0)), at(1, least), at(1, least + 1), at(2, last)];
        let each = places[0].passes[0].is_mixed().then(|| Each::new(even, stages * chunks, places));
        Self { schedule, stages, chunks, microbatches, message, pieces, longer: even.longer(), each }
    }

    /// Seconds from the first pass on.
    pub fn least(&self) -> Passed {
        if self.schedule == Schedule::Gpipe {
            let seconds = self.gpipe();
            return Passed { first: seconds, any: seconds };
        }
        let mut passed = Passed::default();
        for stage in self.differing_stages() {
            let around = self.around(stage);
            let here = self.stage(&around);
            // Weight gradients that are put off are done beside the way out, and the first stage's after it.
            let own = around.inward + here + self.microbatches as f64 * around.own[2];
            let through = around.inward + here + around.outward + self.piece(0)[2];
            passed.any = passed.any.max(own);
            passed.first = passed.first.max(if stage == 0 { own } else { through });
        }
        passed.any = passed.any.max(passed.first);
        passed
    }

    /// Stages that take as long as any other does.
    fn differing_stages(&self) -> Vec<usize> {
        if self.each.is_some() {
            return (0..self.stages).collect();
        }
        let longer = &self.longer;
        let inner = if longer.is_empty() { [1; 2] } else { [longer.start, longer.end - 1] };
        let mut stages = vec![0, self.stages - 1, inner[0] % self.stages, inner[1] % self.stages];
        stages.sort_unstable();
        stages.dedup();
        stages
    }

    /// The lists of the schedule; `None` if messages drive it.
    ///
    /// # Errors
    /// What the schedule cannot order.
    pub fn lists(&self) -> Result<Option<Vec<Vec<Action>>>, ScheduleError> {
        match self.schedule {
            Schedule::MessageDriven => Ok(None),
            schedule => schedule::actions(schedule, self.sizes()).map(Some),
        }
    }

    fn sizes(&self) -> schedule::Pipeline {
        let Self { stages, chunks, microbatches, .. } = *self;
        schedule::Pipeline { stages, chunks, microbatches, group: stages }
    }

    /// The same as [`Pipeline::least`] from the lists of the schedule: more, since every wait counts.
    ///
    /// # Errors
    /// Lists that wait for each other for ever.
    pub fn along(&self, lists: &[Vec<Action>]) -> Result<Passed, ScheduleError> {
        let times = |stage: usize, action: Action| self.piece(action.chunk * self.stages + stage)[action.pass as usize];
        let timing = schedule::execute(lists, self.sizes(), times, self.message)?;
        let first = timing.spans.first().and_then(|spans| spans.last()).map_or(0.0, |span| span.end);
        Ok(Passed { first, any: timing.total })
    }

    /// Seconds of a piece.
    fn piece(&self, piece: usize) -> &Passes {
        if let Some(each) = &self.each {
            return &each.pieces[piece];
        }
        match piece {
            0 => &self.pieces[0],
            piece if piece + 1 == self.stages * self.chunks => &self.pieces[3],
            piece => &self.pieces[if self.longer.contains(&piece) { 2 } else { 1 }],
        }
    }

    /// Seconds of a pass through several pieces.
    fn sum(&self, pieces: Range<usize>, pass: usize) -> f64 {
        if let Some(each) = &self.each {
            return each.before[pieces.end.max(pieces.start)][pass] - each.before[pieces.start][pass];
        }
        let all = self.stages * self.chunks;
        let ends = [0, all - 1].into_iter().take(all.min(2)).filter(|end| pieces.contains(end));
        let between = pieces.start.max(1)..pieces.end.min(all - 1);
        let longer = between.end.min(self.longer.end).saturating_sub(between.start.max(self.longer.start));
        let shorter = between.len() - longer.min(between.len());
        let [_, short, long, _] = self.pieces;
        ends.map(|end| self.piece(end)[pass]).sum::<f64>() + shorter as f64 * short[pass] + longer as f64 * long[pass]
    }

    /// All forward passes, then all backward passes: each as long as the way through all stages, and the longest again
    /// for every further microbatch.
    fn gpipe(&self) -> f64 {
        let through = |pass: usize| {
            let pieces = self.differing_stages().into_iter();
            let longest = pieces.map(|piece| self.piece(piece)[pass]).fold(0.0, f64::max);
            let way = self.sum(0..self.stages, pass) + (self.stages - 1) as f64 * self.message;
            way + (self.microbatches - 1) as f64 * longest
        };
        through(0) + through(1)
    }

    /// Forward and backward passes of a stage with the waits between them.
    fn stage(&self, around: &Around) -> f64 {
        let passes = self.microbatches as f64 * (around.own[0] + around.own[1]);
        let [first, last] = [0, 1].map(|turn| (around.turns[turn] - around.meanwhile[turn]).max(0.0));
        match (self.schedule, around.all_forward_first) {
            // A greedy stage, and one that puts weight gradients off, may fill the second wait.
            (Schedule::MessageDriven | Schedule::ZeroBubble, _) => passes + first,
            (_, true) => passes + first.max(last),
            (_, false) => passes + first + last,
        }
    }

    fn around(&self, stage: usize) -> Around {
        let p = self.stages;
        let v = self.chunks;
        let m = self.microbatches;
        let behind = p - 1 - stage;
        let last = (v - 1) * p + stage;
        let message = |count: usize| count as f64 * self.message;
        let after = last + 1..p * v;
        let beyond = self.sum(after.clone(), 0) + self.sum(after, 1) + message(2 * behind);
        // Forward passes until the first backward pass, and as many backward passes after the last forward pass.
        let open = match self.schedule {
            Schedule::MessageDriven => p.min(m),
            _ if v == 1 => (behind + 1).min(m),
            _ => (2 * behind + (v - 1) * p + 1).min(m * v),
        };
        let groups = open / (p * v);
        let rest = open % (p * v);
        let mut own = [0.0; 3];
        let mut meanwhile = [0.0; 2];
        for chunk in 0..v {
            let passes = self.piece(chunk * p + stage);
            let count = (groups * p + rest.saturating_sub(chunk * p).min(p)) as f64;
            (0..3).for_each(|pass| own[pass] += passes[pass]);
            (0..2).for_each(|pass| meanwhile[pass] += count * passes[pass]);
        }
        let until_last = |pass: usize| self.sum(stage..last + 1, pass) + message(last - stage);
        Around {
            inward: self.sum(0..stage, 0) + message(stage),
            outward: self.sum(0..stage, 1) + message(stage),
            own,
            turns: [until_last(0) + beyond, beyond + until_last(1)],
            meanwhile,
            all_forward_first: open == m * v,
        }
    }
}
