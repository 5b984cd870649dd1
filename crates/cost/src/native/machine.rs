//! The native model's constants as a machine for simulations of step programs.

use quadrille_spec::{Axis, CollectiveKind};
use quadrille_step::{Op, Operation, StageProgram};

use super::network::{Link, Placement};
use super::operations::Sweep;
use super::{Candidate, Problem};
use crate::simulation::{Communication, Machine, Work};

/// Prices the operations of a step program as the native model does: the same device, tiers and placement. Made for
/// programs of this program's engine: what a [`super::Framework`] does differently is not in a step program.
#[derive(Debug, Clone)]
pub struct NativeMachine<'a> {
    problem: &'a Problem,
    candidate: Candidate,
    placement: Placement,
}

impl<'a> NativeMachine<'a> {
    /// A machine for the program of the candidate's layout.
    pub fn new(problem: &'a Problem, candidate: &Candidate) -> Self {
        Self { problem, candidate: *candidate, placement: Placement::of(&problem.network, candidate) }
    }

    fn link(&self, axes: quadrille_spec::AxisSet) -> Link {
        Link::new(&self.problem.network, &self.placement, &self.candidate, axes)
    }
}

impl Machine for NativeMachine<'_> {
    fn operation_seconds(&self, stage: &StageProgram, op: &Op) -> f64 {
        let rates = &self.problem.rates;
        let Work { bytes, .. } = Work::of(stage, &op.operation);
        let (model, layout) = (&stage.model, &stage.layout);
        if let Some(product) = op.operation.product(stage) {
            return rates.product([product.m, product.n, product.k].map(|size| size as f64)).seconds();
        }
        let core = match op.operation {
            Operation::Attention { output, .. } => Some((false, output)),
            Operation::AttentionBackward { result, .. } => Some((true, result)),
            _ => None,
        };
        if let Some((backward, output)) = core {
            let output = stage.value(output);
            let (outputs, width) = (output.local_elements as f64, model.head_dim() as f64);
            let local = layout.seq_len / layout.grid.size(Axis::Context);
            let heads = outputs / width / local as f64;
            let shape = [layout.seq_len as f64, width, heads];
            let moved = bytes / layout.dtype.bytes() as f64;
            return rates.attention(backward, model.causal, shape, outputs, moved).seconds();
        }
        match Sweep::by_name(op.operation.name()) {
            Some(Sweep::AdamW) | None => rates.traffic(bytes, 1.0).seconds(),
            Some(sweep) => {
                let place = layout.grid.coordinate(0);
                let elements = quadrille_step::swept_elements(stage, &op.operation, place).unwrap_or(0);
                rates.sweep(sweep, elements as f64, bytes).seconds()
            }
        }
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
