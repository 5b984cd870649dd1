//! Mixtures of experts as a Hugging Face configuration describes them: Mixtral, OLMoE and Qwen3-MoE.
//!
//! Their experts never drop a token. `router_aux_loss_coef` becomes the factor of the balance loss; the loss itself is
//! this crate's, which is another one: the library's joins all blocks before it multiplies loads with scores.

use std::collections::BTreeSet;

use crate::choices::QkNorm;
use crate::hf_fields::{Fields, unexpressed};
use crate::hf_llama::{normed_over_all_heads, rotary_decoder, with_heads};
use crate::model_file::BlockTable;
use crate::{ModelFile, RouterScores, SpecError};

pub(crate) const NO_MIXTURE: &str = "some of its blocks have experts, or it is no mixture of them";

/// Mixtral: experts in every block, whose weights are divided by their sum.
pub(crate) fn mixtral(fields: &mut Fields) -> Result<ModelFile, SpecError> {
    let epsilon = fields.number("rms_norm_eps")?.unwrap_or(1e-5);
    let file = rotary_decoder(fields, "MixtralForCausalLM")?;
    let file = with_heads(fields, file, Some(8))?;
    let jitter = fields.number("router_jitter_noise")?.unwrap_or(0.0);
    if jitter != 0.0 {
        return Err(unexpressed("router_jitter_noise", jitter, "routers see what experts see, without noise"));
    }
    let count = ("num_local_experts", fields.needed_size("num_local_experts")?);
    let width = fields.needed_size("intermediate_size")?;
    let file = with_experts(fields, file, count, [2, width], true)?;
    // Where nobody says it, the library's is not that of other families.
    let rotary_base = file.rotary_base.or(Some(1e6));
    let window = fields.window(None)?;
    Ok(ModelFile { norm_epsilon: epsilon, rotary_base, window, ..file })
}

/// OLMoE: norms of all queries together, and of all keys, and experts in every block.
pub(crate) fn olmoe(fields: &mut Fields) -> Result<ModelFile, SpecError> {
    let file = normed_over_all_heads(fields, "OlmoeForCausalLM")?;
    if let Some(most) = fields.number("clip_qkv")? {
        return Err(unexpressed("clip_qkv", most, "queries, keys and values are not clipped"));
    }
    let normalize = fields.flag("norm_topk_prob", false)?;
    let balance_loss = Some(fields.number("router_aux_loss_coef")?.unwrap_or(0.01));
    let count = counted(fields)?;
    let width = fields.needed_size("intermediate_size")?;
    let file = with_experts(fields, file, count, [8, width], normalize)?;
    Ok(ModelFile { balance_loss, ..file })
}

/// Qwen3-MoE: norms of queries and keys, heads of any width, experts in some blocks.
pub(crate) fn qwen3_moe(fields: &mut Fields) -> Result<ModelFile, SpecError> {
    let file = rotary_decoder(fields, "Qwen3MoeForCausalLM")?;
    let file = with_heads(fields, file, Some(4))?;
    let bias = fields.flag("attention_bias", false)?;
    let normalize = fields.flag("norm_topk_prob", false)?;
    let count = counted(fields)?;
    let width = fields.needed_size("moe_intermediate_size")?;
    let ffn = fields.needed_size("intermediate_size")?;
    let file = with_experts(fields, file, count, [8, width], normalize)?;
    let every = fields.size("decoder_sparse_step")?.unwrap_or(1);
    let blocks = without_experts(fields, file.layers, every)?;
    // Of other families: here a window is of all blocks or of none.
    fields.size("max_window_layers")?;
    let window = fields.window(Some(4096))?;
    let window = if fields.flag("use_sliding_window", false)? { window } else { None };
    Ok(ModelFile {
        ffn: Some(ffn),
        qk_norm: Some(QkNorm::Rms),
        qkv_bias: Some(bias),
        projection_bias: Some(bias),
        expert_every: (every > 1).then_some(every),
        blocks,
        window,
        ..file
    })
}

/// So many experts; `per_token` by default, each so wide.
fn with_experts(
    fields: &mut Fields,
    file: ModelFile,
    (field, count): (&str, usize),
    [per_token, width]: [usize; 2],
    normalize: bool,
) -> Result<ModelFile, SpecError> {
    if count == 0 {
        return Err(unexpressed(field, count, NO_MIXTURE));
    }
    let per_token = fields.size("num_experts_per_tok")?.unwrap_or(per_token);
    if normalize && per_token == 1 {
        let rule = "the weight of one expert, divided by itself, is always 1, and its router has no gradient";
        return Err(unexpressed("num_experts_per_tok", per_token, rule));
    }
    // Whether a forward pass returns the routers' logits and their loss.
    fields.flag("output_router_logits", false)?;
    Ok(ModelFile {
        ffn: Some(width),
        experts: Some(count),
        experts_per_token: Some(per_token),
        expert_ffn: Some(width),
        router: Some(RouterScores::Softmax),
        router_normalize: Some(normalize),
        balance_loss: Some(fields.number("router_aux_loss_coef")?.unwrap_or(0.001)),
        ..file
    })
}

/// The number of experts under the name of either version of the library.
fn counted(fields: &mut Fields) -> Result<(&'static str, usize), SpecError> {
    let newer = fields.size("num_local_experts")?;
    match (newer, fields.size("num_experts")?) {
        (Some(newer), Some(older)) if newer != older => {
            let rule = format!("num_local_experts means the same, and it is {newer}");
            Err(SpecError::invalid("num_experts", older, rule, "write the number of experts that are stored into both"))
        }
        (Some(count), _) => Ok(("num_local_experts", count)),
        (None, Some(count)) => Ok(("num_experts", count)),
        (None, None) => Ok(("num_experts", fields.needed_size("num_experts")?)),
    }
}

/// The blocks that have a perceptron although every so many blocks have experts.
fn without_experts(fields: &mut Fields, layers: usize, every: usize) -> Result<Vec<BlockTable>, SpecError> {
    if every == 0 || every > layers {
        return Err(unexpressed("decoder_sparse_step", every, NO_MIXTURE));
    }
    let listed = fields.sizes("mlp_only_layers")?;
    // The list may name blocks that are not there, or have a perceptron anyway.
    let has_experts = |block: &usize| *block < layers && (block + 1).is_multiple_of(every);
    let dense: BTreeSet<usize> = listed.into_iter().filter(has_experts).collect();
    if dense.len() == layers / every {
        return Err(unexpressed("mlp_only_layers", format!("{} blocks", dense.len()), NO_MIXTURE));
    }
    let table = || BlockTable::at(dense.iter().copied().collect(), [("experts", "0".to_owned())]);
    Ok(if dense.is_empty() { Vec::new() } else { vec![table()] })
}
