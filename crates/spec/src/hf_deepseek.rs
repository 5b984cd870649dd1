//! DeepSeek-V3 as a Hugging Face configuration describes it: latent attention, and experts in groups beside a shared one.
//!
//! The layer that predicts a second token (`num_nextn_predict_layers`) is not part of what the library computes, and not of the
//! model here. Pairs of columns turn that are neighbours there and halves here: columns of weights in another order.

use serde_json::{Map, Value};

use crate::choices::RotaryRule;
use crate::hf::{Described, rotary_decoder};
use crate::hf_fields::{Fields, cut, unexpressed};
use crate::{BalanceScope, ModelFile, RouterScores, SpecError};

/// By how much biases of routers move a step, which no configuration says (DeepSeek-V3, arXiv 2412.19437, section 4.2).
const BIAS_RATE: f64 = 0.001;

/// Keys of a group that count for it in the library.
const COUNTED: usize = 2;

/// A DeepSeek-V3.
pub(crate) fn deepseek_v3(fields: &mut Fields) -> Result<Described, SpecError> {
    // How weights are stored, and which code of the hub computes the same.
    ["quantization_config", "auto_map", "ep_size", "num_nextn_predict_layers", "rope_interleave"]
        .into_iter()
        .for_each(|field| drop(fields.take(field)));
    let yarn = fields.yarn()?;
    let file = rotary_decoder(fields, "DeepseekV3ForCausalLM")?;
    let file = latent(fields, file)?;
    let file = experts(fields, file)?;
    let file = match yarn {
        Some(yarn) => scaled(&yarn, file)?,
        None => file,
    };
    Ok(Described { file, window: None })
}

fn latent(fields: &mut Fields, file: ModelFile) -> Result<ModelFile, SpecError> {
    fields.check_flag("attention_bias", false, "layers of latent attention have no biases")?;
    if let Some(keys) = fields.size("num_key_value_heads")?.filter(|keys| *keys != file.heads) {
        return Err(unexpressed("num_key_value_heads", keys, "latent attention has as many keys as heads"));
    }
    let [apart, shared] = ["qk_nope_head_dim", "qk_rope_head_dim"].map(|field| fields.needed_size(field));
    let (apart, shared) = (apart?, shared?);
    let width = apart.saturating_add(shared);
    for (field, only) in [("qk_head_dim", width), ("head_dim", shared)] {
        if let Some(other) = fields.size(field)?.filter(|size| *size != only) {
            return Err(unexpressed(field, other, format!("it follows from the parts of a key: {only}")));
        }
    }
    Ok(ModelFile {
        head_dim: Some(width),
        value_dim: Some(fields.needed_size("v_head_dim")?),
        key_value_latent: Some(fields.needed_size("kv_lora_rank")?),
        query_latent: fields.size("q_lora_rank")?,
        shared_key: Some(shared),
        rotary_dim: Some(shared),
        ..file
    })
}

fn experts(fields: &mut Fields, file: ModelFile) -> Result<ModelFile, SpecError> {
    for (field, only) in [("scoring_func", "sigmoid"), ("topk_method", "noaux_tc")] {
        if let Some(other) = fields.text(field)?.filter(|text| text != only) {
            return Err(unexpressed(field, cut(&other), format!("DeepSeek-V3 has {only}")));
        }
    }
    if let Some(other) = fields.size("moe_layer_freq")?.filter(|every| *every != 1) {
        return Err(unexpressed("moe_layer_freq", other, "every block after the first ones has experts"));
    }
    let count = fields.needed_size("n_routed_experts")?;
    let per_token = fields.needed_size("num_experts_per_tok")?;
    let width = fields.needed_size("moe_intermediate_size")?;
    let shared = fields.size("n_shared_experts")?.unwrap_or(0).saturating_mul(width);
    let [groups, chosen] = ["n_group", "topk_group"].map(|field| fields.size(field));
    let (groups, chosen) = (groups?.unwrap_or(1), chosen?.unwrap_or(1));
    let limited = chosen < groups;
    if limited && chosen.checked_mul(COUNTED) != Some(per_token) {
        let rule = format!(
            "the {COUNTED} largest keys of a group count for it: tokens choose {per_token} experts of half as many groups"
        );
        return Err(unexpressed("topk_group", chosen, rule));
    }
    let over_sequence = fields.flag("seq_aux", true)?;
    Ok(ModelFile {
        ffn: Some(fields.needed_size("intermediate_size")?),
        experts: Some(count),
        experts_per_token: Some(per_token),
        expert_ffn: Some(width),
        expert_first: fields.size("first_k_dense_replace")?,
        shared_ffn: Some(shared),
        router: Some(RouterScores::Sigmoid),
        router_groups: limited.then_some(groups),
        router_top_groups: limited.then_some(chosen),
        router_normalize: Some(fields.flag("norm_topk_prob", true)?),
        router_scale: fields.number("routed_scaling_factor")?,
        router_bias_rate: Some(BIAS_RATE),
        balance: Some(if over_sequence { BalanceScope::Sequence } else { BalanceScope::Batch }),
        balance_loss: Some(fields.number("aux_loss_alpha")?.unwrap_or(0.0)),
        ..file
    })
}

/// The model in longer sequences than it was trained with first: frequencies by YaRN, and scores that grow with its factor
/// (arXiv 2309.00071, section 3.4, for all columns of a key).
fn scaled(yarn: &Map<String, Value>, file: ModelFile) -> Result<ModelFile, SpecError> {
    let number = |field: &str| yarn.get(field).and_then(Value::as_f64);
    let needed = |field: &str| {
        let positive = number(field).filter(|number| *number > 0.0);
        positive
            .ok_or_else(|| SpecError::invalid("rope_scaling", "yarn", format!("it has a number {field}"), "give it"))
    };
    let factor = needed("factor")?;
    let grown = |share: f64| if factor > 1.0 { 0.1 * share * factor.ln() + 1.0 } else { 1.0 };
    let [turning, all] = ["mscale", "mscale_all_dim"].map(|field| number(field).unwrap_or(0.0));
    // What turns is scaled apart by the ratio of both.
    if grown(turning) != grown(all) || turning == 0.0 && factor > 1.0 {
        let rule = "all columns of queries and keys are scaled alike: mscale is mscale_all_dim, and above 0";
        return Err(unexpressed("rope_scaling", format!("mscale {turning}, mscale_all_dim {all}"), rule));
    }
    if yarn.get("truncate").is_some_and(|truncate| *truncate == Value::Bool(false)) {
        return Err(unexpressed("rope_scaling", "truncate false", "frequencies are mixed between whole pairs"));
    }
    Ok(ModelFile {
        score_scale: Some(grown(all).powi(2)),
        rotary_scaling: Some(RotaryRule::Yarn),
        rotary_factor: Some(factor),
        rotary_low: Some(number("beta_slow").unwrap_or(1.0)),
        rotary_high: Some(number("beta_fast").unwrap_or(32.0)),
        rotary_positions: Some(needed("original_max_position_embeddings")? as usize),
        ..file
    })
}
