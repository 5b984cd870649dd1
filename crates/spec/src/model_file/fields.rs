//! The fields of a model's file by their names, as `--set key=value` writes them.

use super::{BlockTable, ModelFile, table};
use crate::{Positions, RotaryRule, SpecError};

impl ModelFile {
    /// Every field but `blocks`, in the order of a file.
    pub const FIELDS: [&str; 61] = [
        "name",
        "layers",
        "hidden",
        "heads",
        "kv_heads",
        "ffn",
        "vocab",
        "seq_len",
        "patch_values",
        "tied_head",
        "embedding_scale",
        "logit_cap",
        "biases",
        "dropout",
        "norm",
        "norm_epsilon",
        "positions",
        "rotary_base",
        "activation",
        "causal",
        "head_dim",
        "value_dim",
        "key_value_latent",
        "query_latent",
        "shared_key",
        "qkv_bias",
        "projection_bias",
        "up_bias",
        "down_bias",
        "window",
        "score_scale",
        "attention_cap",
        "qk_norm",
        "rotary_dim",
        "rotary_scaling",
        "rotary_factor",
        "rotary_low",
        "rotary_high",
        "rotary_positions",
        "norm_place",
        "norm_offset",
        "residual",
        "residual_scale",
        "experts",
        "experts_per_token",
        "expert_ffn",
        "expert_every",
        "expert_first",
        "shared_ffn",
        "router",
        "router_groups",
        "router_top_groups",
        "router_normalize",
        "router_scale",
        "balance",
        "balance_loss",
        "router_z_loss",
        "router_bias_rate",
        "capacity",
        "capacity_group",
        "drop",
    ];

    /// Whether [`ModelFile::set`] knows a key: a field, or `blocks.FROM.FIELD` or `blocks.FROM/EVERY.FIELD`.
    pub fn knows(key: &str) -> bool {
        Self::FIELDS.contains(&key) || key.starts_with(table::PREFIX)
    }

    /// Replaces one field, or, as `blocks.FROM.FIELD` and `blocks.FROM/EVERY.FIELD`, that of some blocks. `hidden` without a stated
    /// `ffn` rescales the perceptron with it. No `experts`, no `key_value_latent`, no rotary `positions` and a `rotary_scaling` leave
    /// out what was said before of experts, of narrow rows, of scaled frequencies, and of these what the rule does not have.
    ///
    /// # Errors
    /// An unknown field, or a value of the wrong type.
    pub fn set(&mut self, field: &str, value: &str) -> Result<(), SpecError> {
        match field {
            "name" => self.name = value.to_owned(),
            "layers" => self.layers = parse_size(field, value)?,
            "hidden" => self.hidden = parse_size(field, value)?,
            "heads" => self.heads = parse_size(field, value)?,
            "kv_heads" => self.kv_heads = Some(parse_size(field, value)?),
            "ffn" => self.ffn = Some(parse_size(field, value)?),
            "vocab" => self.vocab = Some(parse_size(field, value)?),
            "seq_len" => self.seq_len = parse_size(field, value)?,
            "patch_values" => self.patch_values = Some(parse_size(field, value)?),
            "tied_head" => self.tied_head = Some(parse(field, value, "it must be true or false")?),
            "embedding_scale" => self.embedding_scale = Some(parse(field, value, "it must be a number")?),
            "logit_cap" => self.logit_cap = Some(parse(field, value, "it must be a number")?),
            "biases" => self.biases = parse(field, value, "it must be true or false")?,
            "dropout" => self.dropout = parse(field, value, "it must be a number")?,
            "norm" => self.norm = value.trim().parse()?,
            "norm_epsilon" => self.norm_epsilon = parse(field, value, "it must be a number")?,
            "positions" => {
                self.positions = value.trim().parse()?;
                if self.positions != Positions::Rotary {
                    self.leave_rotary_scaling(RotaryRule::None);
                }
            }
            "rotary_base" => self.rotary_base = Some(parse(field, value, "it must be a number")?),
            "activation" => self.activation = value.trim().parse()?,
            "causal" => self.causal = Some(parse(field, value, "it must be true or false")?),
            "head_dim" => self.head_dim = Some(parse_size(field, value)?),
            "value_dim" => self.value_dim = Some(parse_size(field, value)?),
            "key_value_latent" => {
                let latent = parse_size(field, value)?;
                if latent == 0 {
                    (self.query_latent, self.shared_key) = (None, None);
                }
                self.key_value_latent = Some(latent);
            }
            "query_latent" => self.query_latent = Some(parse_size(field, value)?),
            "shared_key" => self.shared_key = Some(parse_size(field, value)?),
            "qkv_bias" => self.qkv_bias = Some(parse(field, value, "it must be true or false")?),
            "projection_bias" => self.projection_bias = Some(parse(field, value, "it must be true or false")?),
            "up_bias" => self.up_bias = Some(parse(field, value, "it must be true or false")?),
            "down_bias" => self.down_bias = Some(parse(field, value, "it must be true or false")?),
            "window" => self.window = Some(parse_size(field, value)?),
            "score_scale" => self.score_scale = Some(parse(field, value, "it must be a number")?),
            "attention_cap" => self.attention_cap = Some(parse(field, value, "it must be a number")?),
            "qk_norm" => self.qk_norm = Some(value.trim().parse()?),
            "rotary_dim" => self.rotary_dim = Some(parse_size(field, value)?),
            "rotary_scaling" => {
                let rule = value.trim().parse()?;
                self.leave_rotary_scaling(rule);
                self.rotary_scaling = Some(rule);
            }
            "rotary_factor" => self.rotary_factor = Some(parse(field, value, "it must be a number")?),
            "rotary_low" => self.rotary_low = Some(parse(field, value, "it must be a number")?),
            "rotary_high" => self.rotary_high = Some(parse(field, value, "it must be a number")?),
            "rotary_positions" => self.rotary_positions = Some(parse_size(field, value)?),
            "norm_place" => self.norm_place = Some(value.trim().parse()?),
            "norm_offset" => self.norm_offset = Some(parse(field, value, "it must be true or false")?),
            "residual" => self.residual = Some(value.trim().parse()?),
            "residual_scale" => self.residual_scale = Some(parse(field, value, "it must be a number")?),
            "experts" => {
                let experts = parse_size(field, value)?;
                if experts == 0 {
                    self.leave_experts();
                }
                self.experts = Some(experts);
            }
            "experts_per_token" => self.experts_per_token = Some(parse_size(field, value)?),
            "expert_ffn" => self.expert_ffn = Some(parse_size(field, value)?),
            "expert_every" => self.expert_every = Some(parse_size(field, value)?),
            "expert_first" => self.expert_first = Some(parse_size(field, value)?),
            "shared_ffn" => self.shared_ffn = Some(parse_size(field, value)?),
            "router" => self.router = Some(value.trim().parse()?),
            "router_groups" => self.router_groups = Some(parse_size(field, value)?),
            "router_top_groups" => self.router_top_groups = Some(parse_size(field, value)?),
            "router_normalize" => self.router_normalize = Some(parse(field, value, "it must be true or false")?),
            "router_scale" => self.router_scale = Some(parse(field, value, "it must be a number")?),
            "balance" => self.balance = Some(value.trim().parse()?),
            "balance_loss" => self.balance_loss = Some(parse(field, value, "it must be a number")?),
            "router_z_loss" => self.router_z_loss = Some(parse(field, value, "it must be a number")?),
            "router_bias_rate" => self.router_bias_rate = Some(parse(field, value, "it must be a number")?),
            "capacity" => self.capacity = Some(parse(field, value, "it must be a number")?),
            "capacity_group" => self.capacity_group = Some(parse_size(field, value)?),
            "drop" => self.drop = Some(value.trim().parse()?),
            _ if field.starts_with(table::PREFIX) => self.blocks.push(BlockTable::from_key(field, value)?),
            _ => {
                let known = Self::FIELDS.map(str::to_owned).to_vec();
                return Err(SpecError::Unknown { what: "model field", name: field.to_owned(), known });
            }
        }
        Ok(())
    }
}

/// A whole number, with TOML's underscores allowed: `50_257`.
fn parse_size(field: &str, value: &str) -> Result<usize, SpecError> {
    parse(field, &value.replace('_', ""), "it must be a whole number")
}

fn parse<T: std::str::FromStr>(field: &str, value: &str, rule: &str) -> Result<T, SpecError> {
    let remedy = format!("write `model.{field}`=...");
    value.trim().parse().map_err(|_| SpecError::invalid(field, format!("'{value}'"), rule, remedy))
}
