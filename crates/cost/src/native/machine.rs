//! The native model's constants as a machine for simulations of step programs.

use quadrille_spec::{Axis, AxisSet, Block, CollectiveKind, Layout};
use quadrille_step::{Computation, Format, Op, StageProgram, Work};

use super::measured::tokens_seen;
use super::network::{Link, Placement};
use super::rates::Taken;
use super::{Candidate, Problem};
use crate::simulation::{Communication, Machine};

/// With what else a payload is sent.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sending {
    /// By itself.
    Alone,
    /// So many bytes in one collective with others of its kind, of which each takes its part: buckets of gradients and updated
    /// weights, the weights of a block.
    Together(f64),
    /// Updated weights by the rank that owns them, one rank after the other.
    InTurn,
}

/// Prices the operations of a step program on the problem's device, tiers and placement, as its framework does them.
#[derive(Debug, Clone)]
pub struct NativeMachine<'a> {
    pub(super) problem: &'a Problem,
    candidate: Candidate,
    placement: Placement,
    /// Whether gradients of weights are taken to be added to none: a ZeRO stage may have them scattered instead.
    pub(super) adds_nothing: bool,
}

impl<'a> NativeMachine<'a> {
    /// A machine for the program of a layout.
    pub fn new(problem: &'a Problem, layout: &Layout) -> Self {
        Self::of(problem, problem.candidate(layout))
    }

    /// A machine for the programs of a candidate.
    pub(super) fn of(problem: &'a Problem, candidate: Candidate) -> Self {
        Self { problem, candidate, placement: Placement::of(&problem.network, &candidate), adds_nothing: false }
    }

    /// The same for the least that any ZeRO stage does.
    pub(super) fn of_any_zero(self) -> Self {
        Self { adds_nothing: true, ..self }
    }

    /// The links of a group over `axes`.
    pub(super) fn link(&self, axes: AxisSet) -> Link {
        Link::new(&self.problem.network, &self.placement, &self.candidate, axes)
    }

    /// A collective of so many members on the links of a group over `axes`, with a payload of so many bytes, sent like that.
    pub(super) fn seconds_on(
        &self,
        link: &Link,
        kind: CollectiveKind,
        axes: AxisSet,
        members: usize,
        bytes: u64,
        sending: Sending,
    ) -> f64 {
        let pipe = self.candidate.size(Axis::Pipe);
        if kind == CollectiveKind::AllReduce && axes == Axis::Pipe.only() && members < pipe {
            return link.exchange_seconds(bytes as f64);
        }
        match sending {
            Sending::InTurn if kind == CollectiveKind::AllGather => {
                link.relayed_seconds(bytes as f64, self.weight_bytes())
            }
            Sending::Together(together) if bytes > 0 => bytes as f64 / together * link.seconds(kind, together),
            _ => link.seconds(kind, bytes as f64),
        }
    }

    /// How what has a format is sent, of a block like this (of others than blocks: of the first block).
    pub(super) fn sending(&self, format: Format, block: Option<&Block>) -> Sending {
        let framework = &self.problem.framework;
        match format {
            Format::Weights | Format::Vectors if framework.broadcasts_updates => Sending::InTurn,
            Format::Gradients | Format::VectorGradients | Format::Weights | Format::Vectors => {
                framework.gradient_bucket.map_or(Sending::Alone, |bytes| Sending::Together(bytes as f64))
            }
            Format::Gathered if framework.gathers_blocks => {
                Sending::Together(self.block_bytes(block.unwrap_or(self.problem.model.blocks.first())))
            }
            _ => Sending::Alone,
        }
    }

    /// Bytes of a rank's weights, in the mean of stages.
    fn weight_bytes(&self) -> f64 {
        let cut: usize = [Axis::X, Axis::Y, Axis::Pipe].map(|axis| self.candidate.size(axis)).iter().product();
        self.problem.model.parameters() as f64 / cut as f64 * self.problem.framework.states.weight as f64
    }

    /// Bytes of what is gathered of a block's weights.
    fn block_bytes(&self, block: &Block) -> f64 {
        let c = self.candidate;
        let hidden = self.problem.model.hidden;
        let [all, experts] = [block.weights(hidden), block.expert_weights(hidden)].map(|weights| weights as f64);
        let cut = |axes: [Axis; 2]| axes.iter().map(|axis| c.size(*axis)).product::<usize>() as f64;
        let spread: usize = c.experts_over.iter().filter(|axis| *axis != Axis::X).map(|axis| c.size(axis)).product();
        // Those of experts that are spread over z are not gathered.
        let gathered = if c.experts_over.contains(Axis::Z) { 0.0 } else { experts / spread as f64 };
        let bytes = self.problem.framework.states.gathered_weight;
        (all - experts + gathered) / cut([Axis::X, Axis::Y]) * bytes as f64
    }

    /// What so much work takes on the compute stream.
    pub(super) fn taken(&self, work: &Work) -> Taken {
        let rates = &self.problem.rates;
        match work.computation {
            Computation::None => rates.traffic(work.moved as f64),
            Computation::Product { product, groups, .. } => {
                rates.products(product.each(groups), groups as f64, rates.element_bytes)
            }
            Computation::Attention { backward, causal, seq_len, keys, head_dim, value_dim, outputs, .. } => {
                let tokens = tokens_seen(seq_len as f64, keys as f64);
                let shape = [tokens, head_dim as f64, (outputs / value_dim) as f64];
                // As many as heads whose values are as wide as queries would have for the same work.
                let alike = outputs as f64 * ((head_dim + value_dim) as f64 / (2 * value_dim) as f64);
                rates.attention(backward, causal, shape, alike, work.moved as f64)
            }
            Computation::Sweep { elements, arithmetic } => rates.swept(elements as f64 * arithmetic, work.moved as f64),
        }
    }
}

impl Machine for NativeMachine<'_> {
    fn operation_seconds(&self, stage: &StageProgram, op: &Op) -> f64 {
        self.cost(stage, &op.operation).0.seconds()
    }

    fn collective_seconds(&self, collective: &Communication) -> f64 {
        let Communication { kind, axes, members, payload_bytes, format, block, .. } = *collective;
        let sending = self.sending(format, block.map(|block| block.of(&self.problem.model)));
        self.seconds_on(&self.link(axes), kind, axes, members, payload_bytes, sending)
    }

    fn message_seconds(&self, bytes: u64) -> f64 {
        self.link(Axis::Pipe.only()).message_seconds(bytes as f64)
    }

    /// What is not described takes for ever.
    fn host_copy_seconds(&self, bytes: u64) -> f64 {
        self.problem.host_bandwidth.map_or(f64::INFINITY, |bandwidth| bytes as f64 / bandwidth)
    }

    fn operation(&self, stage: &StageProgram, op: &Op) -> (f64, f64) {
        let (taken, kernels) = self.cost(stage, &op.operation);
        (taken.seconds(), kernels)
    }

    fn host_seconds(&self) -> f64 {
        self.problem.framework.host_seconds
    }

    fn streams_by_group(&self) -> bool {
        self.problem.framework.streams_by_group
    }

    fn share_beside_collectives(&self) -> f64 {
        self.problem.framework.compute_share
    }
}
