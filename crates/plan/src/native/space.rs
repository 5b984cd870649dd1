//! The choices that a search makes, and which values it tries of each.

use quadrille_cost::native::{AttentionKernel, Candidate, Framework, Moments};
use quadrille_spec::{
    Activations, Axis, AxisOrder, AxisSet, Dispatch, Field, Grid, KeepWeights, Layout, LayoutRequest, Linear, Model,
    Overlap, Recompute, Rule, Schedule, SpecError, Zero,
};

use super::constraint::{Bound, Range};
use super::legal::Rules;
use crate::frameworks::Capability;

/// The values of every choice of a layout. Of named choices the first is taken where a layout does not depend on them.
#[derive(Debug, Clone, PartialEq)]
pub struct Space {
    /// Sizes of the axes, in the order of `Axis::ALL`: all that divide the devices; see [`Space::sizes`].
    pub axes: [Range; Axis::COUNT],
    /// Sequences of one (data, expert) rank in one pass: all divisors of its share.
    pub microbatch: Range,
    /// Pieces of layers on a stage in the interleaved schedule: all numbers that leave a block to
    /// each but the first and the last.
    pub chunks: Range,
    /// Parts of a microbatch that interleave: 1, 2 and 4; where those are ruled out, the next three powers of two that are
    /// not, or the least number.
    pub overlap_chunks: Range,
    /// Panels of a SUMMA product: the fewest, unless a number is fixed.
    pub summa_panels: Range,
    /// Orders of passes.
    pub schedules: Vec<Schedule>,
    /// What the backward pass computes again.
    pub recompute: Vec<Recompute>,
    /// Whether recomputation keeps the outputs of collectives.
    pub keep_communicated: Vec<bool>,
    /// What is sharded over the axes that replicate weights: data, expert and context.
    pub zero: Vec<Zero>,
    /// How activations lie.
    pub activations: Vec<Activations>,
    /// How linear layers are multiplied.
    pub linear: Vec<Linear>,
    /// How long gathered weights are kept.
    pub keep_weights: Vec<KeepWeights>,
    /// Overlap passes; `None`: all of them are on.
    pub overlap: Option<Overlap>,
    /// Elements of a bucket of the optimizer's states in the host's memory; `None`: they are on the device.
    pub bucket: Option<usize>,
    /// Sets of axes over which experts are spread; empty: expert, with and without each of x, z and context.
    pub experts_over: Vec<AxisSet>,
    /// What ranks with the same tokens send to experts; `None`: each its part.
    pub dispatch: Option<Dispatch>,
    /// Room for rows of experts ([`Layout::expert_rows`](quadrille_spec::Layout::expert_rows)); `None`: as much as the imbalance
    /// of loads needs, if the usual is not enough.
    pub expert_rows: Option<usize>,
    /// What each rank's rows of the vocabulary are a multiple of ([`Layout::vocab_multiple`](quadrille_spec::Layout::vocab_multiple));
    /// `None`: as the framework pads.
    pub vocab_multiple: Option<usize>,
    /// The framework whose rules layouts keep; `None`: layouts are tried whether a framework can start them or not.
    pub runs_in: Option<Runner>,
}

/// A framework whose rules layouts keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Runner {
    /// The framework.
    pub framework: crate::export::Framework,
    /// The order in which it numbers ranks where a layout leaves it open.
    pub order: AxisOrder,
    /// True if moments are stored in a narrow type.
    pub narrow_moments: bool,
    /// True if the optimizer's states lie in the host's memory.
    pub offloads: bool,
}

impl Default for Space {
    /// Everything.
    fn default() -> Self {
        let full = |every| Recompute::Full { every };
        Self {
            axes: [Range::ALL; Axis::COUNT],
            microbatch: Range::ALL,
            chunks: Range::ALL,
            overlap_chunks: Range::ALL,
            summa_panels: Range::ALL,
            schedules: vec![
                Schedule::OneForwardOneBackward,
                Schedule::Interleaved,
                Schedule::ZeroBubble,
                Schedule::MessageDriven,
                Schedule::Gpipe,
            ],
            recompute: vec![Recompute::None, Recompute::Selective, full(1), full(2), full(4), full(8)],
            keep_communicated: vec![false, true],
            zero: vec![Zero::Off, Zero::Optimizer, Zero::Gradients],
            activations: vec![Activations::Scattered, Activations::Replicated],
            linear: vec![Linear::Pmm, Linear::Summa],
            keep_weights: vec![KeepWeights::Use, KeepWeights::Step],
            overlap: None,
            bucket: None,
            experts_over: Vec::new(),
            dispatch: None,
            expert_rows: None,
            vocab_multiple: None,
            runs_in: None,
        }
    }
}

/// Expert, with and without each of the axes whose ranks may share experts, too (folding).
fn foldings() -> Vec<AxisSet> {
    let others = [Axis::X, Axis::Context, Axis::Z];
    let of_bits = |bits: usize| others.into_iter().enumerate().filter(move |(place, _)| bits >> place & 1 == 1);
    let folding = |bits| of_bits(bits).map(|(_, axis)| axis).chain([Axis::Expert]).collect();
    (0..1 << others.len()).map(folding).collect()
}

impl Space {
    /// Everything, and other sizes of expert where a candidate has more than one.
    pub(super) fn around(candidate: &Candidate, model: &Model) -> Self {
        let vocab_multiple = Some(candidate.vocab_multiple);
        let mut space =
            Self { experts_over: vec![candidate.experts_over], vocab_multiple, ..Self::default() }.of_model(model);
        if candidate.size(Axis::Expert) > 1 {
            space.axes[Axis::Expert as usize] = Range { least: 1, most: candidate.devices() };
        }
        space
    }

    /// Refuses what is said of experts, or of a vocabulary, of a model that has none.
    ///
    /// # Errors
    /// The first such choice.
    pub(super) fn check_used(&self, model: &Model) -> Result<(), SpecError> {
        let padded = LayoutRequest {
            vocab_multiple: self.vocab_multiple(),
            ..LayoutRequest::new(Grid::of_sizes([1; Axis::COUNT])?, 1)
        };
        padded.check_without_grid(model, 1)?;
        if model.has_experts() {
            return Ok(());
        }
        let over = self.experts_over.iter().find(|over| !over.is_empty()).map(ToString::to_string);
        let dispatch = self.dispatch.filter(|dispatch| *dispatch != Dispatch::Dropped).map(|it| it.to_string());
        let rows = self.expert_rows.filter(|rows| *rows > 0).map(|it| it.to_string());
        let said = [(Field::ExpertsOver, over), (Field::Dispatch, dispatch), (Field::ExpertRows, rows)];
        match said.into_iter().find_map(|(field, value)| Some((field, value?))) {
            None => Ok(()),
            Some((field, value)) => {
                let named = format!("`layout.{}`", field.key());
                Err(SpecError::invalid(named, value, "the model has no experts", "leave it out"))
            }
        }
    }

    /// The same for a model: expert is tried where there are experts, up to as many ranks; else nothing is spread.
    #[must_use]
    pub(super) fn of_model(mut self, model: &Model) -> Self {
        let experts = model.blocks.kinds().iter().filter_map(|block| block.feed_forward.experts());
        let Some(most) = experts.map(|experts| experts.count).max() else {
            if self.experts_over.is_empty() {
                self.experts_over.push(AxisSet::EMPTY);
            }
            return self;
        };
        if self.experts_over.is_empty() {
            self.experts_over = foldings();
        }
        let expert = &mut self.axes[Axis::Expert as usize];
        if *expert == Range::ALL {
            *expert = Range { least: 1, most };
        }
        self
    }

    /// The ways to spread experts that differ in a grid: of each set the axes that are above 1.
    pub(super) fn spreadings(&self, sizes: &[usize; Axis::COUNT]) -> Vec<AxisSet> {
        let mut found = Vec::new();
        for set in &self.experts_over {
            let spread = set.iter().filter(|axis| sizes[*axis as usize] > 1).collect();
            if !found.contains(&spread) {
                found.push(spread);
            }
        }
        found
    }

    /// What ranks send to experts that have the same tokens, if they have.
    pub(super) fn dispatch_of(&self, activations: Activations) -> Dispatch {
        let fixed = self.dispatch.filter(|_| activations == Activations::Replicated);
        fixed.unwrap_or(Dispatch::Dropped)
    }

    /// The sizes of an axis that are tried. Expert is data by another name in a model without experts, so that it is 1 where
    /// nothing constrains it.
    pub fn sizes(&self, axis: Axis) -> Range {
        match self.axes[axis as usize] {
            Range::ALL if axis == Axis::Expert => Range::ONE,
            range => range,
        }
    }

    /// The axes of which more than size 1 is tried.
    pub(super) fn open_axes(&self) -> AxisSet {
        Axis::ALL.into_iter().filter(|axis| self.sizes(*axis) != Range::ONE).collect()
    }

    /// Whether sizes in the order of `Axis::ALL` are tried.
    pub(super) fn has_sizes(&self, sizes: &[usize; Axis::COUNT]) -> bool {
        Axis::ALL.into_iter().all(|axis| self.sizes(axis).contains(sizes[axis as usize]))
    }

    /// Leaves what trains `model` pruned: x copies no keys, since pruned keys have no copies.
    ///
    /// # Errors
    /// A constraint that wants more of x.
    pub fn keep_to_pruned(&mut self, model: &Model) -> Result<(), SpecError> {
        let keys = model.blocks.kinds().iter().map(|block| block.attention.kv_heads).min();
        keys.map_or(Ok(()), |keys| self.constrain(Bound::Max, &format!("x={keys}")))
    }

    /// Leaves of what nothing has constrained yet what `framework` runs by the table of [`crate::frameworks`], and keeps its rules.
    /// Megatron-FSDP, another implementation of data parallelism, is tried where z or ZeRO 2 is asked for.
    pub fn keep_to(&mut self, framework: &Framework) {
        let Some(runner) = crate::export::Framework::of_priced(framework) else { return };
        let narrow_moments = framework.numbers.moments.is_some_and(|moments| moments != Moments::F32);
        self.runs_in = Some(Runner {
            framework: runner,
            order: AxisOrder::usual_of(runner.title()),
            narrow_moments,
            offloads: self.bucket.is_some(),
        });
        let has = |capability| runner.has(capability);
        let fsdp = runner == crate::export::Framework::Torchtitan;
        let everything = Self::default();
        for (axis, is_open) in
            [(Axis::Y, has(Capability::Columns)), (Axis::Context, has(Capability::Context)), (Axis::Z, fsdp)]
        {
            if !is_open && self.axes[axis as usize] == Range::ALL {
                self.axes[axis as usize] = Range::ONE;
            }
        }
        if self.overlap_chunks == Range::ALL && !has(Capability::OverlapChunks) {
            self.overlap_chunks = Range::ONE;
        }
        // Selective recomputation of stored scores is that of Korthikanti et al.
        let scores = framework.attention == AttentionKernel::Stored;
        keep(&mut self.recompute, &everything.recompute, |recompute| {
            Capability::of_recompute(*recompute).is_none_or(has) || scores && *recompute == Recompute::Selective
        });
        keep(&mut self.keep_communicated, &everything.keep_communicated, |keep| {
            !keep || has(Capability::KeptCollectives)
        });
        keep(&mut self.zero, &everything.zero, |zero| match zero {
            Zero::Off => true,
            Zero::Optimizer => has(Capability::ShardedStates),
            Zero::Gradients => false,
        });
        keep(&mut self.activations, &everything.activations, |activations| match activations {
            Activations::Scattered => has(Capability::ScatteredActivations),
            Activations::Replicated => has(Capability::ReplicatedActivations),
        });
        keep(&mut self.linear, &everything.linear, |linear| *linear == Linear::Pmm || has(Capability::Summa));
        keep(&mut self.keep_weights, &everything.keep_weights, |keep| {
            *keep == KeepWeights::Use || has(Capability::StepWeights)
        });
        keep(&mut self.schedules, &everything.schedules, |schedule| has(Capability::Pipeline(*schedule)));
    }

    /// The same with states in the host's memory, which come to the device in buckets of so many elements.
    pub(super) fn with_bucket(self, bucket: usize) -> Self {
        let runs_in = self.runs_in.map(|runner| Runner { offloads: true, ..runner });
        Self { bucket: Some(bucket), runs_in, ..self }
    }

    /// Checks the framework's rules of axes and sequence.
    ///
    /// # Errors
    /// [`Rule::Framework`].
    pub(super) fn check_grid(&self, rules: &Rules, candidate: &Candidate) -> Result<(), Rule> {
        let Some(Runner { framework, .. }) = self.runs_in else { return Ok(()) };
        let keeps = rules.layout(candidate).is_ok_and(|layout| framework.keeps_grid(rules.model, &layout));
        if keeps { Ok(()) } else { Err(Rule::Framework) }
    }

    /// True if the framework can number ranks so that the candidate's neighbors share nodes.
    pub(super) fn has_order(&self, rules: &Rules, candidate: &Candidate) -> bool {
        let Some(Runner { framework, order, .. }) = self.runs_in else { return true };
        let (Ok(layout), Ok(order)) = (rules.layout(candidate), candidate.order_as(order)) else { return false };
        framework.keeps_order(rules.model, &Layout { grid: layout.grid.with_order(order), ..layout })
    }

    /// The framework's rule of schedules, if a layout breaks it.
    pub(super) fn broken_schedule(&self, model: &Model, layout: &Layout) -> Option<Rule> {
        let runner = self.runs_in.filter(|runner| !runner.framework.keeps_schedule(model, layout));
        runner.map(|_| Rule::Framework)
    }

    /// True if the framework stores the optimizer's states where and as they are to be, with z and ZeRO sharding them so.
    pub(super) fn stores_states(&self, zero: Zero, z: usize, replicas: usize) -> bool {
        self.runs_in.is_none_or(|Runner { framework, narrow_moments, offloads, .. }| {
            (!narrow_moments || framework.keeps_narrow_moments(zero, z, replicas) && framework.keeps_moments(offloads))
                && (!offloads || framework.keeps_offload(zero, z, replicas))
        })
    }

    /// True if a candidate keeps all rules of the framework.
    pub(super) fn runs(&self, rules: &Rules, candidate: &Candidate) -> bool {
        let replicas = candidate.batch_shares() * candidate.size(Axis::Context);
        self.check_grid(rules, candidate).is_ok()
            && self.has_order(rules, candidate)
            && self.stores_states(candidate.zero, candidate.size(Axis::Z), replicas)
            && rules.layout(candidate).is_ok_and(|layout| self.broken_schedule(rules.model, &layout).is_none())
    }

    /// Whether every choice that the layout depends on is among these.
    pub fn contains(&self, c: &Candidate) -> bool {
        let several = |axes: &[Axis]| axes.iter().any(|axis| c.size(*axis) > 1);
        let cut = several(&[Axis::X, Axis::Y]);
        self.has_sizes(&c.sizes)
            && c.bucket == self.bucket
            && self.vocab_multiple.is_none_or(|multiple| c.vocab_multiple == multiple)
            && self.spreads_as(c)
            && self.microbatch.contains(c.microbatch)
            && self.chunks.contains(c.chunks)
            && self.overlap_chunks.contains(c.overlap_chunks)
            && self.recompute.contains(&c.recompute)
            && (c.recompute == Recompute::None || self.keep_communicated.contains(&c.keep_communicated))
            && (!several(&[Axis::Data, Axis::Expert, Axis::Context]) || self.zero.contains(&c.zero))
            && (!cut || self.activations.contains(&c.activations) && self.linear.contains(&c.linear))
            && (!several(&[Axis::Z]) || self.keep_weights.contains(&c.keep_weights))
            && (!several(&[Axis::Pipe]) || self.schedules.contains(&c.schedule))
    }

    /// What each rank's rows of the vocabulary are a multiple of.
    pub(super) fn vocab_multiple(&self) -> usize {
        self.vocab_multiple.unwrap_or(1)
    }

    /// Whether experts are spread over axes that are tried, as far as they are above 1. Left to the model all are.
    fn spreads_as(&self, c: &Candidate) -> bool {
        self.experts_over.is_empty() || self.spreadings(&c.sizes).contains(&c.spreading())
    }

    /// Numbers of chunks to interleave, at least 2, on a pipeline of `stages` stages.
    pub(super) fn several_chunks(&self, layers: usize, stages: usize) -> Vec<usize> {
        match self.chunks.only() {
            Some(1) => Vec::new(),
            Some(chunks) => vec![chunks],
            // The first and the last piece may have no block.
            None => (2..=(layers + 2) / stages).filter(|chunks| self.chunks.contains(*chunks)).collect(),
        }
    }

    /// Schedules with their chunks on a pipeline of `stages` stages; the rules may refuse some.
    pub(super) fn schedules(&self, layers: usize, stages: usize) -> Vec<(Schedule, usize)> {
        let single = self.chunks.contains(1);
        let mut found = Vec::new();
        for schedule in &self.schedules {
            let chunked = *schedule == Schedule::Interleaved && stages > 1;
            // Interleaving one chunk a stage is 1F1B.
            let same = chunked && self.schedules.len() > 1;
            found.extend((single && !same).then_some((*schedule, 1)));
            if chunked {
                found.extend(self.several_chunks(layers, stages).into_iter().map(|chunks| (*schedule, chunks)));
            }
            if stages == 1 && !found.is_empty() {
                break;
            }
        }
        found
    }

    /// Parts of a microbatch to be tried.
    pub(super) fn overlap_chunks(&self) -> Vec<usize> {
        let range = self.overlap_chunks;
        let powers = |first: usize| std::iter::successors(Some(first), |chunks| chunks.checked_mul(2)).take(3);
        let within = |first| powers(first).filter(|chunks| range.contains(*chunks)).collect::<Vec<_>>();
        let usual = within(1);
        let larger = if usual.is_empty() { range.least.checked_next_power_of_two().map(within) } else { None };
        match larger.unwrap_or(usual) {
            none if none.is_empty() => vec![range.least],
            found => found,
        }
    }

    /// Activations with linear algorithms and their panels on a mesh of `x` and `y`.
    pub(super) fn products(&self, x: usize, y: usize) -> Vec<(Activations, Linear, usize)> {
        let mesh = least_common_multiple(x, y);
        let panels = self.summa_panels.only().unwrap_or_else(|| {
            let fewest = self.summa_panels.least.div_ceil(mesh) * mesh;
            if self.summa_panels.contains(fewest) { fewest } else { 0 }
        });
        let mut found = Vec::new();
        for linear in &self.linear {
            for activations in &self.activations {
                let summa = *linear == Linear::Summa;
                // SUMMA scatters activations.
                if !(summa && *activations == Activations::Replicated && self.activations.len() > 1) {
                    found.push((*activations, *linear, if summa { panels } else { mesh }));
                }
                if x * y == 1 {
                    return found;
                }
            }
        }
        found
    }

    /// What is computed again, with whether it keeps what was communicated, where a rank has at most `blocks` blocks in
    /// a piece; `communicates`: whether a block has collectives at all.
    pub(super) fn recompute(&self, blocks: usize, communicates: bool) -> Vec<(Recompute, bool)> {
        let mut found = Vec::new();
        for recompute in &self.recompute {
            if self.is_repeated(*recompute, blocks) {
                continue;
            }
            for keep in &self.keep_communicated {
                let open = self.keep_communicated.len() > 1;
                if !(*keep && open && (*recompute == Recompute::None || !communicates)) {
                    found.push((*recompute, *keep));
                }
            }
        }
        found
    }

    /// Whether recomputing so much is the same as something else that is tried, where a rank has at most `blocks` blocks
    /// in a piece.
    pub(super) fn is_repeated(&self, recompute: Recompute, blocks: usize) -> bool {
        let Recompute::Full { every } = recompute else { return false };
        // Only the input of each piece is kept by all that are at least as long.
        let same =
            |other: &Recompute| matches!(other, Recompute::Full { every: other } if (blocks..every).contains(other));
        self.recompute.iter().any(same)
    }

    /// The values of a choice that a layout depends on, or only the first.
    pub(super) fn where_it_counts<T>(values: &[T], counts: bool) -> &[T] {
        if counts { values } else { &values[..values.len().min(1)] }
    }
}

fn least_common_multiple(x: usize, y: usize) -> usize {
    (1..=y).map(|times| x * times).find(|multiple| multiple.is_multiple_of(y)).unwrap_or(x * y)
}

/// All divisors, ascending.
pub(super) fn divisors(number: usize) -> Vec<usize> {
    let small: Vec<usize> = (1..=number.isqrt()).filter(|divisor| number.is_multiple_of(*divisor)).collect();
    let large = small.iter().rev().map(|divisor| number / divisor).filter(|large| large * large > number);
    small.iter().copied().chain(large).collect()
}

/// Leaves the values of a choice that `runs` names, if all are still open.
fn keep<T: PartialEq>(values: &mut Vec<T>, everything: &[T], runs: impl Fn(&T) -> bool) {
    if values == everything {
        values.retain(runs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_overlap_chunks_leave_some() {
        let tried = |least, most| Space { overlap_chunks: Range { least, most }, ..Space::default() }.overlap_chunks();
        assert_eq!(tried(1, usize::MAX), [1, 2, 4]);
        assert_eq!(tried(2, 3), [2]);
        assert_eq!(tried(8, 8), [8]);
        assert_eq!(tried(8, usize::MAX), [8, 16, 32]);
        assert_eq!(tried(5, 7), [5]);
        assert_eq!(tried(5, 12), [8]);
        assert_eq!(tried(usize::MAX, usize::MAX), [usize::MAX]);
    }
}
