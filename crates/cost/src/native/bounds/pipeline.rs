//! How long a pipeline takes at least, from the passes of its pieces of layers.
//!
//! A stage waits for the first microbatch on its way in, does all its passes, and has the way out of the last one behind it.
//! In between it idles at least twice: after the forward passes that it may do before the first microbatch has come back
//! from behind it, and before the last one comes back. Messages between stages take their time on every way.

use quadrille_spec::Schedule;

/// Passes of a pipeline.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pipeline<'a> {
    pub schedule: Schedule,
    pub stages: usize,
    /// Pieces of a stage.
    pub chunks: usize,
    pub microbatches: usize,
    /// Seconds of every piece, in the order of the model: forward, backward, gradients of weights that are put off.
    pub pieces: &'a [[f64; 3]],
    /// Seconds of the messages of a microbatch between two stages.
    pub message: f64,
}

/// Seconds that the passes of a step take at least.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Passed {
    /// Until the first stage can begin its update.
    pub first: f64,
    /// Until any stage can.
    pub any: f64,
}

/// A stage with what lies around it.
struct Around {
    /// The ways in and out, forward and backward.
    inward: f64,
    outward: f64,
    /// Passes of a microbatch.
    forward: f64,
    backward: f64,
    weights: f64,
    /// From the end of the first forward pass to the first backward pass, and from the end of the last forward pass to
    /// that of the last backward pass, without the passes of this stage that it waits with.
    turn: f64,
    last_turn: f64,
    /// The passes that it does before it waits, and that are left when it has waited.
    before: f64,
    behind: f64,
    /// Whether all forward passes come before the first backward pass.
    all_forward_first: bool,
}

impl Pipeline<'_> {
    /// Seconds from the first pass on.
    pub fn least(&self) -> Passed {
        if self.schedule == Schedule::Gpipe {
            let seconds = self.gpipe();
            return Passed { first: seconds, any: seconds };
        }
        let mut passed = Passed::default();
        for stage in 0..self.stages {
            let around = self.around(stage);
            let here = self.stage(&around);
            // Weight gradients that are put off are done beside the way out, and the first stage's after it.
            let own = around.inward + here + self.microbatches as f64 * around.weights;
            let through = around.inward + here + around.outward + self.pieces[0][2];
            passed.any = passed.any.max(own);
            passed.first = passed.first.max(if stage == 0 { own } else { through });
        }
        passed.any = passed.any.max(passed.first);
        passed
    }

    /// All forward passes, then all backward passes: each as long as the way through all stages, and the longest again
    /// for every further microbatch.
    fn gpipe(&self) -> f64 {
        let through = |pass: usize| {
            let all: f64 = self.pieces.iter().map(|piece| piece[pass]).sum();
            let longest = self.pieces.iter().map(|piece| piece[pass]).fold(0.0, f64::max);
            all + (self.stages - 1) as f64 * self.message + (self.microbatches - 1) as f64 * longest
        };
        through(0) + through(1)
    }

    /// Forward and backward passes of a stage with the waits between them.
    fn stage(&self, around: &Around) -> f64 {
        let m = self.microbatches as f64;
        let Around { forward, backward, turn, last_turn, before, behind, .. } = *around;
        let passes = m * (forward + backward);
        let [first, last] = [(turn - before).max(0.0), (last_turn - behind).max(0.0)];
        match (self.schedule, around.all_forward_first) {
            // A greedy stage, and one that puts weight gradients off, may fill the second wait.
            (Schedule::MessageDriven | Schedule::ZeroBubble, _) => passes + first,
            (_, true) => passes + first.max(last),
            (_, false) => passes + first + last,
        }
    }

    fn around(&self, stage: usize) -> Around {
        let (p, v, m) = (self.stages, self.chunks, self.microbatches);
        let behind = p - 1 - stage;
        let sum = |pieces: &[[f64; 3]], pass: usize| pieces.iter().map(|piece| piece[pass]).sum::<f64>();
        let message = |count: usize| count as f64 * self.message;
        let own = || (0..v).map(|chunk| self.pieces[chunk * p + stage]);
        let (before, last) = (&self.pieces[..stage], (v - 1) * p + stage);
        let after = &self.pieces[last + 1..];
        let beyond = sum(after, 0) + sum(after, 1) + message(2 * behind);
        // Forward passes until the first backward pass, and as many backward passes after the last forward pass.
        let open = match self.schedule {
            Schedule::MessageDriven => p.min(m),
            _ if v == 1 => (behind + 1).min(m),
            _ => (2 * behind + (v - 1) * p + 1).min(m * v),
        };
        let of_chunk = |chunk: usize| {
            let (groups, rest) = (open / (p * v), open % (p * v));
            (groups * p + rest.saturating_sub(chunk * p).min(p)) as f64
        };
        let passes = |pass: usize| own().enumerate().map(|(chunk, piece)| of_chunk(chunk) * piece[pass]).sum::<f64>();
        let until_last = &self.pieces[stage..=last];
        Around {
            inward: sum(before, 0) + message(stage),
            outward: sum(before, 1) + message(stage),
            forward: own().map(|piece| piece[0]).sum(),
            backward: own().map(|piece| piece[1]).sum(),
            weights: own().map(|piece| piece[2]).sum(),
            turn: sum(until_last, 0) + message(last - stage) + beyond,
            last_turn: beyond + sum(until_last, 1) + message(last - stage),
            before: passes(0),
            behind: passes(1),
            all_forward_first: open == m * v,
        }
    }
}
