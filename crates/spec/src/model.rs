//! The transformer to be trained: validated sizes and kinds of layers.

use serde::{Serialize, Serializer};

use crate::{Block, Blocks, Classic, ModelFile, Normalization, SpecError};

/// A transformer: an embedding, a list of blocks, each described ([`crate::Block`]), a final norm and a head. One
/// description covers GPT (layer norm, learned positions, GELU, causal), Llama (RMS norm, rotary positions, SwiGLU, grouped
/// keys and values, untied head) and the vision transformer (patches instead of tokens, no causal mask).
///
/// Logical parameters (`Model::all_parameters`), `[rows, columns]`, weights stored `[inputs, outputs]`; `d = head_dim`:
///
/// | name | shape | decay |
/// |---|---|---|
/// | `embedding.table` (tokens) | `[vocab, hidden]` | yes |
/// | `embedding.weight`, `.bias` (patches) | `[values, hidden]`, `[1, hidden]` | yes, no |
/// | `embedding.positions` (learned) | `[seq_len, hidden]` | yes |
/// | `block.I.norm1.gamma`, `.beta` (layer norm); `block.I.norm1_after` of what attention gives | `[1, hidden]` | no |
/// | `block.I.qkv.weight` | `[hidden, heads d + kv_heads (d + v)]`, `v = value_dim`; group-major: the queries of group 0 (the heads that share a key), its key, its value, then group 1, ... | yes |
/// | `block.I.qkv.bias` | `[1, heads d + kv_heads (d + v)]` | no |
/// | `block.I.query_latent.weight`, `block.I.query_latent_norm.gamma`, `.beta` (latent attention, here and below in place of `qkv`; `q = query_latent`, `l = key_value_latent`, `k = shared_key`) | `[hidden, q]`, `[1, q]` | yes, no |
/// | `block.I.queries.weight` | `[q or hidden, heads d]`; head after head | yes |
/// | `block.I.key_value_latent.weight`, `block.I.key_value_latent_norm.gamma`, `.beta` | `[hidden, l]`, `[1, l]` | yes, no |
/// | `block.I.keys_values.weight` | `[l, heads (d - k + v)]`; of each head the rest of its key, then its value | yes |
/// | `block.I.shared_key.weight` | `[hidden, k]`; the first columns of every head's key | yes |
/// | `block.I.query_norm.gamma`, `.beta`, `block.I.key_norm.gamma`, `.beta` (norms of queries and keys: of each head; of all together) | `[1, d]`; `[1, heads d]` and `[1, kv_heads d]` | no |
/// | `block.I.projection.weight`, `.bias` | `[heads v, hidden]`, `[1, hidden]` | yes, no |
/// | `block.I.norm2.gamma`, `.beta`; `block.I.norm2_after` of what the perceptron gives | `[1, hidden]` | no |
/// | `block.I.up.weight`, `.bias` | `[hidden, up_width]`, `[1, up_width]`; gated: columns gate 0, up 0, gate 1, up 1, ... | yes, no |
/// | `block.I.down.weight`, `.bias` | `[width, hidden]`, `[1, hidden]` | yes, no |
/// | `block.I.router.weight` (with experts, here and below in place of `up` and `down`) | `[hidden, experts]` | yes |
/// | `block.I.router.bias` (where experts are chosen by one; the loads of experts move it, not the optimizer) | `[1, experts]` | no |
/// | `block.I.experts.up.weight` | `[experts hidden, up_width]`; expert `e` has the rows from `e hidden` on, columns as above | yes |
/// | `block.I.experts.down.weight` | `[experts width, hidden]`; expert `e` has the rows from `e width` on | yes |
/// | `block.I.shared.up.weight`, `block.I.shared.down.weight` (where there is a shared perceptron) | as `up` and `down` | yes |
/// | `final_norm.gamma`, `.beta` | `[1, hidden]` | no |
/// | `head.weight` (tokens, untied only) | `[vocab, hidden]` | yes |
/// | `head.weight`, `.bias` (patches) | `[hidden, values]`, `[1, values]` | yes, no |
///
/// Biases exist where their switch is on; layer norms have both vectors, RMS norms no beta.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// What the model is called in reports.
    pub name: String,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Number of token ids; 0 where the input is patches.
    pub vocab: usize,
    /// Longest sequence: rows of the position table.
    pub seq_len: usize,
    /// Numbers in a patch of e.g. a weather field, which the model reads and of which it predicts as many (mean squared
    /// error); `None`: it reads tokens and predicts the next (cross-entropy).
    pub patch_values: Option<usize>,
    /// Whether the linear layers at the ends of a model of patches have biases.
    pub patch_biases: bool,
    /// Whether the head uses the embedding table.
    pub tied_head: bool,
    /// What rows of the table are multiplied with where tokens become the residual stream (Gemma: the root of `hidden`), rounded
    /// to the type that values are stored in; above 0, 1 of most models and of those of patches. A head that uses the table does
    /// not.
    pub embedding_scale: f64,
    /// The soft cap of logits, `cap * tanh(logit / cap)`; only of models of tokens.
    pub logit_cap: Option<f64>,
    /// Dropout rate after the embedding, on attention probabilities and on both block outputs; in [0, 1).
    pub dropout: f64,
    /// Whether a trained table of positions is added to the embedding.
    pub learned_positions: bool,
    /// Before the head.
    pub final_norm: Normalization,
    /// In order.
    pub blocks: Blocks,
}

/// As its file: what [`Model::from_toml`] reads.
impl Serialize for Model {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        ModelFile::of(self).serialize(serializer)
    }
}

impl Model {
    /// A GPT-2 of these sizes: perceptron of `4 * hidden`, tied head, biases, no dropout. Unlike a file's, the sizes are
    /// not checked.
    pub fn gpt(layers: usize, hidden: usize, heads: usize, vocab: usize, seq_len: usize) -> Self {
        Classic::gpt(layers, hidden, heads, vocab, seq_len).model()
    }

    /// Number of blocks.
    pub fn layers(&self) -> usize {
        self.blocks.len()
    }

    /// Whether any block has experts.
    pub fn has_experts(&self) -> bool {
        self.blocks.kinds().iter().any(|block| block.feed_forward.experts().is_some())
    }

    /// Experts of the first so many blocks together.
    pub fn routed_experts(&self, blocks: usize) -> usize {
        let experts = (0..blocks).filter_map(|block| self.blocks[block].feed_forward.experts());
        experts.map(|experts| experts.count).sum()
    }

    /// Checks that no position reads the token that it predicts. A model of tokens is trained and evaluated on the next token of
    /// every position; one of patches may attend to all of them.
    ///
    /// # Errors
    /// The first block of a model of tokens that attends to later positions.
    pub fn check_next_token(&self) -> Result<(), SpecError> {
        let attends_to_all = |block: &Block| !block.attention.causal;
        let first = self.blocks.iter().position(attends_to_all);
        let Some(block) = first.filter(|_| self.patch_values.is_none()) else { return Ok(()) };
        let is_general = self.blocks.kinds().iter().all(attends_to_all);
        let field = if is_general { "causal".to_owned() } else { format!("blocks.{block}.causal") };
        let rule = "the next token is predicted, and without a causal mask attention reads it from the input";
        let remedy = format!("use {field} = true, or patches in place of tokens (patch_values)");
        Err(SpecError::invalid(field, false, rule, remedy))
    }

    /// What a sequence is made of, for people: tokens or patches.
    pub fn sequence_unit(&self) -> &'static str {
        if self.patch_values.is_some() { "patches" } else { "tokens" }
    }
}
