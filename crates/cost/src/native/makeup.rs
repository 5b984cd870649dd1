//! What a stage does for a microbatch, as multiples of what is priced once.

use std::ops::Sub;

use quadrille_spec::{Axis, Recompute, Schedule};

use super::cost::Cost;
use super::rates::Taken;
use super::step::Step;

/// How often a microbatch meets what a [`super::Block`] prices, on a stage or on all stages together.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Makeup {
    /// Transformer blocks.
    pub blocks: f64,
    /// Of them, those amid a segment of recomputation.
    amid: f64,
    /// Pieces that are received in the forward pass, and that are sent on.
    received: f64,
    sent: f64,
    embeddings: f64,
    heads: f64,
}

impl Sub for Makeup {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            blocks: self.blocks - other.blocks,
            amid: self.amid - other.amid,
            received: self.received - other.received,
            sent: self.sent - other.sent,
            embeddings: self.embeddings - other.embeddings,
            heads: self.heads - other.heads,
        }
    }
}

impl Step<'_> {
    /// Of a stage.
    pub fn makeup(&self, stage: usize) -> Makeup {
        let stages = &self.stages;
        let [embeddings, heads] = [stages.is_first(stage), stages.is_last(stage)].map(|here| f64::from(u8::from(here)));
        let pieces = stages.chunks as f64;
        let blocks = stages.blocks_on(stage);
        let amid = match self.c.recompute {
            Recompute::Full { every: every @ 2.. } => {
                blocks - stages.pieces_on(stage).map(|blocks| blocks.div_ceil(every)).sum::<usize>()
            }
            _ => 0,
        };
        let (blocks, amid) = (blocks as f64, amid as f64);
        Makeup { blocks, amid, received: pieces - embeddings, sent: pieces - heads, embeddings, heads }
    }

    /// Of all stages together.
    pub fn makeup_of_all(&self) -> Makeup {
        let between = (self.stages.pieces() - 1) as f64;
        let amid = match self.c.recompute {
            Recompute::Full { every: every @ 2.. } => self.stages.layers - self.stages.segments(every),
            _ => 0,
        };
        Makeup {
            blocks: self.stages.layers as f64,
            amid: amid as f64,
            received: between,
            sent: between,
            embeddings: 1.0,
            heads: 1.0,
        }
    }

    /// Of the stages before one; of several chunks, about.
    pub fn makeup_before(&self, stage: usize) -> Makeup {
        let (share, chunks) = (stage as f64 / self.stages.stages as f64, self.stages.chunks as f64);
        let all = self.makeup_of_all();
        let blocks = match self.stages.chunks {
            1 => self.stages.blocks_before(stage) as f64,
            _ => all.blocks * share,
        };
        let boundaries = stage as f64 * chunks;
        let embeddings = if stage > 0 { 1.0 } else { 0.0 };
        let received = boundaries - embeddings;
        Makeup { blocks, amid: all.amid * share, received, sent: boundaries, embeddings, heads: 0.0 }
    }

    /// Seconds of a microbatch forward, backward, and in weight gradients that are put off.
    pub fn seconds(&self, of: &Makeup) -> [f64; 3] {
        let b = self.block;
        let Makeup { blocks, amid, received, sent, embeddings, heads } = *of;
        let puts_off = self.c.schedule == Schedule::ZeroBubble;
        let [embedding, head] = self.ends();
        let [mut forward, mut backward, mut weights] = [0.0; 3];
        for (times, passes) in [(blocks, &b.block), (embeddings, embedding), (heads, head)] {
            let [f, b, w] = passes.split(puts_off);
            forward += times * f;
            backward += times * b;
            weights += times * w;
        }
        let [receive, send] = [b.receive.seconds, b.send.seconds];
        let again = if b.sizes.gathers_received_again() { receive } else { 0.0 };
        forward += received * (receive + b.first[0]) + sent * send;
        backward += sent * (receive + b.first[1]) + received * (send + b.drain + again) + amid * b.amid.seconds;
        if puts_off {
            backward += 2.0 * blocks * b.copies.seconds();
        }
        [forward, backward, weights]
    }

    /// The same by cause, all passes together.
    pub fn cost(&self, of: &Makeup) -> Cost {
        let b = self.block;
        let Makeup { blocks, amid, received, sent, embeddings, heads } = *of;
        let puts_off = self.c.schedule == Schedule::ZeroBubble;
        let [embedding, head] = self.ends();
        let mut cost = Cost::default();
        for (times, passes) in [(blocks, &b.block), (embeddings, embedding), (heads, head)] {
            if times > 0.0 {
                cost += passes.forward.times(times);
                cost += passes.backward.times(times);
                if puts_off {
                    // Nothing hides the reductions of input gradients.
                    cost += Cost { taken: Taken::default(), exposed: passes.hidden }.times(times);
                }
            }
        }
        let receives = if b.sizes.gathers_received_again() { 2.0 * received + sent } else { received + sent };
        cost += b.receive.cost.times(receives);
        cost += b.send.cost.times(received + sent);
        cost += b.amid.cost.times(amid);
        if puts_off {
            cost.taken += b.copies.times(2.0 * blocks);
        }
        cost.exposing(Axis::Z, received * (b.first[0] + b.drain) + sent * b.first[1])
    }

    /// FLOPs of products and attention of a microbatch.
    pub fn flops(&self, of: &Makeup) -> f64 {
        let b = self.block;
        of.blocks * b.block.flops + of.amid * b.amid_flops + of.embeddings * b.embedding.flops + of.heads * b.head.flops
    }
}
