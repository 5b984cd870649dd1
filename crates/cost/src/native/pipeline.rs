//! How long a pipeline takes for the passes of a step, in closed form.
//!
//! `F`, `B`, `W`: seconds of a microbatch on a stage, forward, backward (or its input gradients alone) and weight
//! gradients apart; `j` a stage, the one for which it is longest, with `L = p - 1 - j` stages behind it; `p` stages, `m` microbatches, `v`
//! chunks, `t` seconds of a message. A way through the stages behind `j` and back takes
//! `R = sum over them of F+B, and 2 L t`.
//!
//! | schedule | seconds |
//! |---|---|
//! | GPipe | `(m-1) max F + sum F + (m-1) max B + sum B`, and `2 (p-1) t` |
//! | 1F1B, message-driven | `m (F+B)_j`, `sum over the stages before j of F+B, and 2 j t`, `max(R - L F_j, 0)` while the pipeline fills, `max(R - L B_j, 0)` while it drains |
//! | ZB-H1 | the same with `m (F+B+W)_j`, less `min(j, m-1-L) W_j` before `j`, and draining under `L (B+W)_j` |
//! | interleaved | `m (F+B)_j`, and fill and drain over one chunk of the other stages |
//!
//! (Narayanan et al. 2021, section 2.2; Huang et al. 2019; Qi et al. 2023.) With equal stages and `t = 0` the second is
//! the published `(m + p - 1) (F + B)`. In between, stages wait for the answers of their neighbours: the backward pass of
//! microbatch `i + n` on a stage comes after that of `i` by way of `n` stages and back, so that `n` microbatches take at
//! least the passes of `n` stages and `2 (n-1) t`, with `n` up to `p`.

use quadrille_spec::Schedule;

/// A pipeline's work.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Pipeline {
    pub schedule: Schedule,
    pub stages: f64,
    pub microbatches: f64,
    /// Chunks of a stage.
    pub chunks: f64,
    /// Forward, backward and put-off weight gradients of a microbatch on a stage.
    pub stage: [f64; 3],
    /// Stages before it.
    pub before: f64,
    /// The same of all stages before it together, and of all behind it.
    pub others: [[f64; 3]; 2],
    /// The longest forward pass of a stage, and the longest backward pass.
    pub longest: [f64; 2],
}

impl Pipeline {
    /// From the first pass to the last, where a message between stages takes so many seconds: at least, as far as they
    /// depend on this stage.
    pub fn seconds(&self, message: f64) -> f64 {
        match self.schedule {
            Schedule::Gpipe => self.gpipe(message),
            Schedule::Interleaved if self.chunks > 1.0 => self.interleaved(message),
            _ => self.alternating(message),
        }
    }

    /// Only a link that is slower than a pass is waited for between the first microbatch and the last.
    fn gpipe(&self, t: f64) -> f64 {
        let passes = self.stage[0] + self.stage[1] + self.passes_of_others();
        let between = self.longest.map(|pass| if self.stages > 1.0 { pass.max(t) } else { pass });
        passes + 2.0 * (self.stages - 1.0) * t + (self.microbatches - 1.0) * (between[0] + between[1])
    }

    fn passes_of_others(&self) -> f64 {
        self.others.iter().map(|[f, b, _]| f + b).sum()
    }

    /// A slot is a forward and a backward of a chunk; over `l` boundaries a message has `2 l + 1` slots for `l + 1` of
    /// them.
    fn interleaved(&self, t: f64) -> f64 {
        let work: f64 = self.stage.iter().sum();
        let fill = 2.0 * (self.stages - 1.0) * t;
        let slot = work / self.chunks;
        let late = (self.stages * slot + fill) / (2.0 * self.stages - 1.0) - slot;
        let others = self.passes_of_others() / self.chunks;
        self.microbatches * (work + self.chunks * late.max(0.0)) + others + fill
    }

    /// 1F1B and its relatives: a forward pass, a backward pass, and so on. Weight gradients that are put off fill the
    /// waits for messages, as far as there are any: one is left for the end.
    fn alternating(&self, t: f64) -> f64 {
        let [f, b, w] = self.stage;
        if w == 0.0 {
            let (passes, waits) = self.passed(t);
            return passes + waits;
        }
        let (passes, waits) = Self { stage: [f, b, 0.0], ..*self }.passed(t);
        self.passed(t).0.max(passes + waits + w)
    }

    /// The passes of this stage, with the way to it and the two turns behind it; and waits for answers in between.
    fn passed(&self, t: f64) -> (f64, f64) {
        let [f, b, w] = self.stage;
        let (m, work) = (self.microbatches, f + b + w);
        let [before, behind] = self.others.map(|[f, b, _]| f + b);
        let stages_behind = self.stages - 1.0 - self.before;
        let way = behind + 2.0 * stages_behind * t;
        let turns_twice = m - 1.0 > stages_behind;
        let filling = self.before.min(if turns_twice { m - 1.0 - stages_behind } else { m - 1.0 });
        let passes = m * work + (before - filling * w).max(0.0) + 2.0 * self.before * t;
        if turns_twice {
            let turns = (way - stages_behind * f).max(0.0) + (way - stages_behind * (b + w)).max(0.0);
            let between = m - 1.0 - if stages_behind > 0.0 { stages_behind + 1.0 } else { 0.0 };
            let apart = (before + behind) / (self.stages - 1.0).max(1.0) + 2.0 * t;
            (passes + turns, self.boundaries_waited(between) * (apart - work).max(0.0))
        } else {
            // All forward passes come first: one turn.
            let more = m - 1.0;
            let spread = more * (behind / stages_behind.max(1.0) - work) + 2.0 * (more - 1.0).max(0.0) * t;
            (passes + way + spread.max(-more * f.min(b + w)).max(-way), 0.0)
        }
    }

    /// Boundaries that so many microbatches pass on ways that are as long as possible.
    fn boundaries_waited(&self, microbatches: f64) -> f64 {
        let longest = (microbatches / self.stages).floor();
        let rest = microbatches - longest * self.stages;
        longest * (self.stages - 1.0) + (rest - 1.0).max(0.0)
    }
}
