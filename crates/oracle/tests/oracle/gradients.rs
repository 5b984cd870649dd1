//! Gradients against central finite differences of the loss.

use proptest::option;
use proptest::prelude::*;
use proptest::sample::Index;
use quadrille_oracle::{DropoutSeed, Tensors, loss_and_gradients};
use quadrille_spec::{Activation, Model, Norm, Positions, RandomStream};

use crate::small::{LATENT, Sample, changed, largest, llama, loss, model, parameters, vit};

/// Differences of the loss per unit along `direction` in the tensor `name`, exact to the fourth order in the `width`.
fn slope(
    width: f64,
    model: &Model,
    parameters: &Tensors,
    sample: &Sample,
    dropout: Option<DropoutSeed>,
    name: &str,
    direction: &[f64],
) -> f64 {
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
    let parameters = parameters(model, 1);
    let sample = Sample::new(model, 2, 3, 2);
    let (_, gradients) = loss_and_gradients(model, &parameters, &sample.batch(), dropout);
    for (name, gradient) in &gradients {
        let unit = |i| (0..gradient.len()).map(|j| if i == j { 1.0 } else { 0.0 }).collect::<Vec<_>>();
        let slope = |i| slope(2e-4, model, &parameters, &sample, dropout, name, &unit(i));
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
    check_every_element(
        &model().reshaped(|m| {
            m.tied_head = true;
            m.biases = false;
        }),
        None,
    );
}

#[test]
fn every_element_tied_with_biases_and_dropout() {
    let model = Model { tied_head: true, dropout: 0.3, ..model() };
    check_every_element(&model, Some(DropoutSeed { seed: 4, step: 9 }));
}

#[test]
fn every_element_untied_without_biases_with_dropout() {
    let model = model().reshaped(|m| {
        m.biases = false;
        m.dropout = 0.3;
    });
    check_every_element(&model, Some(DropoutSeed { seed: 3, step: 8 }));
}

#[test]
fn every_element_with_a_factor_of_embeddings_and_a_cap_of_logits() {
    for tied_head in [true, false] {
        let model = Model { tied_head, embedding_scale: 3.5, logit_cap: Some(0.8), ..model() };
        check_every_element(&model, None);
    }
}

#[test]
fn every_element_of_llama() {
    check_every_element(&llama(), None);
}

#[test]
fn every_element_of_llama_with_dropout() {
    check_every_element(&Model { dropout: 0.3, ..llama() }, Some(DropoutSeed { seed: 4, step: 9 }));
}

#[test]
fn every_element_of_vit() {
    check_every_element(&vit(), None);
}

#[test]
fn every_element_of_vit_without_biases_with_dropout() {
    let model = vit().reshaped(|m| {
        m.biases = false;
        m.dropout = 0.3;
    });
    check_every_element(&model, Some(DropoutSeed { seed: 3, step: 8 }));
}

#[test]
fn every_element_of_mixed_families() {
    // A tied GPT that looks both ways, with one key for all, RMS norms and gates with biases.
    let grouped = model().reshaped(|m| {
        m.kv_heads = 1;
        m.norm = Norm::Rms;
        m.activation = Activation::Swiglu;
    });
    check_every_element(
        &grouped.reshaped(|m| {
            m.tied_head = true;
            m.causal = false;
        }),
        None,
    );
    // A Llama of patches with layer norms and biases.
    let patches = llama().reshaped(|m| {
        m.vocab = 0;
        m.patch_values = Some(3);
        m.norm = Norm::Layer;
        m.biases = true;
    });
    check_every_element(&patches, None);
    // A ViT with turned queries and keys, that looks back only.
    let rotary = vit().reshaped(|m| {
        m.positions = Positions::Rotary;
        m.rotary_base = 9.0;
        m.hidden = 8;
        m.causal = true;
    });
    check_every_element(&rotary, None);
}

#[test]
fn every_element_of_latent_attention() {
    check_every_element(&changed(LATENT, &[]), None);
    check_every_element(&changed(LATENT, &[("query_latent", "3"), ("norm", "rms")]), None);
    // Learned positions, biases, and values wider than keys; the second block makes keys of the stream.
    let mixed = [
        ("positions", "learned"),
        ("value_dim", "8"),
        ("blocks.1.key_value_latent", "0"),
        ("blocks.1.shared_key", "0"),
    ];
    check_every_element(&changed(&LATENT.replace("rotary_dim = 4\n", ""), &mixed), None);
}

/// A divisor of `number` that `index` picks.
fn divisor(number: usize, index: &Index) -> usize {
    let divisors: Vec<usize> = (1..=number).filter(|d| number.is_multiple_of(*d)).collect();
    *index.get(&divisors)
}

prop_compose! {
    /// Of any family and any mix of them.
    fn any_model()(
        (layers, heads, head_dim, kv_heads) in (1..3_usize, 1..5_usize, 2..5_usize, any::<Index>()),
        (ffn, vocab, seq_len) in (1..9_usize, 2..12_usize, 1..6_usize),
        patch_values in option::of(1..6_usize),
        [tied_head, biases, rms, rotary, swiglu, causal]: [bool; 6],
        rotary_base in 2.0..100.0,
        dropout in prop_oneof![Just(0.0), 0.05..0.6],
    ) -> Model {
        // Only pairs of numbers turn.
        let head_dim = if rotary { head_dim.next_multiple_of(2) } else { head_dim };
        model().reshaped(|m| { m.layers = layers; m.hidden = heads * head_dim; m.heads = heads; m.kv_heads = divisor(heads, &kv_heads); m.ffn = ffn; m.vocab = if patch_values.is_none() { vocab } else { 0 }; m.seq_len = seq_len; m.patch_values = patch_values; m.tied_head = tied_head && patch_values.is_none(); m.biases = biases; m.dropout = dropout; m.norm = if rms { Norm::Rms } else { Norm::Layer }; m.positions = if rotary { Positions::Rotary } else { Positions::Learned }; m.rotary_base = rotary_base; m.activation = if swiglu { Activation::Swiglu } else { Activation::Gelu }; m.causal = causal; })
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Any model, every tensor, along a random direction.
    #[test]
    fn along_a_direction(
        model in any_model(), sequences in 1..4_usize, short in 0..3_usize, seed: u64, step in 0..1000_u64,
    ) {
        let seq_len = model.seq_len.saturating_sub(short).max(1);
        let parameters = parameters(&model, seed);
        let sample = Sample::new(&model, sequences, seq_len, seed);
        let dropout = Some(DropoutSeed { seed, step });
        let (_, gradients) = loss_and_gradients(&model, &parameters, &sample.batch(), dropout);
        for (name, gradient) in &gradients {
            let stream = RandomStream::new(seed, "direction");
            let direction: Vec<f64> = (0..gradient.len() as u64).map(|i| stream.normal(i)).collect();
            let norm = direction.iter().map(|d| d * d).sum::<f64>().sqrt();
            let direction: Vec<f64> = direction.iter().map(|d| d / norm).collect();
            // Some draws bend so much that wider steps miss more than is allowed.
            let slope = slope(2e-5, &model, &parameters, &sample, dropout, name, &direction);
            let expected: f64 = gradient.iter().zip(&direction).map(|(g, d)| g * d).sum();
            // Absolute room: dropout and one-token sequences may leave a tensor without any gradient.
            let allowed = 1e-6 * largest(gradient) + 1e-9;
            prop_assert!((slope - expected).abs() < allowed, "{name}: {slope:e} is not {expected:e}");
        }
    }
}
