//! Measures what a pass takes: time on the compute stream with the collectives beside it, and memory.
//!
//! Collectives of a group, or of all groups, follow each other on a stream; a wait stops the compute stream until the collective is done.
//! What stands between issue and wait hides a collective: `exposed = max(0, communication - hiding computation)`.

use quadrille_spec::{Axis, CollectiveKind};

use super::cost::Cost;
use super::holdings::{Held, Holdings};
use super::network::Link;
use super::operations::{Core, Group, Panels, Product, Sink, Sizes, Slot, Sweep, Swept};
use super::rates::{Rates, Taken};

/// Beyond so many overlap chunks more of them hide no more: this many stand for all.
const MOST_CHUNKS: usize = 16;
/// Most waits between two collectives.
const MOST_WAITS: usize = 4;
const SLOTS: usize = 3;

/// The passes that are measured: one after the other, or each from a fresh meter.
pub(super) struct Meter<'a> {
    pub s: &'a Sizes,
    pub rates: &'a Rates,
    pub links: &'a [Link; Group::ALL.len()],
    /// Whether weights are gathered in these passes at all.
    gathers: bool,
    /// What has been told so far took this much.
    pub cost: Cost,
    /// FLOPs of products and attention.
    pub flops: f64,
    /// Operations and collectives.
    operations: f64,
    /// Of them, those that give gradients of weights.
    weight_operations: f64,
    pub memory: Holdings,
    /// The time of the compute stream.
    now: f64,
    /// When the stream of each group is free.
    streams: [f64; Group::ALL.len()],
    /// When the gather of the next weight is done, and the seconds of gradients of weights before it has begun.
    prefetched: Option<(f64, f64)>,
    /// When the reduce-scatters that have not been waited for are done.
    scattered: f64,
    /// Seconds of a reduction of SUMMA panels that is still under way.
    pub reducing: Option<(f64, usize)>,
    /// Bytes of a gradient that is being scattered, which the next one frees.
    scattering: u64,
    /// Of all that, what gives gradients of weights.
    pub weight_gradient: Taken,
    /// The seconds of that in all laps.
    gradient_seconds: f64,
    /// Seconds of waiting for their scattering.
    scatter_wait: f64,
    /// Waiting that it has hidden: for input gradients with OAR, for weights with OAG.
    hidden: [f64; 6],
    /// Seconds of the collectives on the stream of those over z.
    beside_z: f64,
    /// Of the reduction of the input gradient: how long a wait at once would have taken.
    wait_at_once: f64,
    tokens: Tokens,
}

/// Collectives on tokens and what is computed between them, for every overlap chunk.
#[derive(Clone, Copy, Default)]
struct Tokens {
    /// Chunks that are followed, and how many chunks each of them stands for.
    chunks: usize,
    each: f64,
    /// By slot and chunk: when its last collective is done.
    ready: [[f64; MOST_CHUNKS]; SLOTS],
    axes: [usize; SLOTS],
    /// Since the last collective: seconds of a chunk, between waits for slots.
    computed: [f64; MOST_WAITS + 1],
    waits: [usize; MOST_WAITS],
    waiting: usize,
}

impl<'a> Meter<'a> {
    /// `gathers`: weights are gathered for every product.
    pub fn new(s: &'a Sizes, rates: &'a Rates, links: &'a [Link; Group::ALL.len()], gathers: bool) -> Self {
        let chunks = (s.chunks as usize).min(MOST_CHUNKS);
        Self {
            s,
            rates,
            links,
            gathers: gathers && s.z > 1,
            cost: Cost::default(),
            flops: 0.0,
            operations: 0.0,
            weight_operations: 0.0,
            memory: Holdings::new(chunks),
            now: 0.0,
            streams: [0.0; Group::ALL.len()],
            prefetched: None,
            scattered: 0.0,
            reducing: None,
            scattering: 0,
            weight_gradient: Taken::default(),
            gradient_seconds: 0.0,
            scatter_wait: 0.0,
            hidden: [0.0; 6],
            beside_z: 0.0,
            wait_at_once: 0.0,
            tokens: Tokens { chunks, each: s.chunks as f64 / chunks as f64, ..Tokens::default() },
        }
    }

    /// Ends a measurement and begins the next, of what follows. Memory of a weight that is gathered ahead is there at
    /// both ends.
    pub fn lap(&mut self) -> Lap {
        self.flush(None);
        let mut cost = std::mem::take(&mut self.cost);
        let host = self.s.framework.host_seconds * std::mem::take(&mut self.operations);
        let late = (host - cost.seconds()).max(0.0);
        cost.taken.launch += late;
        self.now += late;
        let host_of_weights = self.s.framework.host_seconds * std::mem::take(&mut self.weight_operations);
        Lap {
            cost,
            late,
            host: [host - host_of_weights, host_of_weights],
            beside_z: std::mem::take(&mut self.beside_z),
            weight_gradient: std::mem::take(&mut self.weight_gradient),
            scatter_wait: std::mem::take(&mut self.scatter_wait),
            hidden: std::mem::take(&mut self.hidden),
            flops: std::mem::take(&mut self.flops),
            held: self.memory.lap(),
            scattering: 0.0,
        }
    }

    /// What is still to be waited for of reduce-scatters under way.
    pub fn drain(&self) -> f64 {
        (self.scattered - self.now).max(0.0)
    }

    /// The gather that has been begun is of a weight of other elements.
    pub fn prefetch_instead(&mut self, begun: u64, instead: u64) {
        if self.prefetched.is_some() {
            self.memory.take(self.weight_bytes(instead));
        }
        let more = self.gather_seconds(instead) - self.gather_seconds(begun);
        // What it takes longer than the block's own waits is in their laps.
        let now = self.now;
        self.prefetched = self.prefetched.map(|(end, before)| (end.min(now) + more, before));
    }

    /// Seconds that a gather of a weight of so many elements takes.
    pub fn gather_seconds(&self, elements: u64) -> f64 {
        let bytes = elements * self.s.framework.states.gathered_weight;
        self.links[Group::Z as usize].seconds(CollectiveKind::AllGather, bytes as f64)
    }

    /// Overlap chunks.
    pub fn chunks(&self) -> f64 {
        self.s.chunks as f64
    }

    /// Something on the compute stream now.
    pub fn spend(&mut self, taken: Taken) {
        self.flush(None);
        self.operations += 1.0;
        self.cost.taken += taken;
        self.now += taken.seconds();
    }

    /// So many operations have given gradients of weights.
    pub fn weighs(&mut self, taken: Taken, operations: f64) {
        self.weight_gradient += taken;
        self.gradient_seconds += taken.seconds();
        self.weight_operations += operations;
    }

    /// The compute stream waits, if the time is more than none.
    pub fn expose(&mut self, axis: usize, seconds: f64) {
        self.wait_until(axis, self.now + seconds);
    }

    /// Seconds of scattering a weight's gradient of so many elements.
    pub fn scatter_seconds(&self, elements: u64) -> f64 {
        let bytes = elements * self.s.framework.states.sent_gradient;
        self.links[Group::Z as usize].seconds(CollectiveKind::ReduceScatter, bytes as f64)
    }

    /// Waits on the compute stream until `end`.
    fn wait_until(&mut self, axis: usize, end: f64) {
        if end > self.now {
            self.cost.exposed[axis] += end - self.now;
            self.now = end;
        }
    }

    /// Something on the compute stream, for every chunk.
    fn compute(&mut self, taken: Taken) {
        let count = self.s.chunks as f64;
        self.operations += count;
        self.cost.taken += taken.times(count);
        match self.tokens.chunks {
            1 => self.now += count * taken.seconds(),
            _ => self.tokens.computed[self.tokens.waiting] += self.tokens.each * taken.seconds(),
        }
    }

    /// Runs what the chunks have to do since the last collective, one chunk after the other, each of which then begins
    /// its next collective if there is one: slot, group and seconds.
    fn flush(&mut self, begun: Option<(Slot, Group, f64)>) {
        if self.tokens.chunks == 1 {
            if let Some((slot, group, seconds)) = begun {
                self.tokens.ready[slot as usize][0] = self.begin(group, seconds);
            }
            return;
        }
        let Tokens { computed, waits, waiting, .. } = self.tokens;
        for chunk in 0..self.tokens.chunks {
            for wait in 0..waiting {
                self.now += computed[wait];
                let slot = waits[wait];
                self.wait_until(self.tokens.axes[slot], self.tokens.ready[slot][chunk]);
            }
            self.now += computed[waiting];
            if let Some((slot, group, seconds)) = begun {
                self.tokens.ready[slot as usize][chunk] = self.begin(group, self.tokens.each * seconds);
            }
        }
        (self.tokens.computed, self.tokens.waiting) = ([0.0; MOST_WAITS + 1], 0);
    }

    /// The axis under which waiting for a group counts: the outermost of those above 1.
    pub fn axis_of(&self, group: Group) -> usize {
        (match group {
            Group::X => Axis::X,
            Group::Mesh if self.s.y == 1 => Axis::X,
            Group::Y | Group::Mesh => Axis::Y,
            Group::Z => Axis::Z,
            Group::Context => Axis::Context,
        }) as usize
    }

    /// Puts a collective at the end of its stream; returns when it is done.
    fn begin(&mut self, group: Group, seconds: f64) -> f64 {
        let stream = self.stream(group);
        let end = self.streams[stream].max(self.now) + seconds;
        self.streams[stream] = end;
        if stream == self.stream(Group::Z) {
            self.beside_z += seconds;
        }
        end
    }

    /// The stream of a group's collectives.
    fn stream(&self, group: Group) -> usize {
        if self.s.framework.streams_by_group { group as usize } else { 0 }
    }

    /// Bytes of a gathered weight.
    fn weight_bytes(&self, elements: u64) -> u64 {
        elements * self.s.framework.states.gathered_weight
    }
}

/// What a part of the passes took.
#[derive(Clone, Copy, Default)]
pub(super) struct Lap {
    pub cost: Cost,
    /// Seconds of it in which the device waits for the host.
    pub late: f64,
    /// Seconds that the host takes for operations beside those that give gradients of weights, and for those.
    pub host: [f64; 2],
    /// Seconds of the collectives that have begun on the stream of those over z.
    pub beside_z: f64,
    /// Of its computation, what gives gradients of weights.
    pub weight_gradient: Taken,
    /// Seconds of waiting for their scattering.
    pub scatter_wait: f64,
    /// Of the cost: waiting for collectives over z that take longer than all else. Found by comparing laps.
    pub scattering: f64,
    /// Waiting that the gradients of weights have hidden.
    pub hidden: [f64; 6],
    pub flops: f64,
    pub held: Held,
}

impl Lap {
    /// Seconds of it, but for `scattering`.
    pub fn seconds(&self) -> f64 {
        self.cost.seconds() - self.scattering
    }
}

impl Sink for Meter<'_> {
    fn sweep(&mut self, swept: Swept) {
        if swept.moved == 0 {
            return;
        }
        let taken = self.rates.sweep(swept.sweep, swept.elements as f64, (swept.moved * swept.element_bytes) as f64);
        if swept.once { self.spend(taken) } else { self.compute(taken) }
    }

    fn product(&mut self, product: Product, shape: [u64; 3]) {
        let shape = shape.map(|size| size as f64);
        self.flops += self.s.chunks as f64 * 2.0 * shape[0] * shape[1] * shape[2];
        let taken = self.rates.product(shape);
        self.compute(taken);
        if product == Product::WeightGradient {
            self.weighs(taken.times(self.chunks()), self.chunks());
        }
    }

    fn attention(&mut self, core: Core) {
        let Core { backward, outputs, moved, heads } = core;
        let passes = if backward { 2.0 } else { 1.0 };
        self.flops += self.s.chunks as f64 * passes * 4.0 * (self.s.seq_len * outputs) as f64;
        let shape = [self.s.seq_len, self.s.head_dim, heads].map(|size| size as f64);
        let bytes = (moved * self.s.framework.activation_bytes) as f64;
        let taken = self.rates.attention(backward, self.s.causal, shape, outputs as f64, bytes);
        self.compute(taken);
    }

    fn batched_product(&mut self, _: bool, shape: [u64; 3], heads: u64) {
        let shape = shape.map(|size| size as f64);
        self.flops += (self.s.chunks * heads) as f64 * 2.0 * shape[0] * shape[1] * shape[2];
        let taken = self.rates.batched_product(shape, heads as f64);
        self.compute(taken);
    }

    fn issue(&mut self, slot: Slot, kind: CollectiveKind, group: Group, elements: u64, element_bytes: u64) {
        let seconds = self.links[group as usize].seconds(kind, (elements * element_bytes) as f64);
        self.operations += self.chunks();
        self.flush(Some((slot, group, seconds)));
        self.memory.issued();
        self.tokens.axes[slot as usize] = self.axis_of(group);
        if slot == Slot::Reduction {
            self.wait_at_once = (self.tokens.ready[slot as usize][0] - self.now).max(0.0);
        }
    }

    fn wait(&mut self, slot: Slot) {
        let reduces = slot == Slot::Reduction;
        let slot = slot as usize;
        if self.tokens.chunks == 1 {
            let (axis, end) = (self.tokens.axes[slot], self.tokens.ready[slot][0]);
            if reduces {
                self.hidden[axis] += self.wait_at_once - (end - self.now).max(0.0);
            }
            return self.wait_until(axis, end);
        }
        if self.tokens.waiting == MOST_WAITS {
            self.flush(None);
        }
        self.tokens.waits[self.tokens.waiting] = slot;
        self.tokens.waiting += 1;
    }

    fn weight(&mut self, elements: u64, next: Option<u64>) {
        if !self.gathers {
            return;
        }
        self.flush(None);
        let axis = Axis::Z as usize;
        let end = match self.prefetched.take() {
            Some((end, before)) => {
                let gradients = self.gradient_seconds - before;
                self.hidden[axis] += (end - self.now + gradients).max(0.0) - (end - self.now).max(0.0);
                end
            }
            None => {
                self.memory.take(self.weight_bytes(elements));
                self.begin(Group::Z, self.gather_seconds(elements))
            }
        };
        self.wait_until(axis, end);
        if let Some(next) = next.filter(|_| self.s.overlap.all_gather) {
            self.memory.take(self.weight_bytes(next));
            self.prefetched = Some((self.begin(Group::Z, self.gather_seconds(next)), self.gradient_seconds));
        }
    }

    fn weight_done(&mut self, elements: u64) {
        if self.gathers {
            self.memory.give_shared(self.weight_bytes(elements));
        }
    }

    fn scatter(&mut self, elements: u64) {
        if self.s.z == 1 {
            return;
        }
        self.flush(None);
        let bytes = elements * self.s.framework.states.sent_gradient;
        let shard = bytes / self.s.z;
        let end = self.begin(Group::Z, self.scatter_seconds(elements));
        self.memory.take_gradient(shard);
        if self.s.overlap.reduce_scatter {
            self.scattered = end;
            if !self.s.framework.keeps_scattered {
                let before = std::mem::replace(&mut self.scattering, bytes + shard);
                self.memory.give_gradient(before);
            }
        } else {
            let begin = self.now;
            self.wait_until(Axis::Z as usize, end);
            self.scatter_wait += self.now - begin;
            self.memory.give_gradient(shard);
            self.memory.give_shared_gradient(bytes);
        }
        let accumulated = self.rates.sweep(Sweep::Accumulate, (elements / self.s.z) as f64, 2.0 * shard as f64);
        self.spend(accumulated);
        self.weighs(accumulated, 1.0);
    }

    fn panels(&mut self, panels: &Panels) {
        self.summa(panels);
    }

    fn take(&mut self, bytes: u64) {
        self.memory.take(bytes);
    }

    fn give(&mut self, bytes: u64) {
        self.memory.give(bytes);
    }

    fn give_kept(&mut self, bytes: u64) {
        self.memory.give_kept(bytes);
    }

    fn give_needed(&mut self, kept: bool, bytes: u64) {
        self.memory.give_needed(kept, bytes);
    }

    fn copy_needed(&mut self, bytes: u64) {
        self.memory.copy_needed(bytes);
    }

    fn take_gradient(&mut self, bytes: u64) {
        self.memory.take_gradient(bytes);
    }
}
