//! The serial reference model: GPT-2, Llama, the vision transformer and mixtures of experts in f64 with plain loops, no
//! parallelism, and no code shared with the kernels.
//!
//! Every parallel layout is held against it, so it is written to be read, not to be fast. One file per layer,
//! forward beside backward; a backward takes the layer's inputs again and recomputes what it needs.
//!
//! Shapes, in all files: `n = b s` rows (tokens or patches) of `b` sequences of `s`, `h = a d` hidden columns of `a`
//! heads of width `d`, of which `k` have keys and values of their own, `f` columns inside the perceptron, `v` token
//! ids; where there are experts, a token chooses `k` of `E`. Matrices are row-major slices. `dx` is the gradient of the loss with respect to `x`.
//!
//! ```
//! use quadrille_oracle::{AdamW, Batch, Samples, State, initial, loss_and_gradients, update};
//! use quadrille_spec::Model;
//!
//! let model = Model::gpt(1, 12, 3, 7, 4); // one block, 12 columns, 3 heads, 7 token ids, 4 tokens in a sequence
//! let mut weights = initial(&model, 1, false);
//! let samples = Samples::Tokens { inputs: &[1, 2, 3, 4], targets: &[2, 3, 4, 5] };
//! let batch = Batch { samples, sequences: 1, seq_len: 4 };
//! let constants =
//!     AdamW { learning_rate: 0.01, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.0, clip: Some(1.0) };
//! let (before, gradients) = loss_and_gradients(&model, &weights, &batch, None);
//! update(&model, &constants, &mut State::new(&model), &mut weights, &gradients);
//! let (after, _) = loss_and_gradients(&model, &weights, &batch, None);
//! assert!(after < before);
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::print_stdout, clippy::print_stderr)
)]

mod attention;
mod block;
mod capacity;
mod cross_entropy;
mod decisions;
mod dropout;
mod embedding;
mod evaluation;
mod experts;
mod functions;
mod gelu;
mod head;
mod initial;
mod latent;
mod linear;
mod norm;
mod normal;
mod optimizer;
mod pass;
mod qk_norm;
mod rotary;
mod router;
mod schedule;
mod squared_error;
mod swiglu;
mod transformer;

use std::collections::BTreeMap;

use quadrille_spec::{
    Activation, Attention, Block, Experts, FeedForward, Latent, Model, Norm, NormPlace, NormedOver, PADDING, Perceptron,
};

pub use decisions::{Decisions, Margin};
pub use dropout::{DropoutSeed, Mask};
pub use evaluation::{mean_loss, mean_loss_with};
pub use initial::initial;
pub use optimizer::{AdamW, State, gradient_norm, update};
pub use schedule::LearningRate;
pub use transformer::{Objective, logits, loss_and_gradients, margins, objective};

/// Logical tensors by parameter name, row-major, with the shapes of [`parameter_shapes`]; vocabulary not padded.
pub type Tensors = BTreeMap<String, Vec<f64>>;

/// The global batch of one step: `b` sequences of `s` rows, sequence after sequence.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    /// What the model reads and what it is to predict.
    pub samples: Samples<'a>,
    /// Sequences in the batch (`b`), at least 1.
    pub sequences: usize,
    /// Tokens or patches in each sequence (`s`), from 1 to the model's `seq_len`.
    pub seq_len: usize,
}

impl Batch<'_> {
    /// `n`.
    fn rows(&self) -> usize {
        self.sequences * self.seq_len
    }

    /// `[b, s]`: false for padding.
    pub fn present(&self) -> Vec<bool> {
        match self.samples {
            Samples::Tokens { inputs, .. } => inputs.iter().map(|token| *token != PADDING).collect(),
            Samples::Patches { .. } => vec![true; self.rows()],
        }
    }
}

/// The inputs and targets of a batch, of the kind that the model reads.
#[derive(Debug, Clone, Copy)]
pub enum Samples<'a> {
    /// For a model with a vocabulary.
    Tokens {
        /// Input token ids, `[b, s]`, each below the model's vocabulary; [`PADDING`] where there is no token. Attention of tokens
        /// before padding does not read it where it is causal.
        inputs: &'a [u32],
        /// The ids to be predicted, `[b, s]`, usually the tokens one place later.
        targets: &'a [u32],
    },
    /// For a model with `patch_values`.
    Patches {
        /// Input numbers, `[b, s, values]`.
        inputs: &'a [f64],
        /// The numbers to be predicted, `[b, s, values]`.
        targets: &'a [f64],
    },
}

/// Names and `[rows, columns]` of the model's parameters, in the order of the table at [`Model`].
pub fn parameter_shapes(model: &Model) -> Vec<(String, [usize; 2])> {
    let h = model.hidden;
    let v = model.vocab;
    let mut shapes = Vec::new();
    match model.patch_values {
        None => shapes.push(("embedding.table".to_owned(), [v, h])),
        Some(values) => push_linear(&mut shapes, "embedding", [values, h], model.patch_biases),
    }
    if model.learned_positions {
        shapes.push(("embedding.positions".to_owned(), [model.seq_len, h]));
    }
    for (i, block) in model.blocks.iter().enumerate() {
        let Block { attention, feed_forward, norm, norm_place, .. } = block;
        let before = *norm_place != NormPlace::After;
        let after = *norm_place != NormPlace::Before;
        if before {
            push_norm(&mut shapes, &format!("block.{i}.norm1"), h, norm.kind);
        }
        push_inputs(&mut shapes, &format!("block.{i}"), h, norm.kind, attention);
        if let Some(norm) = attention.qk_norm {
            let [of_query, of_key] = match norm.over {
                NormedOver::Head => [attention.head_dim; 2],
                NormedOver::AllHeads => [attention.heads, attention.kv_heads].map(|heads| heads * attention.head_dim),
            };
            push_norm(&mut shapes, &format!("block.{i}.query_norm"), of_query, norm.rule.kind);
            push_norm(&mut shapes, &format!("block.{i}.key_norm"), of_key, norm.rule.kind);
        }
        let given = attention.heads * attention.value_dim;
        push_linear(&mut shapes, &format!("block.{i}.projection"), [given, h], attention.projection_bias);
        if after {
            push_norm(&mut shapes, &format!("block.{i}.norm1_after"), h, norm.kind);
        }
        if before {
            push_norm(&mut shapes, &format!("block.{i}.norm2"), h, norm.kind);
        }
        match feed_forward {
            FeedForward::Dense(perceptron) => push_perceptron(&mut shapes, &format!("block.{i}"), h, perceptron),
            FeedForward::Experts(experts) => push_experts(&mut shapes, &format!("block.{i}"), h, experts),
        }
        if after {
            push_norm(&mut shapes, &format!("block.{i}.norm2_after"), h, norm.kind);
        }
    }
    push_norm(&mut shapes, "final_norm", h, model.final_norm.kind);
    match model.patch_values {
        None if model.tied_head => {}
        None => shapes.push(("head.weight".to_owned(), [v, h])),
        Some(values) => push_linear(&mut shapes, "head", [h, values], model.patch_biases),
    }
    shapes
}

/// Columns of the first product: with gates two for each of the perceptron's.
fn up_columns(perceptron: &Perceptron) -> usize {
    match perceptron.activation {
        Activation::Swiglu | Activation::Geglu | Activation::Reglu => 2 * perceptron.width,
        Activation::Gelu | Activation::GeluErf | Activation::Silu | Activation::Relu | Activation::Relu2 => {
            perceptron.width
        }
    }
}

/// What makes queries, keys and values.
fn push_inputs(shapes: &mut Vec<(String, [usize; 2])>, of: &str, h: usize, norm: Norm, attention: &Attention) {
    let Attention { heads, kv_heads, head_dim, value_dim, latent, qkv_bias, .. } = *attention;
    let queries = heads * head_dim;
    let Some(Latent { queries: narrow, keys_values, shared_key }) = latent else {
        return push_linear(shapes, &format!("{of}.qkv"), [h, queries + kv_heads * (head_dim + value_dim)], qkv_bias);
    };
    if let Some(narrow) = narrow {
        push_linear(shapes, &format!("{of}.query_latent"), [h, narrow], false);
        push_norm(shapes, &format!("{of}.query_latent_norm"), narrow, norm);
    }
    push_linear(shapes, &format!("{of}.queries"), [narrow.unwrap_or(h), queries], false);
    push_linear(shapes, &format!("{of}.key_value_latent"), [h, keys_values], false);
    push_norm(shapes, &format!("{of}.key_value_latent_norm"), keys_values, norm);
    let own = heads * (head_dim - shared_key + value_dim);
    push_linear(shapes, &format!("{of}.keys_values"), [keys_values, own], false);
    push_linear(shapes, &format!("{of}.shared_key"), [h, shared_key], false);
}

fn push_perceptron(shapes: &mut Vec<(String, [usize; 2])>, of: &str, h: usize, perceptron: &Perceptron) {
    push_linear(shapes, &format!("{of}.up"), [h, up_columns(perceptron)], perceptron.up_bias);
    push_linear(shapes, &format!("{of}.down"), [perceptron.width, h], perceptron.down_bias);
}

fn push_experts(shapes: &mut Vec<(String, [usize; 2])>, of: &str, h: usize, experts: &Experts) {
    let Experts { count, expert, router, .. } = experts;
    push_linear(shapes, &format!("{of}.router"), [h, *count], router.has_bias());
    push_linear(shapes, &format!("{of}.experts.up"), [count * h, up_columns(expert)], false);
    push_linear(shapes, &format!("{of}.experts.down"), [count * expert.width, h], false);
    if let Some(shared) = &experts.shared {
        push_perceptron(shapes, &format!("{of}.shared"), h, shared);
    }
}

fn push_norm(shapes: &mut Vec<(String, [usize; 2])>, name: &str, h: usize, norm: Norm) {
    shapes.push((format!("{name}.gamma"), [1, h]));
    if norm == Norm::Layer {
        shapes.push((format!("{name}.beta"), [1, h]));
    }
}

fn push_linear(shapes: &mut Vec<(String, [usize; 2])>, name: &str, weight: [usize; 2], bias: bool) {
    shapes.push((format!("{name}.weight"), weight));
    if bias {
        shapes.push((format!("{name}.bias"), [1, weight[1]]));
    }
}

/// One zero for every element of every parameter.
fn zeros(model: &Model) -> Tensors {
    parameter_shapes(model).into_iter().map(|(name, [rows, columns])| (name, vec![0.0; rows * columns])).collect()
}

/// Panics, naming the tensor, unless `tensors` are exactly the model's parameters.
fn assert_parameters(model: &Model, tensors: &Tensors, what: &str) {
    let shapes = parameter_shapes(model);
    for (name, [rows, columns]) in &shapes {
        let length = tensors.get(name).map(Vec::len);
        assert_eq!(length, Some(rows * columns), "{what}: elements of {name}, shape [{rows}, {columns}]");
    }
    assert_eq!(tensors.len(), shapes.len(), "{what}: there are tensors that the model does not have");
}
