//! The native model's constants as a machine for simulations of step programs.

use quadrille_spec::{Axis, AxisSet, CollectiveKind, Layout};
use quadrille_step::{At, Computation, Op, Product, StageProgram, Work};

use super::network::{Link, Placement};
use super::rates::Taken;
use super::{Candidate, Problem};
use crate::simulation::{Communication, Machine};

/// Prices the operations of a step program as the native model does: the same device, tiers and placement. Made for
/// programs of this program's engine: what a [`super::Framework`] does differently is not in a step program.
#[derive(Debug, Clone)]
pub struct NativeMachine<'a> {
    problem: &'a Problem,
    candidate: Candidate,
    placement: Placement,
}

impl<'a> NativeMachine<'a> {
    /// A machine for the program of a layout.
    pub fn new(problem: &'a Problem, layout: &Layout) -> Self {
        Self::of(problem, problem.candidate(layout))
    }

    /// A machine for the programs of a candidate.
    pub(super) fn of(problem: &'a Problem, candidate: Candidate) -> Self {
        Self { problem, candidate, placement: Placement::of(&problem.network, &candidate) }
    }

    /// The links of a group over `axes`.
    pub(super) fn link(&self, axes: AxisSet) -> Link {
        Link::new(&self.problem.network, &self.placement, &self.candidate, axes)
    }

    /// A collective of so many members on the links of a group over `axes`, with a payload of so many bytes.
    pub(super) fn seconds_on(
        &self,
        link: &Link,
        kind: CollectiveKind,
        axes: AxisSet,
        members: usize,
        bytes: u64,
    ) -> f64 {
        let pipe = self.candidate.size(Axis::Pipe);
        match kind {
            CollectiveKind::AllReduce if axes == Axis::Pipe.only() && members < pipe => {
                link.exchange_seconds(bytes as f64)
            }
            _ => link.seconds(kind, bytes as f64),
        }
    }

    /// What an operation that does so much takes on the compute stream.
    pub(super) fn taken(&self, work: &Work) -> Taken {
        let rates = &self.problem.rates;
        match work.computation {
            Computation::None => rates.traffic(work.moved as f64, 1.0),
            Computation::Product { product: Product { m, n, k, .. }, .. } => {
                rates.product([m, n, k].map(|size| size as f64))
            }
            Computation::Attention { backward, causal, seq_len, head_dim, heads, outputs } => {
                let shape = [seq_len, head_dim, heads].map(|size| size as f64);
                rates.attention(backward, causal, shape, outputs as f64, work.moved as f64)
            }
            Computation::Sweep { elements, arithmetic } => rates.swept(elements as f64 * arithmetic, work.moved as f64),
        }
    }
}

impl Machine for NativeMachine<'_> {
    fn operation_seconds(&self, stage: &StageProgram, op: &Op) -> f64 {
        self.taken(&op.operation.work(At::first(stage))).seconds()
    }

    fn collective_seconds(&self, collective: &Communication) -> f64 {
        let Communication { kind, axes, members, payload_bytes, .. } = *collective;
        self.seconds_on(&self.link(axes), kind, axes, members, payload_bytes)
    }

    fn message_seconds(&self, bytes: u64) -> f64 {
        self.link(Axis::Pipe.only()).message_seconds(bytes as f64)
    }
}
