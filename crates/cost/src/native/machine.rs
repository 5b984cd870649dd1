//! The native model's constants as a machine for simulations of step programs.

use quadrille_spec::{Axis, CollectiveKind, Layout};
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
        let candidate = problem.candidate(layout);
        Self { problem, candidate, placement: Placement::of(&problem.network, &candidate) }
    }

    fn link(&self, axes: quadrille_spec::AxisSet) -> Link {
        Link::new(&self.problem.network, &self.placement, &self.candidate, axes)
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
        let link = self.link(axes);
        if axes == Axis::Pipe.only() && members < self.candidate.size(Axis::Pipe) && kind == CollectiveKind::AllReduce {
            return link.exchange_seconds(payload_bytes as f64);
        }
        link.seconds(kind, payload_bytes as f64)
    }

    fn message_seconds(&self, bytes: u64) -> f64 {
        self.link(Axis::Pipe.only()).message_seconds(bytes as f64)
    }
}
