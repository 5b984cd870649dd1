//! Gradients of mixtures of experts against central finite differences of what is minimised, with the decisions forced.

use proptest::prelude::*;
use quadrille_oracle::{
    Decisions, DropoutSeed, Objective, Tensors, loss_and_gradients, margins, objective, parameter_shapes,
};
use quadrille_spec::{IGNORED, Model, RandomStream};

use crate::small::{MOE, Sample, changed, largest, moe, parameters};

/// Differences of the objective per unit along `direction`, exact to the fourth order in the width.
fn slope(
    model: &Model,
    weights: &Tensors,
    sample: &Sample,
    dropout: Option<DropoutSeed>,
    decisions: &Decisions,
    (name, direction): (&str, &[f64]),
) -> f64 {
    let width = 5e-5;
    let at = |steps: f64| {
        let mut moved = weights.clone();
        for (p, d) in moved.get_mut(name).unwrap().iter_mut().zip(direction) {
            *p += steps * width * d;
        }
        objective(model, &moved, &sample.batch(), dropout, Some(decisions)).value
    };
    (8.0 * (at(1.0) - at(-1.0)) - (at(2.0) - at(-2.0))) / (12.0 * width)
}

/// Compares every element of every gradient, with some targets ignored.
fn check_every_element(overrides: &[(&str, &str)], dropout: Option<DropoutSeed>) {
    let model = moe(overrides);
    let weights = parameters(&model, 2);
    let mut sample = Sample::new(&model, 2, 6, 2);
    if let [first, _, third, ..] = sample.targets.as_mut_slice() {
        (*first, *third) = (IGNORED, IGNORED);
    }
    let Objective { gradients, decisions, dropped, .. } = objective(&model, &weights, &sample.batch(), dropout, None);
    assert!(dropped > 0, "nothing is dropped");
    // Loads of experts are not gradients.
    for (name, gradient) in gradients.iter().filter(|(name, _)| !name.ends_with("router.bias")) {
        let unit = |i| (0..gradient.len()).map(|j| if i == j { 1.0 } else { 0.0 }).collect::<Vec<_>>();
        let slope = |i| slope(&model, &weights, &sample, dropout, &decisions, (name, &unit(i)));
        let difference: Vec<f64> = (0..gradient.len()).map(|i| gradient[i] - slope(i)).collect();
        assert!(largest(gradient) > 1e-4, "{name} has no gradient to speak of");
        let relative = largest(&difference) / largest(gradient);
        assert!(relative < 1e-8, "{name}: gradient and finite differences differ by {relative:e}");
    }
}

#[test]
fn every_element_of_softmax() {
    check_every_element(&[("balance_loss", "0.5"), ("router_z_loss", "0.1")], None);
}

#[test]
fn every_element_where_biases_choose() {
    check_every_element(&[("router_bias_rate", "0.1"), ("balance_loss", "0.5")], None);
}

#[test]
fn every_element_of_softmax_not_normalized() {
    let overrides = [("router_normalize", "false"), ("balance", "none"), ("drop", "score"), ("capacity_group", "3")];
    check_every_element(&overrides, None);
}

#[test]
fn every_element_of_sigmoid_with_shared_and_scale() {
    let overrides = [
        ("router", "sigmoid"),
        ("router_scale", "2.5"),
        ("shared_ffn", "3"),
        ("balance", "batch"),
        ("balance_loss", "0.5"),
        ("activation", "swiglu"),
    ];
    check_every_element(&overrides, None);
}

#[test]
fn every_element_of_sigmoid_not_normalized_with_dropout() {
    let overrides = [
        ("router", "sigmoid"),
        ("router_normalize", "false"),
        ("experts_per_token", "3"),
        ("drop", "score"),
        ("balance_loss", "0.5"),
        ("router_z_loss", "0.1"),
        ("norm_place", "both"),
        ("dropout", "0.3"),
    ];
    check_every_element(&overrides, Some(DropoutSeed { seed: 4, step: 9 }));
}

#[test]
fn every_element_of_one_choice_in_every_second_block() {
    let overrides =
        [("experts_per_token", "1"), ("expert_every", "2"), ("residual", "parallel"), ("router_z_loss", "0.1")];
    check_every_element(&overrides, None);
    let shapes = parameter_shapes(&moe(&overrides));
    let has = |name: &str| shapes.iter().any(|(known, _)| known == name);
    assert!(has("block.0.up.weight") && !has("block.0.router.weight"));
    assert!(!has("block.1.up.weight") && has("block.1.experts.up.weight"));
}

#[test]
fn every_element_of_patches() {
    let text = MOE.replace("vocab = 11", "patch_values = 5").replace("tied_head = false\n", "");
    let model = changed(&text, &[("balance_loss", "0.5")]);
    let weights = parameters(&model, 2);
    let sample = Sample::new(&model, 2, 6, 2);
    let Objective { gradients, decisions, loss, balance, router_z, value, .. } =
        objective(&model, &weights, &sample.batch(), None, None);
    assert_eq!(value, loss + (balance + router_z));
    for name in ["block.0.router.weight", "block.1.experts.up.weight", "embedding.weight"] {
        let direction: Vec<f64> = (0..gradients[name].len()).map(|i| (i as f64).sin()).collect();
        let expected: f64 = gradients[name].iter().zip(&direction).map(|(g, d)| g * d).sum();
        let slope = slope(&model, &weights, &sample, None, &decisions, (name, &direction));
        assert!((slope - expected).abs() < 1e-9 * expected.abs().max(1.0), "{name}: {slope:e} is not {expected:e}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Any mixture, every tensor, along a random direction.
    #[test]
    fn along_a_direction(
        (count, per_token, shared) in (2_usize..6, 1_usize..4, 0_usize..4),
        [sigmoid, normalize, score, batch, swiglu, second]: [bool; 6],
        (capacity, group, scale) in (0.3..1.5_f64, prop::sample::select(vec!["0", "2", "3", "6"]), 0.3..3.0_f64),
        (balance, z) in (0.0..1.0_f64, 0.0..0.3_f64), seed: u64, step in 0..1000_u64,
    ) {
        let per_token = per_token.min(count);
        let name = |flag, yes: &str, no: &str| if flag { yes.to_owned() } else { no.to_owned() };
        let owned = [
            ("experts", count.to_string()),
            ("experts_per_token", per_token.to_string()),
            ("shared_ffn", shared.to_string()),
            ("router", name(sigmoid, "sigmoid", "softmax")),
            ("router_normalize", (normalize && per_token > 1).to_string()),
            ("router_scale", scale.to_string()),
            ("drop", name(score, "score", "choice")),
            ("balance", name(batch, "batch", "sequence")),
            ("balance_loss", balance.to_string()),
            ("router_z_loss", z.to_string()),
            ("capacity", capacity.to_string()),
            ("capacity_group", group.to_owned()),
            ("activation", name(swiglu, "swiglu", "gelu")),
            ("expert_every", name(second, "2", "1")),
            ("dropout", "0.2".to_owned()),
        ];
        let model = moe(&owned.each_ref().map(|(field, value)| (*field, value.as_str())));
        let weights = parameters(&model, seed);
        let sample = Sample::new(&model, 2, 6, seed);
        let dropout = Some(DropoutSeed { seed, step });
        let (_, again) = loss_and_gradients(&model, &weights, &sample.batch(), dropout);
        let Objective { gradients, decisions, .. } = objective(&model, &weights, &sample.batch(), dropout, None);
        prop_assert_eq!(&again, &gradients);
        // Places that go by weights change hands where two are as near as the differences reach.
        let margins = margins(&model, &weights, &sample.batch(), dropout, &decisions);
        prop_assume!(margins.values().all(|margin| margin.drop > 1e-2));
        for (name, gradient) in &gradients {
            let stream = RandomStream::new(seed, "direction");
            let direction: Vec<f64> = (0..gradient.len() as u64).map(|i| stream.normal(i)).collect();
            let norm = direction.iter().map(|d| d * d).sum::<f64>().sqrt();
            let direction: Vec<f64> = direction.iter().map(|d| d / norm).collect();
            let slope = slope(&model, &weights, &sample, dropout, &decisions, (name, &direction));
            let expected: f64 = gradient.iter().zip(&direction).map(|(g, d)| g * d).sum();
            let allowed = 1e-6 * largest(gradient) + 1e-9;
            prop_assert!((slope - expected).abs() < allowed, "{name}: {slope:e} is not {expected:e}");
        }
    }
}
