//! The whole model: embedding, blocks, final norm, head and loss; then the same backwards.

use quadrille_spec::{Attention, IGNORED, Model};

use crate::dropout::DropoutSeed;
use crate::pass::Pass;
use crate::{Batch, Samples, Tensors, assert_parameters, block, embedding, head, zeros};

/// The mean loss over the batch and its gradient for every parameter. The loss of tokens is the cross-entropy in nats,
/// its mean over all tokens; that of patches is the squared error, its mean over all numbers of all patches.
///
/// The model is described at [`Model`]; a head of tokens has no bias. Dropout acts only where `dropout` is given and
/// the model's rate is above 0; its masks are those of [`crate::Mask`] for the purposes `embedding`, `block I
/// attention`, `block I projection` and `block I down`, with the indices stated at [`quadrille_spec::Dropout::keeps`]
/// (their `seq_len` is the batch's).
///
/// # Panics
///
/// If the model's keys do not divide its heads, `parameters` are not exactly the model's, or the batch does not fit the
/// model.
pub fn loss_and_gradients(
    model: &Model,
    parameters: &Tensors,
    batch: &Batch,
    dropout: Option<DropoutSeed>,
) -> (f64, Tensors) {
    let pass = pass(model, parameters, batch, dropout);
    let (loss, saved) = forward(&pass);
    (loss, backward(&pass, &saved))
}

/// The mean loss alone, without dropout.
pub(crate) fn loss(model: &Model, parameters: &Tensors, batch: &Batch) -> f64 {
    forward(&pass(model, parameters, batch, None)).0
}

/// The logits `[n, v]` of a batch of tokens, without dropout; its targets do not matter.
///
/// # Panics
///
/// As [`loss_and_gradients`], and if the model has no vocabulary.
pub fn logits(model: &Model, parameters: &Tensors, batch: &Batch) -> Vec<f64> {
    let pass = pass(model, parameters, batch, None);
    head::logits(&pass, &forward(&pass).1.normed)
}

/// A pass over a batch that fits the model.
fn pass<'a>(model: &'a Model, parameters: &'a Tensors, batch: &'a Batch<'a>, dropout: Option<DropoutSeed>) -> Pass<'a> {
    assert_heads(model);
    assert_parameters(model, parameters, "parameters");
    assert_batch(model, batch);
    Pass { model, parameters, batch, dropout }
}

/// What the backward pass needs again.
struct Saved {
    blocks: Vec<block::Saved>,
    /// The last block's output, `[n, h]`.
    last: Vec<f64>,
    /// The final norm's output, `[n, h]`.
    normed: Vec<f64>,
}

fn forward(pass: &Pass) -> (f64, Saved) {
    let mut x = embedding::forward(pass);
    pass.mask("embedding").apply(&mut x);

    let mut blocks = Vec::new();
    for i in 0..pass.model.layers() {
        let (y, saved) = block::forward(pass, i, x);
        blocks.push(saved);
        x = y;
    }

    let normed = pass.norm("final_norm", pass.model.final_norm, &x);
    (head::forward(pass, &normed), Saved { blocks, last: x, normed })
}

fn backward(pass: &Pass, saved: &Saved) -> Tensors {
    let mut gradients = zeros(pass.model);
    let dnormed = head::backward(pass, &saved.normed, &mut gradients);

    let mut dx = pass.norm_backward("final_norm", pass.model.final_norm, &dnormed, &saved.last, &mut gradients);
    for (i, block) in saved.blocks.iter().enumerate().rev() {
        dx = block::backward(pass, i, &dx, block, &mut gradients);
    }

    pass.mask("embedding").apply(&mut dx);
    embedding::backward(pass, &dx, &mut gradients);
    gradients
}

fn assert_heads(model: &Model) {
    for block in model.blocks.kinds() {
        let Attention { heads, kv_heads, head_dim, rotary, .. } = block.attention;
        assert!(heads.is_multiple_of(kv_heads), "{heads} heads, {kv_heads} keys");
        let pairs = rotary.is_none_or(|rotary| rotary.columns.is_multiple_of(2) && rotary.columns <= head_dim);
        assert!(pairs, "heads of {head_dim} numbers are not pairs to turn");
    }
}

fn assert_batch(model: &Model, batch: &Batch) {
    let n = batch.rows();
    assert!(n > 0, "the batch is empty: {} sequences of {}", batch.sequences, batch.seq_len);
    assert!(
        batch.seq_len <= model.seq_len,
        "sequences of {}, the model's longest are {}",
        batch.seq_len,
        model.seq_len
    );
    match (batch.samples, model.patch_values) {
        (Samples::Tokens { inputs, targets }, None) => {
            assert_eq!((inputs.len(), targets.len()), (n, n), "tokens and targets of the batch");
            let counted = targets.iter().filter(|target| **target != IGNORED);
            let largest = inputs.iter().chain(counted).max().copied();
            assert!(largest < Some(model.vocab as u32), "token {largest:?} of a vocabulary of {}", model.vocab);
        }
        (Samples::Patches { inputs, targets }, Some(values)) => {
            assert_eq!((inputs.len(), targets.len()), (n * values, n * values), "numbers and targets of the batch");
        }
        (Samples::Tokens { .. }, Some(values)) => panic!("a batch of tokens for a model of patches of {values}"),
        (Samples::Patches { .. }, None) => {
            panic!("a batch of patches for a model with a vocabulary of {}", model.vocab)
        }
    }
}
