//! Models whose blocks are alike and made as those of GPT, Llama or a vision transformer: one flat list of sizes and
//! switches, for closed forms, published planners and other programs' files, which know no other models.

use crate::choices::QkNorm;
use crate::{
    Activation, Attention, Block, Blocks, FeedForward, Model, Norm, NormPlace, Normalization, Perceptron, Positions,
    Residual, ResidualOrder, Rotary, RotaryRule, RotaryScaling, SpecError,
};

/// The base of rotary positions where none is said.
pub(crate) const ROTARY_BASE: f64 = 10_000.0;

/// A model of alike blocks: heads share the residual stream, norms stand before attention and perceptron, all linear
/// layers have biases or none has.
#[derive(Debug, Clone, PartialEq)]
pub struct Classic {
    /// What the model is called in reports.
    pub name: String,
    /// Number of blocks, at least 1.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Attention heads; divides `hidden`.
    pub heads: usize,
    /// Heads of keys and values; divides `heads`.
    pub kv_heads: usize,
    /// Width of the perceptron.
    pub ffn: usize,
    /// Number of token ids; 0 where the input is patches.
    pub vocab: usize,
    /// Longest sequence.
    pub seq_len: usize,
    /// Numbers in a patch; `None`: the input is tokens.
    pub patch_values: Option<usize>,
    /// Whether the head uses the embedding table.
    pub tied_head: bool,
    /// Whether linear layers have biases.
    pub biases: bool,
    /// Dropout rate.
    pub dropout: f64,
    /// The kind of norms.
    pub norm: Norm,
    /// Added to the variance or mean square.
    pub norm_epsilon: f64,
    /// How attention knows positions.
    pub positions: Positions,
    /// Base of the rotary frequencies.
    pub rotary_base: f64,
    /// The function of the perceptron.
    pub activation: Activation,
    /// Whether a position attends only to itself and those before it.
    pub causal: bool,
}

impl Classic {
    /// A GPT-2 of these sizes: perceptron of `4 * hidden`, tied head, biases, no dropout. Unlike a file's, the sizes are
    /// not checked.
    pub fn gpt(layers: usize, hidden: usize, heads: usize, vocab: usize, seq_len: usize) -> Self {
        Self {
            name: "gpt".to_owned(),
            layers,
            hidden,
            heads,
            kv_heads: heads,
            ffn: 4 * hidden,
            vocab,
            seq_len,
            patch_values: None,
            tied_head: true,
            biases: true,
            dropout: 0.0,
            norm: Norm::Layer,
            norm_epsilon: 1e-5,
            positions: Positions::Learned,
            rotary_base: ROTARY_BASE,
            activation: Activation::Gelu,
            causal: true,
        }
    }

    /// Width of an attention head.
    pub fn head_dim(&self) -> usize {
        self.hidden / self.heads
    }

    /// Columns of the product that makes queries, keys and values.
    pub fn qkv_width(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim()
    }

    /// Columns of the perceptron's first product: with gates one more for each.
    pub fn up_width(&self) -> usize {
        self.ffn * self.activation.inputs()
    }

    /// The model as a list of blocks.
    pub fn model(self) -> Model {
        let norm = Normalization { kind: self.norm, epsilon: self.norm_epsilon, offset: false };
        let rotary = Rotary { base: self.rotary_base, columns: self.head_dim(), scaling: RotaryScaling::None };
        let block = Block {
            attention: Attention {
                heads: self.heads,
                kv_heads: self.kv_heads,
                head_dim: self.head_dim(),
                value_dim: self.head_dim(),
                latent: None,
                causal: self.causal,
                window: None,
                score_scale: 1.0,
                cap: None,
                qk_norm: None,
                rotary: (self.positions == Positions::Rotary).then_some(rotary),
                qkv_bias: self.biases,
                projection_bias: self.biases,
            },
            feed_forward: FeedForward::Dense(Perceptron {
                width: self.ffn,
                activation: self.activation,
                up_bias: self.biases,
                down_bias: self.biases,
            }),
            norm,
            norm_place: NormPlace::Before,
            residual: Residual::PLAIN,
        };
        Model {
            name: self.name,
            hidden: self.hidden,
            vocab: self.vocab,
            seq_len: self.seq_len,
            patch_values: self.patch_values,
            patch_biases: self.biases && self.patch_values.is_some(),
            tied_head: self.tied_head,
            embedding_scale: 1.0,
            logit_cap: None,
            dropout: self.dropout,
            learned_positions: self.positions == Positions::Learned,
            final_norm: norm,
            blocks: Blocks::alike(block, self.layers),
        }
    }
}

impl Model {
    /// The flat description, as the first block says it, of experts the width of one: the whole truth where
    /// [`Model::check_classic`] agrees.
    pub fn classic(&self) -> Classic {
        let Block { attention, feed_forward, .. } = *self.blocks.first();
        let (ffn, biases) = match feed_forward {
            FeedForward::Dense(perceptron) => (perceptron.width, perceptron.up_bias),
            FeedForward::Experts(experts) => (experts.expert.width, attention.qkv_bias),
        };
        Classic {
            name: self.name.clone(),
            layers: self.layers(),
            hidden: self.hidden,
            heads: attention.heads,
            kv_heads: attention.kv_heads,
            ffn,
            vocab: self.vocab,
            seq_len: self.seq_len,
            patch_values: self.patch_values,
            tied_head: self.tied_head,
            biases,
            dropout: self.dropout,
            norm: self.final_norm.kind,
            norm_epsilon: self.final_norm.epsilon,
            positions: match attention.rotary {
                _ if self.learned_positions => Positions::Learned,
                Some(_) => Positions::Rotary,
                None => Positions::None,
            },
            rotary_base: attention.rotary.map_or(ROTARY_BASE, |rotary| rotary.base),
            activation: feed_forward.activation(),
            causal: attention.causal,
        }
    }

    /// Refuses models that [`Classic`] does not describe, in the name of `who` ("this cost model").
    ///
    /// # Errors
    /// Names the first key of the model's file that asks for more.
    pub fn check_classic(&self, who: &str) -> Result<(), SpecError> {
        let Some((field, value)) = self.beyond_classic() else { return Ok(()) };
        let rule = format!("{who} knows models of alike blocks as GPT, Llama and ViT have them");
        Err(SpecError::invalid(field, value, rule, "leave it out, or use what follows the step program"))
    }

    /// What [`Classic`] does not say of the model, as key and value of its file; `None`: it says all.
    pub fn beyond_classic(&self) -> Option<(&'static str, String)> {
        let classic = self.classic();
        let known = [Activation::Gelu, Activation::Swiglu].contains(&classic.activation);
        if known && classic.positions != Positions::None && classic.clone().model() == *self {
            return None;
        }
        let Block { attention, feed_forward, norm, norm_place, residual } = *self.blocks.first();
        let kinds = self.blocks.kinds().len();
        let window = attention.window.unwrap_or(0);
        let scaling = attention.rotary.map_or(RotaryRule::None, |rotary| rotary.scaling.rule());
        let experts = self.blocks.kinds().iter().find_map(|block| block.feed_forward.experts());
        let down_bias = feed_forward.dense().map_or(classic.biases, |perceptron| perceptron.down_bias);
        let differences = [
            (experts.is_some(), "experts", experts.map_or(0, |experts| experts.count).to_string()),
            (
                attention.latent.is_some(),
                "key_value_latent",
                attention.latent.map_or(0, |it| it.keys_values).to_string(),
            ),
            (self.embedding_scale != 1.0, "embedding_scale", self.embedding_scale.to_string()),
            (self.logit_cap.is_some(), "logit_cap", self.logit_cap.unwrap_or(0.0).to_string()),
            (classic.positions == Positions::None, "positions", "none".to_owned()),
            (!known, "activation", classic.activation.to_string()),
            (attention.rotary.is_some_and(|it| it.columns != attention.head_dim), "rotary_dim", "a part".to_owned()),
            (scaling != RotaryRule::None, "rotary_scaling", scaling.to_string()),
            (norm.offset, "norm_offset", "true".to_owned()),
            (norm_place != NormPlace::Before, "norm_place", norm_place.to_string()),
            (residual.order != ResidualOrder::Sequential, "residual", residual.order.to_string()),
            (residual.scale != 1.0, "residual_scale", residual.scale.to_string()),
            (window > 0, "window", window.to_string()),
            (attention.score_scale != 1.0, "score_scale", attention.score_scale.to_string()),
            (attention.cap.is_some(), "attention_cap", attention.cap.unwrap_or(0.0).to_string()),
            (attention.qk_norm.is_some(), "qk_norm", QkNorm::of(attention.qk_norm).to_string()),
            (attention.value_dim != attention.head_dim, "value_dim", attention.value_dim.to_string()),
            (attention.head_dim != classic.head_dim(), "head_dim", attention.head_dim.to_string()),
            (attention.qkv_bias != classic.biases, "qkv_bias", attention.qkv_bias.to_string()),
            (attention.projection_bias != classic.biases, "projection_bias", attention.projection_bias.to_string()),
            (down_bias != classic.biases, "down_bias", down_bias.to_string()),
        ];
        let first = differences.into_iter().find(|(differs, ..)| *differs);
        Some(first.map_or(("blocks", format!("{kinds} kinds")), |(_, field, value)| (field, value)))
    }

    /// The model with its flat description changed: for tests and sizes that are printed somewhere. Unlike a file's, the
    /// sizes are not checked, and what [`Classic`] does not say is lost.
    #[must_use]
    pub fn reshaped(&self, change: impl FnOnce(&mut Classic)) -> Self {
        let mut classic = self.classic();
        change(&mut classic);
        classic.model()
    }
}
