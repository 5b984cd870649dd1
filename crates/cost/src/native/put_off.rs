//! Memory of weight gradients that a zero-bubble pipeline puts off.

use quadrille_spec::{Schedule, Zero};

use super::footprint::Footprint;
use super::operations::LinearSizes;
use super::parameters::{Kind, Parameter};
use super::residence::Piece;
use super::step::Step;

impl Step<'_> {
    /// The pass that computes weight gradients which have been put off: it begins with the head's, and gives back what
    /// they needed. Overlap chunks follow each other, so that all gradients wait for the last.
    pub(super) fn weight_gradients(&self, piece: &Piece) -> Footprint {
        let s = &self.block.sizes;
        let [of_block, of_head, of_embedding] = self.put_off();
        let ends = [piece.is_first, piece.is_last].map(i64::from);
        let needed = piece.blocks * of_block + ends[1] * of_head + ends[0] * of_embedding;
        let (mut left, mut at_once) = (0, 0);
        let blocks = s.linears().map(|linear| (linear.tile(), piece.blocks));
        let tables = ends[0] + ends[1] - i64::from(self.is_tied);
        for (tile, times) in blocks.into_iter().chain([(s.table, tables)]) {
            if times > 0 {
                let (stays, passes) = self.gradient_on_its_way(tile);
                left += times * stays;
                at_once = at_once.max(stays + passes);
            }
        }
        // What is left grows while what was needed is given back.
        let most = at_once.max(left + at_once - needed / s.chunks as i64);
        // Weights are not needed any more.
        let [embedding, head] = self.ends();
        let passes = [(&self.block.block, piece.blocks), (embedding, ends[0]), (head, ends[1])];
        let shared: i64 = passes.into_iter().map(|(passes, times)| times * passes.shared[1]).sum();
        Footprint::held(-shared).then(1, Footprint::held(0).above(most).keeping(-needed))
    }

    /// Bytes of a weight's gradient on its way to the stored one where weight gradients are put off: until the end of
    /// their pass, and for a while.
    fn gradient_on_its_way(&self, tile: u64) -> (i64, i64) {
        let z = self.block.sizes.z;
        let bytes = self.problem.framework.states.sent_gradient as i64;
        let over_z = if z > 1 { bytes * (tile + tile / z) as i64 } else { 0 };
        let replicated = match self.sharding.zero {
            Zero::Gradients => {
                let held = self.sharding.held(Parameter { kind: Kind::Weight, elements: tile / z });
                bytes * (held.padded + held.shard) as i64
            }
            _ => 0,
        };
        match (self.c.overlap.reduce_scatter && self.problem.framework.keeps_scattered, self.block.sizes.chunks) {
            (true, _) if replicated > 0 => (replicated, over_z),
            (true, _) => (over_z, 0),
            (false, 1) => (0, over_z + replicated),
            (false, _) if z > 1 => (bytes * tile as i64, over_z + replicated - bytes * tile as i64),
            (false, _) => (replicated, 0),
        }
    }

    /// Bytes of product inputs and output gradients that a microbatch leaves for its weight gradients where those are put
    /// off, of a block, of the head and of the embedding.
    pub(super) fn put_off(&self) -> [i64; 3] {
        if self.c.schedule != Schedule::ZeroBubble {
            return [0; 3];
        }
        let s = &self.block.sizes;
        let [head, embedding] = match s.patches {
            false => [s.rows * (s.hidden + s.logits), s.rows * s.hidden],
            true => [s.stream_rows * (s.stream_cols + s.logits); 2],
        };
        [self.needed_by(&s.linears()), self.bytes(head), self.bytes(embedding)]
    }

    /// What the weight gradients of some layers need.
    pub(super) fn needed_by(&self, linears: &[LinearSizes]) -> i64 {
        let s = &self.block.sizes;
        let elements = |linear: &LinearSizes| match s.panels {
            Some(_) => s.inner_rows * (linear.inputs * s.y / s.x + linear.outputs),
            None => s.rows * (linear.inputs + linear.outputs),
        };
        self.bytes(linears.iter().map(elements).sum())
    }
}
