//! DeepSeek-V3 as a Hugging Face configuration describes it: latent attention, and experts in groups beside a shared one. Kimi K2
//! has the same code under its own name.
//!
//! The layer that predicts a second token (`num_nextn_predict_layers`) is not part of what the library computes, and not of the
//! model here. Columns have another order there: of a key the shared ones stand last, and neighbours turn together, not halves.
//! Experts of groups that are not chosen have a key of 0 there, which biases below 0 may let win; here they are never chosen.
//! Fields that decide about the model have to be said: their defaults are those of one model.

use crate::choices::RotaryRule;
use crate::classic::ROTARY_BASE;
use crate::hf_experts::NO_MIXTURE;
use crate::hf_fields::{Fields, cut, unexpressed};
use crate::hf_llama::rotary_decoder;
use crate::{BalanceScope, ModelFile, Rotary, RotaryScaling, RouterScores, SpecError};

/// By how much biases of routers move a step, which no configuration says (DeepSeek-V3, arXiv 2412.19437, section 4.2).
const BIAS_RATE: f64 = 0.001;

/// What the library adds to mean squares of narrow rows, whatever a configuration says of the others.
const NARROW_EPSILON: f64 = 1e-6;

/// Keys of a group that count for it in the library.
const COUNTED: usize = 2;

/// A DeepSeek-V3.
pub(crate) fn deepseek_v3(fields: &mut Fields) -> Result<ModelFile, SpecError> {
    // How weights are stored and spread, which code of the hub computes the same, and what is told above.
    ["quantization_config", "ep_size", "auto_map", "num_nextn_predict_layers", "rope_interleave"]
        .into_iter()
        .for_each(|field| drop(fields.take(field)));
    let yarn = fields.yarn()?;
    let file = rotary_decoder(fields, "DeepseekV3ForCausalLM")?;
    if file.norm_epsilon != NARROW_EPSILON {
        let rule =
            format!("norms of narrow rows have {NARROW_EPSILON:?} in the library, and here the same as all others");
        return Err(unexpressed("rms_norm_eps", file.norm_epsilon, rule));
    }
    let file = latent(fields, file)?;
    let file = experts(fields, file)?;
    match yarn {
        Some(yarn) => scaled(yarn, file),
        None => Ok(file),
    }
}

fn latent(fields: &mut Fields, file: ModelFile) -> Result<ModelFile, SpecError> {
    fields.check_flag("attention_bias", false, "layers of latent attention have no biases")?;
    if let Some(keys) = fields.size("num_key_value_heads")?.filter(|keys| *keys != file.heads) {
        return Err(unexpressed("num_key_value_heads", keys, "latent attention has as many keys as heads"));
    }
    let [apart, shared] = ["qk_nope_head_dim", "qk_rope_head_dim"].map(|field| fields.needed_size(field));
    let apart = apart?;
    let shared = shared?;
    let width = apart.saturating_add(shared);
    for (field, only) in [("qk_head_dim", width), ("head_dim", shared)] {
        if let Some(other) = fields.size(field)?.filter(|size| *size != only) {
            return Err(unexpressed(field, other, format!("it follows from the parts of a key: {only}")));
        }
    }
    // Null: the stream makes queries.
    let query_latent = if fields.names("q_lora_rank") {
        fields.size("q_lora_rank")?
    } else {
        Some(fields.needed_size("q_lora_rank")?)
    };
    Ok(ModelFile {
        head_dim: Some(width),
        value_dim: Some(fields.needed_size("v_head_dim")?),
        key_value_latent: Some(fields.needed_size("kv_lora_rank")?),
        query_latent,
        shared_key: Some(shared),
        rotary_dim: Some(shared),
        ..file
    })
}

fn experts(fields: &mut Fields, file: ModelFile) -> Result<ModelFile, SpecError> {
    let file = router(fields, file)?;
    if let Some(other) = fields.size("moe_layer_freq")?.filter(|every| *every != 1) {
        return Err(unexpressed("moe_layer_freq", other, "every block after the first ones has experts"));
    }
    let width = fields.needed_size("moe_intermediate_size")?;
    let shared = fields.needed_size("n_shared_experts")?.saturating_mul(width);
    Ok(ModelFile {
        ffn: Some(fields.needed_size("intermediate_size")?),
        expert_ffn: Some(width),
        expert_first: Some(fields.needed_size("first_k_dense_replace")?),
        shared_ffn: Some(shared),
        ..file
    })
}

/// How many experts there are and how a token chooses among them.
fn router(fields: &mut Fields, file: ModelFile) -> Result<ModelFile, SpecError> {
    for (field, only) in [("scoring_func", "sigmoid"), ("topk_method", "noaux_tc")] {
        if let Some(other) = fields.text(field)?.filter(|text| text != only) {
            return Err(unexpressed(field, cut(&other), format!("DeepSeek-V3 has {only}")));
        }
    }
    let count = fields.needed_size("n_routed_experts")?;
    if count == 0 {
        return Err(unexpressed("n_routed_experts", count, NO_MIXTURE));
    }
    let per_token = fields.needed_size("num_experts_per_tok")?;
    let groups = groups(fields, count, per_token)?;
    let over_sequence = fields.flag("seq_aux", true)?;
    Ok(ModelFile {
        experts: Some(count),
        experts_per_token: Some(per_token),
        router: Some(RouterScores::Sigmoid),
        router_groups: groups.map(|[groups, _]| groups),
        router_top_groups: groups.map(|[_, chosen]| chosen),
        router_normalize: Some(fields.flag("norm_topk_prob", true)?),
        router_scale: Some(fields.needed_number("routed_scaling_factor")?),
        router_bias_rate: Some(BIAS_RATE),
        balance: Some(if over_sequence { BalanceScope::Sequence } else { BalanceScope::Batch }),
        balance_loss: Some(fields.number("aux_loss_alpha")?.unwrap_or(0.0)),
        ..file
    })
}

/// How many groups of experts there are and how many a token chooses, if these are not all.
fn groups(fields: &mut Fields, experts: usize, per_token: usize) -> Result<Option<[usize; 2]>, SpecError> {
    let groups = fields.needed_size("n_group")?;
    let chosen = fields.needed_size("topk_group")?;
    if groups == 0 || !experts.is_multiple_of(groups) {
        return Err(unexpressed("n_group", groups, format!("groups have equally many of {experts} experts")));
    }
    if !(1..=groups).contains(&chosen) {
        return Err(unexpressed("topk_group", chosen, format!("a token chooses some of the {groups} groups")));
    }
    if chosen < groups && chosen.checked_mul(COUNTED) != Some(per_token) {
        let rule = format!(
            "the {COUNTED} largest keys of a group count for it: tokens choose {per_token} experts of half as many groups"
        );
        return Err(unexpressed("topk_group", chosen, rule));
    }
    Ok((chosen < groups).then_some([groups, chosen]))
}

/// The model in longer sequences than it was trained with first: frequencies by YaRN, and scores that grow with its factor
/// (arXiv 2309.00071, section 3.4, for all columns of a key).
fn scaled(mut yarn: Fields, file: ModelFile) -> Result<ModelFile, SpecError> {
    let factor = yarn.needed_number("factor")?;
    let positions = yarn.needed_size("original_max_position_embeddings")?;
    // Versions of the library differ where these do.
    if factor * positions as f64 != file.seq_len as f64 {
        let rule = format!("sequences of {} are so many times as long as those before, {positions}", file.seq_len);
        return Err(unexpressed("factor", factor, rule));
    }
    let grown = |share: f64| if factor > 1.0 { 0.1 * share * factor.ln() + 1.0 } else { 1.0 };
    let [turning, all] = ["mscale", "mscale_all_dim"].map(|field| yarn.number(field));
    let turning = turning?.unwrap_or(0.0);
    let all = all?.unwrap_or(0.0);
    // What turns is scaled apart by the ratio of both.
    if turning != all || turning <= 0.0 {
        let rule =
            format!("all columns of queries and keys are scaled alike: it is mscale_all_dim, {all}, and above 0");
        return Err(unexpressed("mscale", turning, rule));
    }
    yarn.check_flag("truncate", true, "frequencies are mixed between whole pairs")?;
    let low = yarn.number("beta_slow")?.unwrap_or(1.0);
    let high = yarn.number("beta_fast")?.unwrap_or(32.0);
    let file = ModelFile {
        score_scale: Some(grown(all).powi(2)),
        rotary_scaling: Some(RotaryRule::Yarn),
        rotary_factor: Some(factor),
        rotary_low: Some(low),
        rotary_high: Some(high),
        rotary_positions: Some(positions),
        ..file
    };
    check_mixed(&file, low, high, positions)?;
    Ok(file)
}

/// Refuses a base for which the library divides frequencies that it means to keep.
fn check_mixed(file: &ModelFile, low: f64, high: f64, positions: usize) -> Result<(), SpecError> {
    let base = file.rotary_base.unwrap_or(ROTARY_BASE);
    let columns = file.rotary_dim.unwrap_or(0);
    let rotary = Rotary { base, columns, scaling: RotaryScaling::None };
    let [first, last] = rotary.mixed_pairs(low, high, positions);
    // What is wrong by itself is refused by its own name.
    let legal = 0.0 < low && low <= high && base > 1.0 && columns > 0;
    if first <= last || !legal {
        return Ok(());
    }
    let rule = format!("the waves of some pair fit at most {high} times into {positions} positions");
    Err(unexpressed("rope_theta", base, rule))
}
