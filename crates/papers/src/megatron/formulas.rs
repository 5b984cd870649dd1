//! Parameters, FLOPs, training time, checkpoints: what depends on the model alone.

use quadrille_spec::{Activation, Classic, Model, Norm, Positions, SpecError};

/// Refuses models whose parameters and FLOPs equations 2 and 3 do not count.
///
/// # Errors
/// Patches, SwiGLU, grouped keys, a perceptron that is not `4h` wide, positions without a table, RMS norms, linear layers
/// without biases, a head of its own.
pub fn check_described(model: &Model) -> Result<(), SpecError> {
    model.check_classic("equations 2 and 3 of Narayanan et al.")?;
    let Classic { hidden, heads, kv_heads, ffn, patch_values, tied_head, biases, norm, positions, activation, .. } =
        &model.classic();
    let rules = [
        (
            patch_values.is_none(),
            "patch_values",
            patch_values.unwrap_or(0).to_string(),
            "count a vocabulary",
            "no patches",
        ),
        (
            *activation == Activation::Gelu,
            "activation",
            activation.to_string(),
            "count perceptrons of two products",
            "gelu",
        ),
        (
            kv_heads == heads,
            "kv_heads",
            kv_heads.to_string(),
            "count a key and a value for every head",
            "as many as heads",
        ),
        (*ffn == 4 * hidden, "ffn", ffn.to_string(), "count perceptrons of four times hidden", "4 x hidden"),
        (*positions == Positions::Learned, "positions", positions.to_string(), "count a table of positions", "learned"),
        (*norm == Norm::Layer, "norm", norm.to_string(), "count layer norms", "layer"),
        (*biases, "biases", biases.to_string(), "count a bias in every linear layer", "true"),
        (*tied_head, "tied_head", tied_head.to_string(), "count the embedding table once", "true"),
    ];
    match rules.into_iter().find(|(described, ..)| !described) {
        None => Ok(()),
        Some((_, field, value, counts, usual)) => Err(SpecError::invalid(
            field,
            value,
            format!("equations 2 and 3 of Narayanan et al. {counts}"),
            format!("use a model of GPT's family ({usual}), or another cost model"),
        )),
    }
}

/// Parameters `P` by equation 2: `12 L h^2 (1 + 13/(12 h) + (V + s)/(12 L h))`. The final norm, `2 h`, is not in it.
pub fn parameters(model: &Model) -> f64 {
    let [layers, h, vocab, s] = [model.layers(), model.hidden, model.vocab, model.seq_len].map(|size| size as f64);
    12.0 * layers * h * h * (1.0 + 13.0 / (12.0 * h) + (vocab + s) / (12.0 * layers * h))
}

/// Whether the backward pass computes the forward pass of every layer again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recomputation {
    /// Three passes' work: forward, gradients of inputs and of weights.
    None,
    /// Four passes' work, the forward pass twice: what equation 3 counts.
    Full,
}

/// FLOPs of one layer on `batch` sequences: the layer's part of equation 3, `96 B s h^2 (1 + s/(6 h))`; without
/// recomputation 72 in place of 96.
pub fn layer_flops(batch: usize, seq_len: usize, hidden: usize, recomputation: Recomputation) -> f64 {
    let [batch, s, h] = [batch, seq_len, hidden].map(|size| size as f64);
    let per_pass = 24.0 * batch * s * h * h * (1.0 + s / (6.0 * h));
    match recomputation {
        Recomputation::None => 3.0 * per_pass,
        Recomputation::Full => 4.0 * per_pass,
    }
}

/// FLOPs of an iteration over `batch` sequences: equation 3, `96 B s L h^2 (1 + s/(6 h) + V/(16 L h))`. Without
/// recomputation the layers count 72 instead of 96; the logits, `6 B s h V`, are never computed again.
pub fn flops(model: &Model, batch: usize, recomputation: Recomputation) -> f64 {
    let [sequences, s, h, vocab] = [batch, model.seq_len, model.hidden, model.vocab].map(|size| size as f64);
    let layers = model.layers() as f64 * layer_flops(batch, model.seq_len, model.hidden, recomputation);
    layers + 6.0 * sequences * s * h * vocab
}

/// Seconds to train on `tokens` tokens, with recomputation, by equation 4: `8 T P/(n X)`. `flops_per_device` is `X`, the
/// FLOP/s that a device achieves. The approximation of equation 3 where `6 h >> s`, `16 L h >> V + s`, `12 L h >> V`.
pub fn training_seconds(parameters: f64, tokens: f64, devices: usize, flops_per_device: f64) -> f64 {
    8.0 * tokens * parameters / (devices as f64 * flops_per_device)
}

/// Seconds to train on `tokens` tokens at `flops_per_second` of all devices together, with recomputation, by equation 3.
pub fn training_seconds_by_flops(model: &Model, tokens: f64, flops_per_second: f64) -> f64 {
    tokens / model.seq_len as f64 * flops(model, 1, Recomputation::Full) / flops_per_second
}

/// Bytes of a checkpoint: 14 a parameter, a half-precision weight (2), its f32 master (4) and Adam's two moments (4 + 4).
/// Assumed: section 5.10 prints a size only, and it is near this one.
pub fn checkpoint_bytes(parameters: f64) -> f64 {
    14.0 * parameters
}

/// Bytes of activations that a stage of `layers` layers keeps for a microbatch with `checkpoints` of them, `c`, section
/// 3.5: `c A_input + (l/c) A_intermediate`, both in bytes a layer.
pub fn activation_bytes(layers: usize, checkpoints: f64, input: f64, intermediate: f64) -> f64 {
    checkpoints * input + layers as f64 / checkpoints * intermediate
}

/// The number of checkpoints that keeps least, section 3.5: `sqrt(l A_intermediate/A_input)`. Not a whole number; from
/// `l` on there is one a layer.
pub fn best_checkpoints(layers: usize, input: f64, intermediate: f64) -> f64 {
    (layers as f64 * intermediate / input).sqrt()
}
