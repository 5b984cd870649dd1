//! Properties of the model that hold whatever the numbers are.

use quadrille_oracle::{DropoutSeed, Tensors, loss_and_gradients};
use quadrille_spec::Model;

use crate::small::{Sample, gradients, largest, loss, model, parameters};

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
    let d = model.head_dim();
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
    let model = Model { heads: 3, kv_heads: 3, ..model() };
    let (h, d) = (model.hidden, model.head_dim());
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
    let gain = |sample: &Sample, t: usize| {
        let mut other = sample.clone();
        other.targets[t] = (other.targets[t] + 1) % 11;
        loss(&model, &parameters, &other, None) - loss(&model, &parameters, sample, None)
    };
    let sample = Sample::new(&model, 1, 5, 1);
    let mut changed = sample.clone();
    changed.tokens[2] = (changed.tokens[2] + 1) % 11;
    for t in 0..5 {
        assert_eq!(close(gain(&sample, t), gain(&changed, t)), t < 2, "token {t}");
    }
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
        seq_len: 4,
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
    let (dry, wet) = (model(), Model { dropout: 0.2, ..model() });
    let (parameters, sample) = (parameters(&dry, 1), Sample::new(&dry, 2, 5, 1));
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
