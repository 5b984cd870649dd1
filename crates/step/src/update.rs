//! After the last microbatch: what is still a partial sum is reduced, the gradient norm is taken, parameters move.

use quadrille_spec::{Axis, AxisSet, CollectiveKind};

use crate::builder::Builder;
use crate::operation::{Collective, Members, Operation, Reduction, Scalar};
use crate::{Layer, Parameter, ParameterId};

/// Emits the update section. Every reduction is a sum, over the axes that the gradient's shardings give.
pub(crate) fn update(b: &mut Builder) {
    let reductions: Vec<(Layer, ParameterId, Vec<Collective>)> = (0..b.parameters.len())
        .map(|index| {
            let parameter = &b.parameters[index];
            (parameter.layer, ParameterId(index), reductions(b, parameter))
        })
        .collect();
    // First reductions are under way together; those that build on others follow in turn.
    for (layer, _, collectives) in &reductions {
        b.layer = *layer;
        if let Some(first) = collectives.first() {
            b.push(Operation::Issue(*first));
        }
    }
    for (layer, parameter, collectives) in &reductions {
        b.layer = *layer;
        for (index, collective) in collectives.iter().enumerate() {
            if index > 0 {
                b.push(Operation::Issue(*collective));
            }
            b.push(Operation::Wait(*collective));
        }
        let gradient = b.parameters[parameter.0].reduced;
        b.push(Operation::SumSquares { parameter: *parameter, gradient });
    }
    b.layer = Layer::Step;
    b.push(Operation::ReduceScalar { scalar: Scalar::Loss, axes: loss_axes(b) });
    b.push(Operation::ReduceScalar { scalar: Scalar::GradientNormSquared, axes: AxisSet::WORLD });
    for (layer, parameter, _) in reductions {
        b.layer = layer;
        let Parameter { value, updated, reduced, .. } = b.parameters[parameter.0];
        b.push(Operation::AdamW { parameter, value: updated, gradient: reduced });
        if updated != value {
            // Waited for by the next step's first use.
            b.push(Operation::Issue(b.gather_updated(value)));
        }
    }
}

/// What makes a parameter's gradient complete, in order: the sum with the other copy of a tied table, the sum over
/// axes, and under ZeRO its scattering over data and context.
fn reductions(b: &Builder, parameter: &Parameter) -> Vec<Collective> {
    let size = |axes| b.layout.grid.size_of(axes);
    let gradient = parameter.gradient;
    let collective = |kind, axes, members, output| Collective {
        kind,
        axes,
        members,
        reduction: Reduction::Sum,
        input: gradient,
        output,
    };
    let scattered = parameter.reduced != gradient;
    let sharded = if scattered { b.layout.replicating() } else { AxisSet::EMPTY };
    let summed = parameter.unreduced.without(sharded);
    let mut collectives = Vec::new();
    if b.model.tied_head && b.layout.pieces() > 1 && parameter.name == "embedding.table" {
        collectives.push(collective(CollectiveKind::AllReduce, Axis::Pipe.only(), Members::Ends, gradient));
    }
    if size(summed) > 1 {
        collectives.push(collective(CollectiveKind::AllReduce, summed, Members::All, gradient));
    }
    if scattered {
        collectives.push(collective(CollectiveKind::ReduceScatter, sharded, Members::All, parameter.reduced));
    }
    collectives
}

/// Ranks that differ on these axes have different parts of the loss.
fn loss_axes(b: &Builder) -> AxisSet {
    let split = |axis: &Axis| b.axis_size(*axis) > 1;
    b.rows().into_iter().chain([Axis::Pipe].into_iter().filter(split)).collect()
}
