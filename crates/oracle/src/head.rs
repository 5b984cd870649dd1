//! The head and the loss: cross-entropy of tokens or squared error of patches.

use quadrille_spec::Model;

use crate::pass::{Pass, accumulate};
use crate::{Samples, Tensors, cross_entropy, squared_error};

/// The mean loss from the final norm's output `x[n, h]`.
pub(crate) fn forward(pass: &Pass, x: &[f64]) -> f64 {
    match pass.batch.samples {
        Samples::Tokens { targets, .. } => {
            cross_entropy::forward(x, pass.parameter(table(pass.model)), targets, pass.model.hidden)
        }
        Samples::Patches { targets, .. } => squared_error::forward(&pass.linear("head", x), targets),
    }
}

/// The logits `[n, v]` of tokens from the final norm's output `x[n, h]`.
pub(crate) fn logits(pass: &Pass, x: &[f64]) -> Vec<f64> {
    let table = pass.parameter(table(pass.model));
    x.chunks(pass.model.hidden).flat_map(|x| cross_entropy::logits(x, table)).collect()
}

/// `dx[n, h]` of the mean loss; the gradients of the head's parameters are added to `gradients`.
pub(crate) fn backward(pass: &Pass, x: &[f64], gradients: &mut Tensors) -> Vec<f64> {
    match pass.batch.samples {
        Samples::Tokens { targets, .. } => {
            let name = table(pass.model);
            let (dx, dtable) = cross_entropy::backward(x, pass.parameter(name), targets, pass.model.hidden);
            accumulate(gradients, name, &dtable);
            dx
        }
        Samples::Patches { targets, .. } => {
            let dpredictions = squared_error::backward(&pass.linear("head", x), targets);
            pass.linear_backward("head", &dpredictions, x, gradients)
        }
    }
}

/// The parameter that makes logits of tokens.
fn table(model: &Model) -> &'static str {
    if model.tied_head { "embedding.table" } else { "head.weight" }
}
