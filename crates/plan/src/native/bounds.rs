//! Lower bounds: what a configuration needs at least, cheaper to know than its price.

use quadrille_cost::native::Framework;
use quadrille_spec::{Axis, AxisSet, Model, Zero};

/// Bytes of the states of the rank that needs most, at least: the stage that has the most parameters has no fewer than
/// the mean of all stages, and padding only adds.
pub(super) fn state_bytes(
    model: &Model,
    framework: &Framework,
    sizes: [usize; Axis::COUNT],
    experts_over: AxisSet,
    zero: Zero,
    on_device: bool,
    device: Option<u64>,
) -> u64 {
    let size_of = |axes: AxisSet| axes.iter().map(|axis| sizes[axis as usize]).product::<usize>() as f64;
    let [batch, context] = [Axis::BATCH.into_iter().collect(), Axis::Context.only()];
    let replicating = context.union(batch);
    // x and z cut experts, as whole ones or as weights.
    let spread = experts_over.without(experts_over.without(replicating));
    let experts = model.expert_parameters() as f64;
    // What has no optimizer's states is left out.
    let others = (model.parameters() - model.untrained_parameters()) as f64 - experts;
    let parts = [(others, AxisSet::EMPTY), (experts, spread)];
    let cut = size_of(AxisSet::WORLD.without(replicating));
    // Whichever of the parameters are vectors, and whatever is pruned.
    let bytes = [framework.states, framework.vector_states()].map(|states| {
        let states = if on_device { states } else { states.without_optimizer() };
        let of_part = |(parameters, spread): (f64, AxisSet)| {
            let replicas = size_of(replicating.without(spread));
            let [held, weight] = [states.held(zero, replicas, true), states.weight as f64];
            parameters / (cut * size_of(spread)) * (weight + (held - weight) * framework.kept())
        };
        parts.map(of_part).iter().sum::<f64>()
    });
    bytes[0].min(bytes[1]) as u64 + framework.reserved_on(device)
}
