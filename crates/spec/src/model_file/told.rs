//! The file of a model that there is.

use super::{ModelFile, default_norm_epsilon, gelu, layer_norm, learned, yes};
use crate::{Block, Classic, Model};

impl ModelFile {
    /// The file of a model: fields that every file had from the beginning, and the others where they say something.
    pub fn of(model: &Model) -> Self {
        let Block { attention, .. } = *model.blocks.first();
        let mut file = Self::from(model.classic());
        if model.patch_values.is_some() {
            file.biases = model.patch_biases;
        }
        file.embedding_scale = Some(model.embedding_scale).filter(|scale| *scale != 1.0);
        file.logit_cap = model.logit_cap;
        file.norm_offset = model.final_norm.offset.then_some(true);
        // Where some blocks have other heads, theirs are not as wide as the stream says either.
        let apart = attention.queries_width() != model.hidden || model.blocks.kinds().len() > 1;
        file.head_dim = apart.then_some(attention.head_dim);
        // Left out they follow the columns of keys, in tables those of the table.
        let own = model.blocks.kinds().iter().any(|block| block.attention.value_dim != block.attention.head_dim);
        file.value_dim = own.then_some(attention.value_dim);
        // Heads of an odd number of columns turn in part only. Left out it follows `shared_key` where there is one.
        let latent = model.blocks.kinds().iter().any(|block| block.attention.latent.is_some());
        let columns = attention.rotary.map(|rotary| rotary.columns);
        let part = columns.filter(|columns| *columns != attention.head_dim);
        file.rotary_dim = part.or(columns.filter(|_| latent).map(|_| 0));
        file.tell_blocks(model);
        file
    }
}

/// Nothing is said: sizes are 0 and refused, all else is as if left out.
impl Default for ModelFile {
    fn default() -> Self {
        Self {
            name: String::new(),
            layers: 0,
            hidden: 0,
            heads: 0,
            kv_heads: None,
            ffn: None,
            vocab: None,
            seq_len: 0,
            patch_values: None,
            tied_head: None,
            embedding_scale: None,
            logit_cap: None,
            biases: yes(),
            dropout: 0.0,
            norm: layer_norm(),
            norm_epsilon: default_norm_epsilon(),
            positions: learned(),
            rotary_base: None,
            activation: gelu(),
            causal: None,
            head_dim: None,
            value_dim: None,
            key_value_latent: None,
            query_latent: None,
            shared_key: None,
            qkv_bias: None,
            projection_bias: None,
            up_bias: None,
            down_bias: None,
            window: None,
            score_scale: None,
            attention_cap: None,
            qk_norm: None,
            rotary_dim: None,
            rotary_scaling: None,
            rotary_factor: None,
            rotary_low: None,
            rotary_high: None,
            rotary_positions: None,
            norm_place: None,
            norm_offset: None,
            residual: None,
            residual_scale: None,
            experts: None,
            experts_per_token: None,
            expert_ffn: None,
            expert_every: None,
            expert_first: None,
            shared_ffn: None,
            router: None,
            router_groups: None,
            router_top_groups: None,
            router_normalize: None,
            router_scale: None,
            balance: None,
            balance_loss: None,
            router_z_loss: None,
            router_bias_rate: None,
            capacity: None,
            capacity_group: None,
            drop: None,
            blocks: Vec::new(),
        }
    }
}

/// Every field that a flat description has.
impl From<Classic> for ModelFile {
    fn from(classic: Classic) -> Self {
        Self {
            name: classic.name,
            layers: classic.layers,
            hidden: classic.hidden,
            heads: classic.heads,
            kv_heads: Some(classic.kv_heads),
            ffn: Some(classic.ffn),
            vocab: classic.patch_values.is_none().then_some(classic.vocab),
            seq_len: classic.seq_len,
            patch_values: classic.patch_values,
            tied_head: Some(classic.tied_head),
            biases: classic.biases,
            dropout: classic.dropout,
            norm: classic.norm,
            norm_epsilon: classic.norm_epsilon,
            positions: classic.positions,
            rotary_base: Some(classic.rotary_base),
            activation: classic.activation,
            causal: Some(classic.causal),
            ..Self::default()
        }
    }
}
