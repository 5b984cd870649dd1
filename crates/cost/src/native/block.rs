//! What one microbatch takes on one block, on the embedding, on the head and at the boundaries between stages.

use quadrille_spec::{Axis, KeepWeights, Recompute};

use super::cost::{Cost, Timed};
use super::footprint::Footprint;
use super::meter::{Lap, Meter};
use super::network::{Link, Placement};
use super::operations::{Group, Pass, Sizes, Sweep, Values, backward_weights, forward_weights};
use super::rates::Taken;
use super::{Candidate, Problem};

/// What one transformer block, the embedding and the head cost for one microbatch, forward and backward. It depends on
/// a candidate's sizes of x, y, z and context, what of them lies inside and how many ranks share each domain's links, its
/// microbatch, activations, linear algorithm, overlap, chunks of overlap, recomputation and how long weights are kept, and
/// so serves candidates that differ otherwise in data, pipe, schedule, chunks and ZeRO.
#[derive(Debug, Clone, Copy)]
pub struct Block {
    pub(super) sizes: Sizes,
    /// A block among others.
    pub(super) block: Passes,
    /// What the first block of a pass takes more, beside `scattering`, for which it has not to wait: its first weight has
    /// not been gathered ahead.
    pub(super) first: [f64; 2],
    /// The same of the backward pass after the head's, which hides the gather.
    pub(super) after_head: f64,
    /// Waiting at the end of a backward pass for gradients that are still being scattered. Only the sum of it, the first
    /// block and others is sure to grow with all that it is made of.
    pub(super) drain: f64,
    /// Of a block among others: waiting for scattering that takes longer than all else.
    pub(super) scattering: f64,
    /// What the backward pass computes again more of a block whose output it needs: one amid a segment.
    pub(super) amid: Timed,
    pub(super) amid_flops: f64,
    pub(super) embedding: Passes,
    pub(super) head: Passes,
    /// Both where they share a table: its gradient is finished by the embedding.
    pub(super) tied: [Passes; 2],
    /// What a piece does with what it has received, and before it sends.
    pub(super) receive: Timed,
    pub(super) send: Timed,
    /// The copies of the residual stream's gradient of a schedule that puts weight gradients off.
    pub(super) copies: Taken,
    /// Seconds of all gathers of a block's weights, and of the table's, where they are gathered once per step.
    pub(super) gathers_once: [f64; 2],
    /// Of the first of them.
    pub(super) first_gather: f64,
    /// Seconds of scattering the gradients of a block's weights over z, and of the table's.
    pub(super) scatter_once: [f64; 2],
    /// Bytes of a weight that is gathered ahead.
    pub(super) ahead: i64,
    /// Bytes that recomputation leaves of a block amid a segment.
    pub(super) amid_bytes: i64,
    /// Bytes that a block's backward pass leaves until the next collective on tokens.
    pub(super) carried: i64,
    /// Whether there are collectives on tokens in a block's backward pass, so that overlap chunks take turns.
    pub(super) interleaves: bool,
}

/// Forward and backward pass of one microbatch.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Passes {
    pub forward: Cost,
    pub backward: Cost,
    /// Seconds of both.
    seconds: [f64; 2],
    /// Seconds of the backward pass and of the gradients of weights, where those are put off.
    apart: [f64; 2],
    /// Waiting that the gradients of weights hide in the backward pass.
    pub hidden: [f64; 6],
    /// What waiting for the host is more where they are put off.
    pub late: f64,
    /// FLOPs of products and attention of both passes.
    pub flops: f64,
    pub memory: [Footprint; 2],
    /// That of the backward pass where gradients of weights are put off.
    pub memory_apart: Footprint,
    /// That of the backward pass where what the forward pass keeps is not given back.
    pub memory_beside: Footprint,
    /// Bytes of them that are held until the pass ends.
    pub shared: [i64; 2],
}

impl Passes {
    fn new(forward: Lap, backward: Lap) -> Self {
        let seconds = [forward.cost.seconds(), backward.cost.seconds()];
        let weights = backward.weight_gradient.seconds() + backward.scatter_wait;
        let inputs = seconds[1] - backward.late - weights + backward.hidden.iter().sum::<f64>();
        let [of_inputs, of_weights] = backward.host;
        let both = (inputs + weights).max(of_inputs + of_weights);
        let inputs = inputs.max(of_inputs);
        let apart = [inputs, both - inputs];
        let late = both - seconds[1] - backward.hidden.iter().sum::<f64>();
        Self {
            forward: forward.cost,
            backward: backward.cost,
            seconds,
            apart,
            late,
            hidden: backward.hidden,
            flops: forward.flops + backward.flops,
            memory: [forward.held.all, backward.held.all],
            memory_apart: backward.held.apart,
            memory_beside: backward.held.beside,
            shared: [forward.held.shared, backward.held.shared],
        }
    }

    /// Seconds forward, backward, and in gradients of weights if they are put off.
    pub fn split(&self, puts_off: bool) -> [f64; 3] {
        let ([forward, backward], [inputs, weights]) = (self.seconds, self.apart);
        if puts_off { [forward, inputs, weights] } else { [forward, backward, 0.0] }
    }
}

impl Problem {
    /// The price of a block; see [`Block`].
    pub fn block(&self, c: &Candidate) -> Block {
        let sizes = self.sizes(c);
        let placement = Placement::of(&self.network, c);
        let links = Group::ALL.map(|group| Link::new(&self.network, &placement, c, group.axes()));
        let meter = || Meter::new(&sizes, &self.rates, &links, c.keep_weights == KeepWeights::Use);
        Measuring { sizes: &sizes, meter }.block(c)
    }
}

struct Measuring<'a, M> {
    sizes: &'a Sizes,
    /// A fresh meter.
    meter: M,
}

impl<'a, M: Fn() -> Meter<'a>> Measuring<'a, M> {
    fn block(&self, c: &Candidate) -> Block {
        let s = self.sizes;
        let again = Values::again(s, s.framework.repeats_whole_segments);
        let (weights, count) = forward_weights(s);
        let first_forward = weights[0];
        let mut forward = (self.meter)();
        let told = |pass: &mut Pass<'_, Meter<'a>>| pass.block(Values::all(s), Values::kept(s));
        let (forwards, _) = self.steady(&mut forward, &weights[..count], told);
        let (weights, count) = backward_weights(s, again);
        let mut backward = (self.meter)();
        let told = |pass: &mut Pass<'_, Meter<'a>>| pass.block_backward(again);
        let (backwards, drain) = self.steady(&mut backward, &weights[..count], told);
        // The head's table is gathered in the place of the next block's first weight.
        forward.prefetch_instead(first_forward, s.table);
        let head = self.lap(&mut forward, &[s.table], |pass| pass.head());
        let [head, open_head] =
            [false, true].map(|open| Passes::new(head, self.fresh(&[s.table], |pass| pass.head_backward(open))));
        let embedding = self.fresh(&[s.table], |pass| pass.embedding());
        let [embedding, open_embedding] = [false, true].map(|open| {
            let mut meter = (self.meter)();
            let mut backward = self.lap(&mut meter, &[s.table], |pass| pass.embedding_backward(open));
            backward.cost = backward.cost.exposing(Axis::Z, meter.drain());
            Passes::new(embedding, backward)
        });
        let (amid, amid_bytes) = self.amid(again, &backwards[1]);
        let once = (self.meter)();
        let all = s.linears().iter().map(|linear| once.gather_seconds(linear.tile())).sum();
        let scatters = s.linears().iter().map(|linear| once.scatter_seconds(linear.tile())).sum();
        let ahead = if s.z > 1 && s.overlap.all_gather && c.keep_weights == KeepWeights::Use { weights[0] } else { 0 };
        let first = [forwards, backwards].map(|[first, among]| first.cost.seconds() - among.seconds());
        let hidden = if ahead > 0 { once.gather_seconds(weights[0]) } else { 0.0 };
        let [first_backward, among] = &backwards;
        let after_head = (first_backward.cost.seconds() - first_backward.late - hidden)
            .max(first_backward.host.iter().sum())
            - among.seconds();
        Block {
            sizes: *s,
            block: Passes::new(forwards[1], backwards[1]),
            first,
            after_head,
            drain,
            scattering: among.scattering,
            amid: amid.cost.into(),
            amid_flops: amid.flops,
            embedding,
            head,
            tied: [open_embedding, open_head],
            receive: self.fresh(&[], |pass| pass.receive()).cost.into(),
            send: self.fresh(&[], |pass| pass.send()).cost.into(),
            copies: self.fresh(&[], |pass| pass.sweep(Sweep::Accumulate, s.stream(), 2 * s.stream())).cost.taken,
            gathers_once: [all, once.gather_seconds(s.table)],
            first_gather: once.gather_seconds(s.qkv.tile()),
            scatter_once: [scatters, once.scatter_seconds(s.table)],
            ahead: (ahead * s.framework.states.gathered_weight) as i64,
            amid_bytes,
            carried: backwards[1].held.carried,
            interleaves: backwards[1].held.has_issued,
        }
    }

    fn lap(&self, meter: &mut Meter<'a>, weights: &[u64], tell: impl FnOnce(&mut Pass<'_, Meter<'a>>)) -> Lap {
        tell(&mut Pass::new(self.sizes, meter, weights, false));
        meter.lap()
    }

    fn fresh(&self, weights: &[u64], tell: impl FnOnce(&mut Pass<'_, Meter<'a>>)) -> Lap {
        self.lap(&mut (self.meter)(), weights, tell)
    }

    /// The first of several passes that follow each other, one among them, and what is still waited for after the first.
    /// Only gathers and scatters over z make a difference. So many passes take the first, for each of the others what
    /// one among them takes (at least what its collectives over z take), and the wait: exactly, unless gathers ahead
    /// and scatters delay each other.
    fn steady(
        &self,
        meter: &mut Meter<'a>,
        weights: &[u64],
        tell: impl Fn(&mut Pass<'_, Meter<'a>>),
    ) -> ([Lap; 2], f64) {
        tell(&mut Pass::new(self.sizes, meter, weights, true));
        let first = meter.lap();
        if self.sizes.z == 1 {
            return ([first, first], 0.0);
        }
        let drain = meter.drain();
        tell(&mut Pass::new(self.sizes, meter, weights, true));
        let mut among = meter.lap();
        among.scattering = (among.beside_z - among.cost.seconds()).max(0.0);
        among.cost = among.cost.exposing(Axis::Z, among.scattering);
        among.scatter_wait += among.scattering;
        ([first, among], drain)
    }

    /// What the backward pass of a block amid a segment of recomputation takes more than that of the segment's last, and
    /// the memory that is left of it until its backward pass.
    fn amid(&self, again: Values, last: &Lap) -> (Lap, i64) {
        let s = self.sizes;
        let Recompute::Full { every: 2.. } = s.recompute else { return (Lap::default(), 0) };
        let amid = Values::again(s, true);
        let (weights, count) = backward_weights(s, amid);
        let mut meter = (self.meter)();
        let ([_, mut lap], _) = self.steady(&mut meter, &weights[..count], |pass| pass.block_backward(amid));
        lap.cost -= last.cost;
        lap.flops -= last.flops;
        let (weights, count) = forward_weights(s);
        let made = self.fresh(&weights[..count], |pass| {
            pass.recomputes = true;
            pass.block(again, Values::needed(s));
        });
        let output = if Values::kept(s).output { 0 } else { self.stream_bytes() };
        (lap, made.held.all.net() + output)
    }

    fn stream_bytes(&self) -> i64 {
        (self.sizes.stream() * self.sizes.chunks * self.sizes.framework.activation_bytes) as i64
    }
}
