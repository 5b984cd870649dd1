//! AdamW with decoupled weight decay (Loshchilov and Hutter, ICLR 2019) and clipping by the global gradient norm; and biases
//! of routers, which follow the loads of experts (Wang et al. 2024, auxiliary-loss-free load balancing).

use quadrille_spec::Model;

use crate::{Tensors, assert_parameters, zeros};

/// The settings of one update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamW {
    /// Size of the update, after any schedule.
    pub learning_rate: f64,
    /// Decay of the mean gradient, in [0, 1).
    pub beta1: f64,
    /// Decay of the mean squared gradient, in [0, 1).
    pub beta2: f64,
    /// Added to the root of the mean squared gradient.
    pub epsilon: f64,
    /// Share of a decayed parameter that is taken away at learning rate 1.
    pub weight_decay: f64,
    /// The largest global gradient norm that is not scaled down; none: never.
    pub clip: Option<f64>,
}

/// What the optimizer remembers between updates.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// Updates made so far.
    pub steps: u64,
    /// Running mean of the gradients.
    pub m: Tensors,
    /// Running mean of the squared gradients.
    pub v: Tensors,
}

impl State {
    /// The state before the first update.
    pub fn new(model: &Model) -> Self {
        Self { steps: 0, m: zeros(model), v: zeros(model) }
    }
}

/// Updates the parameters once; returns the norm of all gradients together, before clipping.
///
/// In the place of the gradient of a router's bias are the loads of its experts, which are in no norm and are not clipped: what
/// has more than their mean falls by the model's rate, what has less rises.
///
/// The norm counts a tied table once. Weights, tables and positions decay; norms and biases do not. The decay is
/// that of the parameter before the update.
///
/// # Panics
///
/// If the state, the parameters or the gradients are not exactly the model's.
pub fn update(
    model: &Model,
    settings: &AdamW,
    state: &mut State,
    parameters: &mut Tensors,
    gradients: &Tensors,
) -> f64 {
    let named = [("parameters", &*parameters), ("gradients", gradients), ("m", &state.m), ("v", &state.v)];
    for (what, tensors) in named {
        assert_parameters(model, tensors, what);
    }
    let AdamW { learning_rate, beta1, beta2, epsilon, weight_decay, clip } = *settings;
    let norm = gradient_norm(gradients);
    let scale = clip.map_or(1.0, |clip| (clip / (norm + 1e-6)).min(1.0));

    state.steps += 1;
    let correction1 = 1.0 - beta1.powf(state.steps as f64);
    let correction2 = 1.0 - beta2.powf(state.steps as f64);
    for (name, parameter) in parameters {
        if follows_loads(name) {
            follow(bias_rate(model, name), &gradients[name], parameter);
            continue;
        }
        let decay = if decays(name) { weight_decay } else { 0.0 };
        let m = state.m.get_mut(name).expect("checked above");
        let v = state.v.get_mut(name).expect("checked above");
        for (i, p) in parameter.iter_mut().enumerate() {
            let g = gradients[name][i] * scale;
            m[i] = beta1 * m[i] + (1.0 - beta1) * g;
            v[i] = beta2 * v[i] + (1.0 - beta2) * g * g;
            let m_hat = m[i] / correction1;
            let v_hat = v[i] / correction2;
            *p -= learning_rate * (m_hat / (v_hat.sqrt() + epsilon) + decay * *p);
        }
    }
    norm
}

/// The norm of all gradients together; a tied table counts once, loads of experts never.
pub fn gradient_norm(gradients: &Tensors) -> f64 {
    let trained = gradients.iter().filter(|(name, _)| !follows_loads(name));
    sum(trained.flat_map(|(_, gradient)| gradient).map(|g| g * g)).sqrt()
}

/// Whether the parameter `name` is the bias of a router.
fn follows_loads(name: &str) -> bool {
    name.ends_with(".router.bias")
}

/// By how much the bias `name` of a router moves.
fn bias_rate(model: &Model, name: &str) -> f64 {
    let block = name.split('.').nth(1).and_then(|block| block.parse::<usize>().ok());
    let experts = block.and_then(|block| model.blocks[block].feed_forward.experts());
    experts.expect("routers are of blocks with experts").router.bias_rate
}

/// Moves biases toward equal loads.
fn follow(rate: f64, loads: &[f64], biases: &mut [f64]) {
    let all: f64 = loads.iter().sum();
    for (bias, load) in biases.iter_mut().zip(loads) {
        // Loads are whole numbers: they are compared as such with the mean.
        let below = all - load * loads.len() as f64;
        *bias += if below == 0.0 { 0.0 } else { rate * below.signum() };
    }
}

/// Whether the parameter `name` decays: the column "decay" of the table at [`Model`].
fn decays(name: &str) -> bool {
    [".weight", ".table", ".positions"].iter().any(|ending| name.ends_with(ending))
}

/// The sum with the rounding of every addition carried along (Neumaier): a plain running sum of a hundred million
/// squares is off by more than 1e-12.
fn sum(values: impl Iterator<Item = f64>) -> f64 {
    let mut total = 0.0_f64;
    let mut lost = 0.0;
    for value in values {
        let next = total + value;
        lost += if total.abs() >= value.abs() { (total - next) + value } else { (value - next) + total };
        total = next;
    }
    total + lost
}

#[cfg(test)]
mod tests {
    use super::sum;

    #[test]
    fn many_small_addends_keep_their_digits() {
        let count = 10_000_000;
        let exact = 0.1 * f64::from(count);
        let gap = |total: f64| (total - exact).abs() / exact;
        assert!(gap(sum((0..count).map(|_| 0.1))) < 1e-15);
        assert!(gap((0..count).map(|_| 0.1).sum()) > 1e-13, "what the plain sum loses");
    }
}
