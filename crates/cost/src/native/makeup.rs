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
    /// Of them, those with blocks.
    received_blocks: f64,
    sent_blocks: f64,
    embeddings: f64,
    heads: f64,
    /// Heads behind blocks.
    heads_behind: f64,
}

impl Sub for Makeup {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            blocks: self.blocks - other.blocks,
            amid: self.amid - other.amid,
            received: self.received - other.received,
            sent: self.sent - other.sent,
            received_blocks: self.received_blocks - other.received_blocks,
            sent_blocks: self.sent_blocks - other.sent_blocks,
            embeddings: self.embeddings - other.embeddings,
            heads: self.heads - other.heads,
            heads_behind: self.heads_behind - other.heads_behind,
        }
    }
}

impl Step<'_> {
    /// Of a stage.
    pub fn makeup(&self, stage: usize) -> Makeup {
        let stages = &self.stages;
        let amid = match self.c.recompute {
            Recompute::Full { every: 2.. } => {
                stages.pieces_on(stage).iter().map(|(pieces, blocks)| pieces * self.amid(*blocks)).sum()
            }
            _ => 0,
        };
        let ends = [stages.is_first(stage), stages.is_last(stage)];
        self.of_pieces(stages.chunks, stages.blocks_on(stage), amid, ends)
    }

    /// Of all stages together.
    pub fn makeup_of_all(&self) -> Makeup {
        let amid = match self.c.recompute {
            Recompute::Full { every: every @ 2.. } => self.stages.layers - self.stages.segments(every),
            _ => 0,
        };
        self.of_pieces(self.stages.pieces(), self.stages.layers, amid, [true; 2])
    }

    /// Of the stages before one; of several chunks, about.
    pub fn makeup_before(&self, stage: usize) -> Makeup {
        let stages = &self.stages;
        if stages.chunks == 1 {
            let amid = match self.c.recompute {
                Recompute::Full { every: 2.. } => (0..stage).map(|piece| self.amid(stages.blocks_of(piece))).sum(),
                _ => 0,
            };
            return self.of_pieces(stage, stages.blocks_before(stage), amid, [stage > 0, false]);
        }
        let share = stage as f64 / stages.stages as f64;
        let all = self.makeup_of_all();
        let boundary = stage as f64 * stages.chunks as f64;
        let embeddings = if stage > 0 { 1.0 } else { 0.0 };
        let received = boundary - embeddings;
        Makeup {
            blocks: all.blocks * share,
            amid: all.amid * share,
            received,
            sent: boundary,
            received_blocks: received.min(all.received_blocks),
            sent_blocks: boundary.min(all.sent_blocks),
            embeddings,
            heads: 0.0,
            heads_behind: 0.0,
        }
    }

    /// Of so many pieces with so many blocks, which have the embedding and the head among them or not.
    fn of_pieces(&self, pieces: usize, blocks: usize, amid: usize, ends: [bool; 2]) -> Makeup {
        // Only the first and the last piece may be without blocks.
        let behind = [0, self.stages.pieces() - 1].map(|piece| self.stages.blocks_of(piece) > 0);
        let [embeddings, heads] = ends.map(|here| f64::from(u8::from(here)));
        let [first_behind, heads_behind] = [0, 1].map(|end| f64::from(u8::from(ends[end] && behind[end])));
        let (pieces, blocks, amid) = (pieces as f64, blocks as f64, amid as f64);
        let (received, sent) = (pieces - embeddings, pieces - heads);
        let (received_blocks, sent_blocks) = (received - heads + heads_behind, sent - embeddings + first_behind);
        Makeup { blocks, amid, received, sent, received_blocks, sent_blocks, embeddings, heads, heads_behind }
    }

    /// Blocks amid segments of recomputation in a piece.
    fn amid(&self, blocks: usize) -> usize {
        match self.c.recompute {
            Recompute::Full { every } => blocks - blocks.div_ceil(every),
            Recompute::None | Recompute::Selective => 0,
        }
    }

    /// Seconds of a microbatch forward, backward, and in weight gradients that are put off.
    pub fn seconds(&self, of: &Makeup) -> [f64; 3] {
        let b = self.block;
        let Makeup { blocks, amid, received, sent, received_blocks, sent_blocks, embeddings, heads, heads_behind } =
            *of;
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
        forward += received * receive + received_blocks * b.first[0] + sent * send;
        backward += sent * receive + sent_blocks * b.first[1] + heads_behind * b.after_head;
        backward += received * (send + again) + amid * b.amid.seconds;
        let scattering = received_blocks * b.drain - (sent_blocks + heads_behind) * b.scattering;
        *(if puts_off { &mut weights } else { &mut backward }) += scattering;
        if puts_off {
            backward += 2.0 * blocks * b.copies.seconds();
        }
        [forward, backward, weights]
    }

    /// The same by cause, all passes together.
    pub fn cost(&self, of: &Makeup) -> Cost {
        let b = self.block;
        let Makeup { blocks, amid, received, sent, received_blocks, sent_blocks, embeddings, heads, heads_behind } =
            *of;
        let puts_off = self.c.schedule == Schedule::ZeroBubble;
        let [embedding, head] = self.ends();
        let mut cost = Cost::default();
        for (times, passes) in [(blocks, &b.block), (embeddings, embedding), (heads, head)] {
            if times > 0.0 {
                cost += passes.forward.times(times);
                cost += passes.backward.times(times);
                if puts_off {
                    // Nothing hides what the gradients of weights did.
                    let taken = Taken { launch: passes.late, ..Taken::default() };
                    cost += Cost { taken, exposed: passes.hidden }.times(times);
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
        let ends = received_blocks * (b.first[0] + b.drain)
            + sent_blocks * (b.first[1] - b.scattering)
            + heads_behind * (b.after_head - b.scattering);
        cost.exposing(Axis::Z, ends)
    }

    /// FLOPs of products and attention of a microbatch.
    pub fn flops(&self, of: &Makeup) -> f64 {
        let b = self.block;
        of.blocks * b.block.flops + of.amid * b.amid_flops + of.embeddings * b.embedding.flops + of.heads * b.head.flops
    }
}
