//! Properties of the model that hold whatever the numbers are.

use quadrille_oracle::{DropoutSeed, Tensors, loss_and_gradients};
use quadrille_spec::{Model, Positions};

use crate::small::{Sample, gradients, largest, llama, loss, model, parameters, vit};

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-13 * a.abs().max(1.0)
}

fn differences(a: &Tensors, b: &Tensors) -> f64 {
    let of = |name| a[name].iter().zip(&b[name]).map(|(a, b)| a - b).collect::<Vec<_>>();
    a.keys().map(|name| largest(&of(name))).fold(0.0, f64::max)
}

#[test]
fn a_model_that_knows_nothing_loses_ln_of_the_vocabulary() {
    let model = model();
    let mut parameters = parameters(&model, 1);
    parameters.get_mut("head.weight").unwrap().fill(0.0);
    assert!(close(loss(&model, &parameters, &Sample::new(&model, 3, 5, 1), None), 11_f64.ln()));
}

#[test]
fn huge_logits_stay_finite() {
    let model = model();
    let mut parameters = parameters(&model, 1);
    for name in ["head.weight", "block.0.qkv.weight"] {
        parameters.get_mut(name).unwrap().iter_mut().for_each(|w| *w *= 1e6);
    }
    let (loss, gradients) = loss_and_gradients(&model, &parameters, &Sample::new(&model, 3, 5, 1).batch(), None);
    assert!(loss.is_finite() && loss > 1e5, "{loss}");
    assert!(gradients.values().flatten().all(|g| g.is_finite()));
}

#[test]
fn key_biases_have_no_gradient() {
    let model = model();
    let gradients = gradients(&model, &parameters(&model, 1), &Sample::new(&model, 3, 5, 1));
    let bias = &gradients["block.1.qkv.bias"];
    let d = model.classic().head_dim();
    for (part, name) in bias.chunks(d).zip(["q", "k", "v"].iter().cycle()) {
        assert_eq!(largest(part) < 1e-15, *name == "k", "{name} {part:?}");
    }
}

#[test]
fn norms_hide_a_shift_of_the_residual_stream() {
    let model = model();
    let gradients = gradients(&model, &parameters(&model, 1), &Sample::new(&model, 3, 5, 1));
    for row in gradients["embedding.positions"].chunks(model.hidden) {
        assert!(largest(row) > 1e-3 && row.iter().sum::<f64>().abs() < 1e-14, "{row:?}");
    }
}

#[test]
fn heads_may_change_places() {
    let model = model().reshaped(|m| {
        m.heads = 3;
        m.kv_heads = 3;
    });
    let h = model.hidden;
    let d = model.classic().head_dim();
    let before = parameters(&model, 1);
    let mut after = before.clone();
    for name in ["block.0.qkv.weight", "block.0.qkv.bias"] {
        after.get_mut(name).unwrap().chunks_mut(3 * h).for_each(|row| row.rotate_left(3 * d));
    }
    after.get_mut("block.0.projection.weight").unwrap().rotate_left(d * h);
    let sample = Sample::new(&model, 3, 5, 1);
    assert!(close(loss(&model, &before, &sample, None), loss(&model, &after, &sample, None)));
}

#[test]
fn a_token_does_not_see_later_ones() {
    let model = model();
    let parameters = parameters(&model, 1);
    // What token t's loss gains by another target: its logits alone decide.
    let gain = |model: &Model, sample: &Sample, t: usize| {
        let mut other = sample.clone();
        other.targets[t] = (other.targets[t] + 1) % 11;
        loss(model, &parameters, &other, None) - loss(model, &parameters, sample, None)
    };
    let sample = Sample::new(&model, 1, 5, 1);
    let mut changed = sample.clone();
    changed.tokens[2] = (changed.tokens[2] + 1) % 11;
    for t in 0..5 {
        assert_eq!(close(gain(&model, &sample, t), gain(&model, &changed, t)), t < 2, "token {t}");
        let model = model.reshaped(|m| m.causal = false);
        assert!(!close(gain(&model, &sample, t), gain(&model, &changed, t)), "token {t} without a mask");
    }
}

#[test]
fn without_mask_and_positions_the_order_does_not_matter() {
    let learned = vit();
    let mut parameters = parameters(&learned, 1);
    let sample = Sample::new(&learned, 1, 4, 1);
    let mut reversed = sample.clone();
    for numbers in [&mut reversed.patches, &mut reversed.patch_targets] {
        *numbers = numbers.rchunks(5).flatten().copied().collect();
    }
    let same = |model: &Model, parameters: &Tensors| {
        close(loss(model, parameters, &sample, None), loss(model, parameters, &reversed, None))
    };
    assert!(!same(&learned, &parameters), "learned positions");
    parameters.get_mut("embedding.positions").unwrap().fill(0.0);
    assert!(same(&learned, &parameters));
    assert!(!same(&learned.reshaped(|m| m.causal = true), &parameters), "a mask");

    // Heads of two numbers, so that they can be turned; the parameters have the same shapes.
    let rotary = learned.reshaped(|m| {
        m.heads = 3;
        m.kv_heads = 3;
        m.positions = Positions::Rotary;
    });
    parameters.remove("embedding.positions");
    assert!(!same(&rotary, &parameters), "rotary positions");
}

#[test]
fn the_rotary_base_matters_from_the_second_token_on() {
    // A token turns for its position, and the product with itself stays.
    let slow = llama();
    let fast = llama().reshaped(|m| m.rotary_base = 1.0);
    let parameters = parameters(&slow, 1);
    let at = |model: &Model, seq_len| loss(model, &parameters, &Sample::new(model, 3, seq_len, 1), None);
    assert_eq!(at(&slow, 1), at(&fast, 1));
    assert!(!close(at(&slow, 2), at(&fast, 2)));
}

#[test]
fn a_shared_key_is_that_key_repeated() {
    // Dropout too: its masks go by the heads of queries.
    let shared = llama().reshaped(|m| {
        m.biases = true;
        m.dropout = 0.2;
    });
    let repeated = shared.reshaped(|m| m.kv_heads = 4);
    let d = shared.classic().head_dim();
    let is_qkv = |name: &str| name.contains(".qkv.");

    let shared_parameters = parameters(&shared, 1);
    let mut repeated_parameters = shared_parameters.clone();
    for (_, values) in repeated_parameters.iter_mut().filter(|(name, _)| is_qkv(name)) {
        let repeat = |group: &[f64]| {
            let [q0, q1, k, v] = [0, 1, 2, 3].map(|part| &group[part * d..][..d]);
            [q0, k, v, q1, k, v].concat()
        };
        *values = values.chunks(4 * d).flat_map(repeat).collect();
    }
    let sample = Sample::new(&shared, 3, 5, 1);
    let seed = Some(DropoutSeed { seed: 2, step: 3 });
    let (loss_shared, gradients) = loss_and_gradients(&shared, &shared_parameters, &sample.batch(), seed);
    let (loss_repeated, mut sums) = loss_and_gradients(&repeated, &repeated_parameters, &sample.batch(), seed);
    assert!(close(loss_shared, loss_repeated));

    for (_, values) in sums.iter_mut().filter(|(name, _)| is_qkv(name)) {
        let add = |heads: &[f64]| {
            let [q0, k0, v0, q1, k1, v1] = [0, 1, 2, 3, 4, 5].map(|part| &heads[part * d..][..d]);
            let sum = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a + b).collect::<Vec<_>>();
            [q0, q1, &sum(k0, k1), &sum(v0, v1)].concat()
        };
        *values = values.chunks(6 * d).flat_map(add).collect();
    }
    assert!(differences(&gradients, &sums) < 1e-14);
}

#[test]
fn a_head_that_says_always_the_same_has_a_loss_by_hand() {
    let model = vit();
    let mut parameters = parameters(&model, 1);
    parameters.get_mut("head.weight").unwrap().fill(0.0);
    let says = [0.5, -1.0, 0.0, 2.0, 0.25];
    parameters.get_mut("head.bias").unwrap().copy_from_slice(&says);
    // Two patches: the errors are 1 and -1, 0 and -2, ... in each of the five numbers.
    let sample = Sample {
        patch_targets: vec![-0.5, -1.0, 1.0, 2.0, 0.25, 1.5, 1.0, 0.0, -1.0, 0.75],
        ..Sample::new(&model, 1, 2, 1)
    };
    let (loss, gradients) = loss_and_gradients(&model, &parameters, &sample.batch(), None);
    assert!(close(loss, (1.0 + 0.0 + 1.0 + 0.0 + 0.0 + 1.0 + 4.0 + 0.0 + 9.0 + 0.25) / 10.0), "{loss}");
    let expected = [0.0, -2.0, -1.0, 3.0, -0.5].map(|errors| 2.0 * errors / 10.0);
    assert!(gradients["head.bias"].iter().zip(expected).all(|(g, e)| close(*g, e)), "{:?}", gradients["head.bias"]);
}

#[test]
fn sequences_are_apart_and_the_loss_is_their_mean() {
    let model = model();
    let parameters = parameters(&model, 1);
    let one = Sample::new(&model, 1, 4, 1);
    let other = Sample::new(&model, 1, 4, 2);
    let both = Sample {
        tokens: [&*one.tokens, &*other.tokens].concat(),
        targets: [&*one.targets, &*other.targets].concat(),
        sequences: 2,
        ..one.clone()
    };
    let (loss_one, gradients_one) = loss_and_gradients(&model, &parameters, &one.batch(), None);
    let (loss_other, gradients_other) = loss_and_gradients(&model, &parameters, &other.batch(), None);
    let (loss_both, gradients_both) = loss_and_gradients(&model, &parameters, &both.batch(), None);
    assert!(close(loss_both, (loss_one + loss_other) / 2.0));
    let mut mean = gradients_one;
    for (name, values) in &mut mean {
        values.iter_mut().zip(&gradients_other[name]).for_each(|(a, b)| *a = (*a + b) / 2.0);
    }
    assert!(differences(&mean, &gradients_both) < 1e-14);
}

#[test]
fn positions_beyond_the_batch_have_no_gradient() {
    let model = model();
    let gradients = gradients(&model, &parameters(&model, 1), &Sample::new(&model, 2, 3, 1));
    let (used, beyond) = gradients["embedding.positions"].split_at(3 * model.hidden);
    assert!(largest(used) > 0.0 && largest(beyond) == 0.0);
}

#[test]
fn a_tied_table_gets_both_gradients() {
    let untied = model();
    let tied = Model { tied_head: true, ..model() };
    let tied_parameters = parameters(&tied, 1);
    let mut untied_parameters = tied_parameters.clone();
    untied_parameters.insert("head.weight".into(), tied_parameters["embedding.table"].clone());
    let sample = Sample::new(&untied, 3, 5, 1);
    let mut expected = gradients(&untied, &untied_parameters, &sample);
    let head = expected.remove("head.weight").unwrap();
    expected.get_mut("embedding.table").unwrap().iter_mut().zip(head).for_each(|(table, head)| *table += head);
    assert!(differences(&expected, &gradients(&tied, &tied_parameters, &sample)) < 1e-15);
}

#[test]
fn dropout_needs_a_rate_and_a_seed_and_follows_the_step() {
    let dry = model();
    let wet = Model { dropout: 0.2, ..model() };
    let parameters = parameters(&dry, 1);
    let sample = Sample::new(&dry, 2, 5, 1);
    let at = |step| Some(DropoutSeed { seed: 1, step });
    let plain = loss(&dry, &parameters, &sample, None);
    assert_eq!(plain, loss(&dry, &parameters, &sample, at(0)));
    assert_eq!(plain, loss(&wet, &parameters, &sample, None));
    assert_ne!(plain, loss(&wet, &parameters, &sample, at(0)));
    assert_ne!(loss(&wet, &parameters, &sample, at(1)), loss(&wet, &parameters, &sample, at(0)));
    assert_eq!(loss(&wet, &parameters, &sample, at(1)), loss(&wet, &parameters, &sample, at(1)));
}

#[test]
#[should_panic(expected = "token Some(11) of a vocabulary of 11")]
fn a_token_outside_the_vocabulary_is_named() {
    let model = model();
    let mut sample = Sample::new(&model, 1, 5, 1);
    sample.targets[3] = 11;
    loss(&model, &parameters(&model, 1), &sample, None);
}

#[test]
#[should_panic(expected = "head.weight, shape [11, 6]")]
fn a_missing_parameter_is_named() {
    let tied = Model { tied_head: true, ..model() };
    loss(&model(), &parameters(&tied, 1), &Sample::new(&tied, 1, 5, 1), None);
}

#[test]
#[should_panic(expected = "a batch of tokens for a model of patches of 5")]
fn tokens_for_patches_are_refused() {
    loss(&vit(), &parameters(&vit(), 1), &Sample::new(&model(), 1, 5, 1), None);
}

#[test]
#[should_panic(expected = "a batch of patches for a model with a vocabulary of 11")]
fn patches_for_tokens_are_refused() {
    loss(&model(), &parameters(&model(), 1), &Sample::new(&vit(), 1, 5, 1), None);
}

#[test]
#[should_panic(expected = "heads of 3 numbers are not pairs to turn")]
fn odd_heads_cannot_turn() {
    let model = model().reshaped(|m| m.positions = Positions::Rotary);
    loss(&model, &parameters(&model, 1), &Sample::new(&model, 1, 5, 1), None);
}

#[test]
#[should_panic(expected = "4 heads, 3 keys")]
fn keys_that_heads_cannot_share_are_refused() {
    let model = llama().reshaped(|m| m.kv_heads = 3);
    loss(&model, &parameters(&model, 1), &Sample::new(&model, 1, 5, 1), None);
}
