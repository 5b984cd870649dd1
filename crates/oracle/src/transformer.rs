//! The whole model: embedding, blocks, final norm, head and loss; then the same backwards.

use quadrille_spec::Model;

use crate::dropout::DropoutSeed;
use crate::pass::{Pass, accumulate};
use crate::{Batch, Tensors, assert_parameters, block, embedding, head, zeros};

/// The mean cross-entropy over all tokens of the batch, in nats, and its gradient for every parameter.
///
/// The model is GPT-2 (see [`Model`]): pre-layer-norm blocks, tanh-GELU, no bias in the head. Dropout acts only
/// where `dropout` is given and the model's rate is above 0; its masks are those of [`quadrille_spec::Dropout`] for
/// the purposes `embedding`, `block I attention`, `block I projection` and `block I down`, with the indices stated
/// there (their `seq_len` is the batch's).
///
/// # Panics
///
/// If `parameters` are not exactly the model's, or the batch does not fit the model.
pub fn loss_and_gradients(
    model: &Model,
    parameters: &Tensors,
    batch: &Batch,
    dropout: Option<DropoutSeed>,
) -> (f64, Tensors) {
    assert_parameters(model, parameters, "parameters");
    assert_batch(model, batch);
    let pass = Pass { model, parameters, batch, dropout };
    let (loss, saved) = forward(&pass);
    (loss, backward(&pass, &saved))
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
    let h = pass.model.hidden;
    let (table, positions) = (pass.parameter("embedding.table"), pass.parameter("embedding.positions"));
    let mut x = embedding::forward(pass.batch, table, positions, h);
    pass.mask("embedding").apply(&mut x);

    let mut blocks = Vec::new();
    for i in 0..pass.model.layers {
        let (y, saved) = block::forward(pass, i, x);
        blocks.push(saved);
        x = y;
    }

    let normed = pass.norm("final_norm", &x);
    let loss = head::forward(&normed, pass.parameter(head_name(pass.model)), pass.batch.targets, h);
    (loss, Saved { blocks, last: x, normed })
}

fn backward(pass: &Pass, saved: &Saved) -> Tensors {
    let h = pass.model.hidden;
    let mut gradients = zeros(pass.model);
    let head = head_name(pass.model);
    let (dnormed, dhead) = head::backward(&saved.normed, pass.parameter(head), pass.batch.targets, h);
    accumulate(&mut gradients, head, &dhead);

    let mut dx = pass.norm_backward("final_norm", &dnormed, &saved.last, &mut gradients);
    for (i, block) in saved.blocks.iter().enumerate().rev() {
        dx = block::backward(pass, i, &dx, block, &mut gradients);
    }

    pass.mask("embedding").apply(&mut dx);
    let (dtable, dpositions) = embedding::backward(pass.batch, &dx, pass.model);
    accumulate(&mut gradients, "embedding.table", &dtable);
    accumulate(&mut gradients, "embedding.positions", &dpositions);
    gradients
}

/// The parameter that the head multiplies with.
fn head_name(model: &Model) -> &'static str {
    if model.tied_head { "embedding.table" } else { "head.weight" }
}

fn assert_batch(model: &Model, batch: &Batch) {
    let n = batch.sequences * batch.seq_len;
    assert!(n > 0, "the batch is empty: {} sequences of {} tokens", batch.sequences, batch.seq_len);
    assert!(batch.seq_len <= model.seq_len, "{} tokens a sequence, the model has {}", batch.seq_len, model.seq_len);
    assert_eq!((batch.tokens.len(), batch.targets.len()), (n, n), "tokens and targets of the batch");
    let largest = batch.tokens.iter().chain(batch.targets).max().copied();
    assert!(largest < Some(model.vocab as u32), "token {largest:?} of a vocabulary of {}", model.vocab);
}
