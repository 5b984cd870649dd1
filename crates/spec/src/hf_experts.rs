//! Mixtures of experts as a Hugging Face configuration describes them: Mixtral, OLMoE and Qwen3-MoE.
//!
//! Their experts never drop a token. The library's balance loss (`load_balancing_loss_func` of `modeling_mixtral.py`, the same in
//! OLMoE and Qwen3-MoE) is `router_aux_loss_coef` times the number of experts times the sum over experts of `F P`: `F` is the part
//! of tokens that choose an expert, with any of their `k` choices, `P` its mean probability, both over the tokens of all blocks
//! together. With equal loads that is `k` times the coefficient, once a model. The loss here has `f = F experts / k` and is summed
//! over blocks: with equal loads the factor, once a block. So `balance_loss = router_aux_loss_coef k / blocks with experts` has the
//! library's strength; where loads differ from block to block the library's joint one sees less of it.

use std::collections::BTreeSet;

use crate::choices::QkNorm;
use crate::hf_fields::{Fields, unexpressed};
use crate::hf_llama::{normed_over_all_heads, rotary_decoder, with_heads};
use crate::model_file::BlockTable;
use crate::{BalanceScope, Model, ModelFile, RouterScores, SpecError};

/// Families whose balance loss joins all blocks. DeepSeek's `aux_loss_alpha` is per block, as the factor here.
pub(crate) const JOINS_BLOCKS: [&str; 3] = ["mixtral", "olmoe", "qwen3_moe"];

/// Factor of the balance loss here that has the strength of a coefficient of the library in a model.
pub(crate) fn per_block(coefficient: f64, model: &Model) -> f64 {
    model.balanced().map_or(coefficient, |(chosen, blocks)| coefficient * chosen / blocks)
}

impl Model {
    /// Coefficient of the transformers library (`router_aux_loss_coef` of Mixtral, OLMoE and Qwen3-MoE) of the strength of this
    /// model's balance loss: `balance_loss` times the blocks with experts, divided by the experts that a token chooses; 0 where
    /// nothing is balanced. `None` without experts; of blocks that differ ([`Self::balance_losses`]) the first with experts counts.
    pub fn router_aux_loss_coef(&self) -> Option<f64> {
        let factor = *self.balance_losses().first()?;
        let (chosen, blocks) = self.balanced()?;
        let exact = factor * blocks / chosen;
        // A short decimal that is read as the same factor, else all digits.
        let short = format!("{exact:.12e}").parse().unwrap_or(exact);
        Some(if per_block(short, self) == factor { short } else { exact })
    }

    /// Factors of the balance loss of all blocks with experts, 0 of those that balance nothing.
    pub fn balance_losses(&self) -> Vec<f64> {
        let routers = self.blocks.iter().filter_map(|block| Some(block.feed_forward.experts()?.router));
        routers.map(|router| if router.balance == BalanceScope::None { 0.0 } else { router.balance_loss }).collect()
    }

    /// Experts that a token chooses in the first block with experts, and the number of blocks with experts.
    fn balanced(&self) -> Option<(f64, f64)> {
        let first = self.blocks.kinds().iter().find_map(|block| block.feed_forward.experts())?;
        let blocks = self.blocks.iter().filter(|block| block.feed_forward.experts().is_some()).count();
        Some((first.per_token as f64, blocks as f64))
    }
}

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
