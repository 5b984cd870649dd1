//! After the last microbatch: what is still a partial sum is reduced, the gradient norm is taken, parameters move.

use quadrille_spec::{Axis, AxisSet, CollectiveKind};

use crate::builder::Builder;
use crate::operation::{Collective, Operation, Reduction, Scalar};
use crate::{Layer, ParameterId};

/// Emits the update section. Every reduction is a sum, over the axes that the gradient's shardings give.
pub(crate) fn update(b: &mut Builder) {
    let reductions: Vec<(Layer, ParameterId, Option<Collective>)> = b
        .parameters
        .iter()
        .enumerate()
        .map(|(index, parameter)| {
            let axes = parameter.unreduced;
            let collective = Collective {
                kind: CollectiveKind::AllReduce,
                axes,
                reduction: Reduction::Sum,
                input: parameter.gradient,
                output: parameter.gradient,
            };
            (parameter.layer, ParameterId(index), (b.layout.grid.size_of(axes) > 1).then_some(collective))
        })
        .collect();
    for (layer, _, collective) in &reductions {
        b.layer = *layer;
        if let Some(collective) = *collective {
            b.push(Operation::Issue(collective));
        }
    }
    for (layer, parameter, collective) in &reductions {
        b.layer = *layer;
        if let Some(collective) = *collective {
            b.push(Operation::Wait(collective));
        }
        let gradient = b.parameters[parameter.0].gradient;
        b.push(Operation::SumSquares { parameter: *parameter, gradient });
    }
    b.layer = Layer::Step;
    let loss_axes = Axis::Z.only().union(Axis::Data.only());
    b.push(Operation::ReduceScalar { scalar: Scalar::Loss, axes: loss_axes });
    b.push(Operation::ReduceScalar { scalar: Scalar::GradientNormSquared, axes: AxisSet::WORLD });
    for (layer, parameter, _) in reductions {
        b.layer = layer;
        let (value, gradient) = (b.parameters[parameter.0].value, b.parameters[parameter.0].gradient);
        b.push(Operation::AdamW { parameter, value, gradient });
    }
}
