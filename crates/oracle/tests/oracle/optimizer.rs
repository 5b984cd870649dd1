//! AdamW against values worked out by hand.

use quadrille_oracle::{AdamW, State, Tensors, parameter_shapes, update};
use quadrille_spec::Model;

use crate::small::{llama, model, vit};

const SETTINGS: AdamW =
    AdamW { learning_rate: 0.1, beta1: 0.5, beta2: 0.75, epsilon: 0.0, weight_decay: 0.2, clip: None };

fn filled(model: &Model, value: f64) -> Tensors {
    parameter_shapes(model).into_iter().map(|(name, [rows, columns])| (name, vec![value; rows * columns])).collect()
}

fn all(tensors: &Tensors, expected: impl Fn(&str) -> f64) {
    for (name, values) in tensors {
        for value in values {
            assert!((value - expected(name)).abs() < 1e-12, "{name}: {value} is not {}", expected(name));
        }
    }
}

fn decays(name: &str) -> bool {
    !["gamma", "beta", "bias"].contains(&name.rsplit('.').next().unwrap())
}

#[test]
fn three_updates_by_hand() {
    for model in [model(), llama(), vit()] {
        three_updates(&model);
    }
}

fn three_updates(model: &Model) {
    let mut state = State::new(model);
    let mut parameters = filled(model, 2.0);

    // Step 1: m = 2, v = 4, both corrected to 4 and 16: the direction is 4 / 4 = 1; decay 0.2 * 2.
    update(model, &SETTINGS, &mut state, &mut parameters, &filled(model, 4.0));
    all(&state.m, |_| 2.0);
    all(&state.v, |_| 4.0);
    all(&parameters, |name| if decays(name) { 2.0 - 0.1 * (1.0 + 0.4) } else { 1.9 });

    // Step 2: m = 1 - 1 = 0 for a gradient of -2, so only decay acts.
    update(model, &SETTINGS, &mut state, &mut parameters, &filled(model, -2.0));
    all(&state.m, |_| 0.0);
    all(&state.v, |_| 4.0);
    all(&parameters, |name| if decays(name) { 1.86 - 0.1 * 0.2 * 1.86 } else { 1.9 });

    // Step 3: m = 3.5, v = 3 + 49 / 4; corrections 1 - 1/8 and 1 - 27/64; epsilon 1 after the root.
    let settings = AdamW { epsilon: 1.0, weight_decay: 0.0, ..SETTINGS };
    let before = parameters.clone();
    update(model, &settings, &mut state, &mut parameters, &filled(model, 7.0));
    let direction = 4.0 / ((15.25_f64 / (37.0 / 64.0)).sqrt() + 1.0);
    all(&parameters, |name| before[name][0] - 0.1 * direction);
    assert_eq!(state.steps, 3);
}

#[test]
fn the_norm_is_global_and_unclipped() {
    let model = model();
    let count = model.parameters() as f64;
    for (clip, factor) in [(None, 1.0), (Some(0.5), 0.5 / (3.0 * count.sqrt() + 1e-6)), (Some(1e4), 1.0)] {
        let mut state = State::new(&model);
        let mut parameters = filled(&model, 2.0);
        let settings = AdamW { clip, ..SETTINGS };
        let norm = update(&model, &settings, &mut state, &mut parameters, &filled(&model, -3.0));
        assert!((norm - 3.0 * count.sqrt()).abs() < 1e-9, "{norm}");
        all(&state.m, |_| -1.5 * factor);
        all(&state.v, |_| 2.25 * factor * factor);
    }
}

#[test]
fn shapes_count_the_models_parameters() {
    let count = |model: &Model| -> usize { parameter_shapes(model).iter().map(|(_, shape)| shape[0] * shape[1]).sum() };
    for (tied_head, biases) in [(false, false), (false, true), (true, false), (true, true)] {
        for model in [
            model().reshaped(|m| {
                m.tied_head = tied_head;
                m.biases = biases;
            }),
            llama().reshaped(|m| m.biases = biases),
            vit().reshaped(|m| m.biases = biases),
        ] {
            assert_eq!(count(&model) as u64, model.parameters(), "{model:?}");
        }
    }
}
