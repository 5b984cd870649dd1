//! The head and the loss: cross-entropy of tokens, whose logits may be capped (`cap tanh(logit / cap)`), or squared error of
//! patches.

use quadrille_spec::Model;

use crate::pass::{Pass, accumulate};
use crate::{Samples, Tensors, cross_entropy, squared_error};

/// The mean loss from the final norm's output `x[n, h]`.
pub(crate) fn forward(pass: &Pass, x: &[f64]) -> f64 {
    match pass.batch.samples {
        Samples::Tokens { targets, .. } => cross_entropy::forward(&logits(pass, x), targets),
        Samples::Patches { targets, .. } => squared_error::forward(&pass.linear("head", x), targets),
    }
}

/// The logits `[n, v]` of tokens from the final norm's output `x[n, h]`.
pub(crate) fn logits(pass: &Pass, x: &[f64]) -> Vec<f64> {
    let table = pass.parameter(table(pass.model));
    let cap = pass.model.logit_cap;
    let of_row = |x| products(x, table).map(move |logit| cap.map_or(logit, |cap| cap * (logit / cap).tanh()));
    x.chunks(pass.model.hidden).flat_map(of_row).collect()
}

/// `dx[n, h]` of the mean loss; the gradients of the head's parameters are added to `gradients`.
pub(crate) fn backward(pass: &Pass, x: &[f64], gradients: &mut Tensors) -> Vec<f64> {
    match pass.batch.samples {
        Samples::Tokens { targets, .. } => {
            let name = table(pass.model);
            let dlogits = cross_entropy::backward(&logits(pass, x), targets);
            let (dx, dtable) = products_backward(pass, x, pass.parameter(name), &dlogits);
            accumulate(gradients, name, &dtable);
            dx
        }
        Samples::Patches { targets, .. } => {
            let dpredictions = squared_error::backward(&pass.linear("head", x), targets);
            pass.linear_backward("head", &dpredictions, x, gradients)
        }
    }
}

/// The products of one row `x[h]` with the `v` rows of the table.
fn products<'a>(x: &'a [f64], table: &'a [f64]) -> impl Iterator<Item = f64> + 'a {
    table.chunks(x.len()).map(move |entry| entry.iter().zip(x).map(|(a, b)| a * b).sum())
}

/// `(dx[n, h], dtable[v, h])` from `dlogits[n, v]`, the gradient of what the cap gave.
fn products_backward(pass: &Pass, x: &[f64], table: &[f64], dlogits: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let h = pass.model.hidden;
    let v = pass.model.vocab;
    let mut dx = vec![0.0; x.len()];
    let mut dtable = vec![0.0; table.len()];
    for (row, x) in x.chunks(h).enumerate() {
        for (id, product) in products(x, table).enumerate() {
            // The derivative of `cap tanh(product / cap)`.
            let slope = pass.model.logit_cap.map_or(1.0, |cap| 1.0 - (product / cap).tanh().powi(2));
            let dproduct = dlogits[row * v + id] * slope;
            for c in 0..h {
                dx[row * h + c] += dproduct * table[id * h + c];
                dtable[id * h + c] += dproduct * x[c];
            }
        }
    }
    (dx, dtable)
}

/// The parameter that makes logits of tokens.
fn table(model: &Model) -> &'static str {
    if model.tied_head { "embedding.table" } else { "head.weight" }
}
