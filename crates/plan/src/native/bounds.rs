//! Lower bounds: what a configuration needs at least, cheaper to know than its price.

use quadrille_cost::native::Framework;
use quadrille_spec::{Model, Zero};

/// Bytes of the states of the rank that needs most, at least: the stage that has the most parameters has no fewer than
/// the mean of all stages, and padding only adds.
pub(super) fn state_bytes(
    model: &Model,
    framework: &Framework,
    [x, y, z, context, data, pipe]: [usize; 6],
    zero: Zero,
    on_device: bool,
) -> u64 {
    let parameters = model.parameters() as f64 / (x * y * z * pipe) as f64;
    let replicas = (context * data) as f64;
    // Whichever of the parameters are vectors, and whatever is pruned.
    let bytes = [framework.states, framework.vector_states()].map(|states| {
        let states = if on_device { states } else { states.without_optimizer() };
        let [held, weight] = [states.held(zero, replicas, true), states.weight as f64];
        weight + (held - weight) * framework.kept()
    });
    let bytes = bytes[0].min(bytes[1]);
    (parameters * bytes) as u64 + framework.reserved_bytes
}
