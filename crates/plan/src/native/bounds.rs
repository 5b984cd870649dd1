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
) -> u64 {
    let parameters = model.parameters() as f64 / (x * y * z * pipe) as f64;
    let replicas = (context * data) as f64;
    let states = framework.states;
    let [weight, gradient, optimizer] = [states.weight, states.gradient, states.optimizer].map(|bytes| bytes as f64);
    let bytes = match zero {
        Zero::Off => weight + gradient + optimizer,
        Zero::Optimizer => weight + gradient + optimizer / replicas,
        Zero::Gradients => weight + (gradient + optimizer) / replicas,
    };
    (parameters * bytes) as u64 + framework.reserved_bytes
}
