//! Gradients against central finite differences of the loss.

use proptest::prelude::*;
use quadrille_oracle::{DropoutSeed, Tensors, loss_and_gradients};
use quadrille_spec::{Model, RandomStream};

use crate::small::{Sample, largest, loss, model, parameters};

/// Differences of the loss per unit along `direction` in the tensor `name`, exact to the fourth order in the width.
fn slope(
    model: &Model,
    parameters: &Tensors,
    sample: &Sample,
    dropout: Option<DropoutSeed>,
    name: &str,
    direction: &[f64],
) -> f64 {
    let width = 2e-4;
    let at = |steps: f64| {
        let mut moved = parameters.clone();
        for (p, d) in moved.get_mut(name).unwrap().iter_mut().zip(direction) {
            *p += steps * width * d;
        }
        loss(model, &moved, sample, dropout)
    };
    (8.0 * (at(1.0) - at(-1.0)) - (at(2.0) - at(-2.0))) / (12.0 * width)
}

/// Compares every element of every gradient; differences relative to the tensor's largest gradient.
fn check_every_element(model: &Model, dropout: Option<DropoutSeed>) {
    let (parameters, sample) = (parameters(model, 1), Sample::new(model, 2, 3, 2));
    let (_, gradients) = loss_and_gradients(model, &parameters, &sample.batch(), dropout);
    for (name, gradient) in &gradients {
        let unit = |i| (0..gradient.len()).map(|j| if i == j { 1.0 } else { 0.0 }).collect::<Vec<_>>();
        let slope = |i| slope(model, &parameters, &sample, dropout, name, &unit(i));
        let difference: Vec<f64> = (0..gradient.len()).map(|i| gradient[i] - slope(i)).collect();
        assert!(largest(gradient) > 1e-4, "{name} has no gradient to speak of");
        let relative = largest(&difference) / largest(gradient);
        assert!(relative < 1e-8, "{name}: gradient and finite differences differ by {relative:e}");
    }
}

#[test]
fn every_element_untied_with_biases() {
    check_every_element(&model(), None);
}

#[test]
fn every_element_tied_without_biases() {
    check_every_element(&Model { tied_head: true, biases: false, ..model() }, None);
}

#[test]
fn every_element_tied_with_biases_and_dropout() {
    let model = Model { tied_head: true, dropout: 0.3, ..model() };
    check_every_element(&model, Some(DropoutSeed { seed: 4, step: 9 }));
}

#[test]
fn every_element_untied_without_biases_with_dropout() {
    let model = Model { biases: false, dropout: 0.3, ..model() };
    check_every_element(&model, Some(DropoutSeed { seed: 3, step: 8 }));
}

prop_compose! {
    fn any_model()(
        layers in 1..3_usize,
        heads in 1..4_usize,
        head_dim in 2..5_usize,
        ffn in 1..9_usize,
        vocab in 2..12_usize,
        seq_len in 1..6_usize,
        tied_head: bool,
        biases: bool,
        dropout in prop_oneof![Just(0.0), 0.05..0.6],
    ) -> Model {
        let hidden = heads * head_dim;
        Model { layers, hidden, heads, kv_heads: heads, ffn, vocab, seq_len, tied_head, biases, dropout, ..model() }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Any model, every tensor, along a random direction.
    #[test]
    fn along_a_direction(
        model in any_model(), sequences in 1..4_usize, short in 0..3_usize, seed: u64, step in 0..1000_u64,
    ) {
        let seq_len = model.seq_len.saturating_sub(short).max(1);
        let (parameters, sample) = (parameters(&model, seed), Sample::new(&model, sequences, seq_len, seed));
        let dropout = Some(DropoutSeed { seed, step });
        let (_, gradients) = loss_and_gradients(&model, &parameters, &sample.batch(), dropout);
        for (name, gradient) in &gradients {
            let stream = RandomStream::new(seed, "direction");
            let direction: Vec<f64> = (0..gradient.len() as u64).map(|i| stream.normal(i)).collect();
            let norm = direction.iter().map(|d| d * d).sum::<f64>().sqrt();
            let direction: Vec<f64> = direction.iter().map(|d| d / norm).collect();
            let slope = slope(&model, &parameters, &sample, dropout, name, &direction);
            let expected: f64 = gradient.iter().zip(&direction).map(|(g, d)| g * d).sum();
            // Absolute room: dropout and one-token sequences may leave a tensor without any gradient.
            let allowed = 1e-6 * largest(gradient) + 1e-9;
            prop_assert!((slope - expected).abs() < allowed, "{name}: {slope:e} is not {expected:e}");
        }
    }
}
