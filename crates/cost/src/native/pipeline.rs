//! How long a pipeline takes for the passes of a step, in closed form.
//!
//! `F`, `B`, `W`: seconds of a microbatch on a stage, forward, backward (or its input gradients alone) and weight
//! gradients apart; `j` the busiest stage; `p` stages, `m` microbatches, `v` chunks, `t` seconds of a message.
//!
//! | schedule | seconds |
//! |---|---|
//! | 1F1B, message-driven | `m (F+B)_j` + fill and drain `sum over the other stages of F+B` |
//! | GPipe | `(m-1) max F + sum F + (m-1) max B + sum B` |
//! | interleaved | as 1F1B, with fill and drain over one chunk of the other stages |
//! | ZB-H1 | `m (F+B+W)_j + sum over the other stages of F+B-W` |
//!
//! (Narayanan et al. 2021, section 2.2; Huang et al. 2019; Qi et al. 2023.) Messages add `t` at every boundary while the
//! pipeline fills and drains, and where a stage has to wait for its neighbours' answers: a microbatch can only begin when
//! the one `k` before it is back, with `k` in flight; that round trip takes longer than `k` microbatches by `2 t` for
//! every boundary, of which schedules with more in flight than boundaries hide some.

use quadrille_spec::Schedule;

/// A pipeline's work.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Pipeline {
    pub schedule: Schedule,
    pub stages: f64,
    pub microbatches: f64,
    /// Chunks of a stage.
    pub chunks: f64,
    /// Forward, backward and put-off weight gradients of a microbatch on the busiest stage.
    pub busiest: [f64; 3],
    /// The same of all other stages together; of an interleaved pipeline, for one chunk each.
    pub others: [f64; 3],
    /// The longest forward pass of a stage, and the longest backward pass.
    pub longest: [f64; 2],
    /// Of a message between stages.
    pub message: f64,
}

impl Pipeline {
    /// From the first pass to the last, if messages took no time.
    pub fn without_messages(&self) -> f64 {
        let [f, b, w] = self.busiest;
        let [others_f, others_b, others_w] = self.others;
        let work = self.microbatches * (f + b + w);
        match self.schedule {
            Schedule::Gpipe => {
                let [longest_f, longest_b] = self.longest;
                (self.microbatches - 1.0) * (longest_f + longest_b) + f + b + others_f + others_b
            }
            Schedule::ZeroBubble => work + (others_f + others_b - others_w).max(0.0),
            _ => work + others_f + others_b + others_w,
        }
    }

    /// What messages add.
    pub fn messages(&self) -> f64 {
        let (p, m, t) = (self.stages, self.microbatches, self.message);
        if p == 1.0 {
            return 0.0;
        }
        let boundaries = p - 1.0;
        let fill = 2.0 * boundaries * t;
        let busiest: f64 = self.busiest.iter().sum();
        let round_trip: f64 = busiest + self.others.iter().sum::<f64>();
        match self.schedule {
            // Only a link that is slower than a pass is waited for in between.
            Schedule::Gpipe => fill + (m - 1.0) * self.longest.iter().map(|pass| (t - pass).max(0.0)).sum::<f64>(),
            Schedule::Interleaved if self.chunks > 1.0 => {
                // A slot is a forward and a backward of a chunk; over `l` boundaries a message has `2 l + 1` slots for `l + 1`
                // of them.
                let slot = busiest / self.chunks;
                let late = (p * slot + fill) / (2.0 * p - 1.0) - slot;
                fill + m * self.chunks * late.max(0.0)
            }
            Schedule::ZeroBubble => {
                let returns = (m / p).ceil() - 1.0;
                let trip = round_trip - self.others[2] + fill;
                fill + returns * (trip - p * busiest).max(0.0)
            }
            _ => {
                let returns = (m / p).ceil() - 1.0;
                fill + returns * (round_trip + fill - p * busiest).max(0.0)
            }
        }
    }
}
