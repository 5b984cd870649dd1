//! The backward pass of a router and of what travels to experts and back.

use super::{Gradients, MICROBATCHES, RouteNode};
use crate::builder::Builder;
use crate::operation::{BlockKind, GemmPass, Write};
use crate::value::{Format, Home};
use crate::{ParameterId, Sharding, StepError, ValueId, kind};

/// The gradients of what experts gave and of how it was weighted, `[input, routes, output]` of the sum.
pub(super) fn combine(
    b: &mut Builder,
    known: &mut Gradients,
    block: BlockKind,
    [input, routes, output]: [ValueId; 3],
) -> Result<(), StepError> {
    let gradient = known.of[&output];
    let results = b.like("d results", input)?;
    let cut = *b.sharding(gradient);
    let complete = Sharding::new(&cut.rows, &[]);
    let partial = complete.partial(cut.cols.into_iter().collect());
    let [rows, choices] = b.shape(routes);
    let shape = [rows, (choices.of(b.layout) / 3).into()];
    let weights = b.value("d routes", shape, partial, Home::buffer(Format::Sums))?;
    let kept = (!b.practice.weighs_activations).then_some(input);
    b.push(kind::CombineBackward { block, gradient, input: kept, routes, output: results, weights });
    let weights = b.transition(weights, &complete)?;
    known.of.insert(routes, weights);
    b.contribute(known, input, results)
}

/// The two products of a router, whose weight is whole but for y.
pub(super) fn router(
    b: &mut Builder,
    known: &mut Gradients,
    weight: ParameterId,
    input: ValueId,
    output: ValueId,
) -> Result<(), StepError> {
    let gradient = known.of[&output];
    let right = b.parameters[weight.0].value;
    let before = b.like("d router", input)?;
    let pass = GemmPass::InputGradient;
    let write = Write::Overwrite;
    b.push(kind::Router { pass, left: gradient, right, output: before, write });
    b.contribute(known, input, before)?;
    let output = b.vector_gradient(weight, gradient);
    let pass = GemmPass::WeightGradient;
    let write = MICROBATCHES;
    b.push(kind::Router { pass, left: input, right: gradient, output, write });
    Ok(())
}

/// The gradient of the logits: what the weights of the chosen and the router's losses give, in place. A bias has none: the loads
/// that it follows are counted.
pub(super) fn route(b: &mut Builder, known: &mut Gradients, node: RouteNode) -> Result<(), StepError> {
    let RouteNode { block, logits, routes, counts, bias } = node;
    if let Some(bias) = bias {
        let output = b.vector_gradient(bias, routes);
        b.push(kind::CountLoads { block, routes, output, write: MICROBATCHES });
    }
    let gradient = known.of[&routes];
    let output = b.in_place("d router", logits);
    b.push(kind::RouteBackward { block, logits, routes, counts, gradient, output });
    known.of.insert(logits, output);
    Ok(())
}

/// The gradient of tokens that were copied to the places of experts, `[input, routes, output]` of the copy.
pub(super) fn dispatch(
    b: &mut Builder,
    known: &mut Gradients,
    block: BlockKind,
    [input, routes, output]: [ValueId; 3],
) -> Result<(), StepError> {
    let gradient = known.of[&output];
    let before = b.like("d dispatched", input)?;
    b.push(kind::DispatchBackward { block, gradient, routes, output: before });
    b.contribute(known, input, before)
}
