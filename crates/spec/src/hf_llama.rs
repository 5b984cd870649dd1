//! Llama and its kin as a Hugging Face configuration describes them: RMS norms, rotary positions, SwiGLU. Here are Llama, Mistral,
//! OLMo 2 and Phi-3.

use crate::choices::QkNorm;
use crate::hf_fields::{Fields, unexpressed};
use crate::{Activation, ModelFile, Norm, NormPlace, Positions, SpecError};

/// Llama: grouped keys and values, and biases of attention or of perceptrons.
pub(crate) fn llama(fields: &mut Fields) -> Result<ModelFile, SpecError> {
    fields.check_flag("rope_interleaved", false, "halves of a head turn together")?;
    let file = rotary_decoder(fields, "LlamaForCausalLM")?;
    let file = with_heads(fields, file, None)?;
    let attention = fields.flag("attention_bias", false)?;
    let perceptron = fields.flag("mlp_bias", false)?;
    let others = (perceptron != attention).then_some(perceptron);
    let ffn = Some(fields.needed_size("intermediate_size")?);
    Ok(ModelFile { biases: attention, up_bias: others, down_bias: others, ffn, ..file })
}

/// Mistral: a Llama whose attention may be bounded, by default to 4,096 positions, and has 8 keys by default.
pub(crate) fn mistral(fields: &mut Fields) -> Result<ModelFile, SpecError> {
    let file = rotary_decoder(fields, "MistralForCausalLM")?;
    let file = with_heads(fields, file, Some(8))?;
    let ffn = Some(fields.needed_size("intermediate_size")?);
    Ok(ModelFile { ffn, window: fields.window(Some(4096))?, ..file })
}

/// OLMo 2: a Llama whose norms stand after attention and perceptron, and that norms all queries together, and all keys.
pub(crate) fn olmo2(fields: &mut Fields) -> Result<ModelFile, SpecError> {
    let file = normed_over_all_heads(fields, "Olmo2ForCausalLM")?;
    let ffn = Some(fields.needed_size("intermediate_size")?);
    Ok(ModelFile { ffn, norm_place: Some(NormPlace::After), ..file })
}

/// What OLMo 2 and OLMoE share.
pub(crate) fn normed_over_all_heads(fields: &mut Fields, architecture: &str) -> Result<ModelFile, SpecError> {
    let norm_epsilon = fields.number("rms_norm_eps")?.unwrap_or(1e-5);
    let file = rotary_decoder(fields, architecture)?;
    if let Some(width) = fields.size("head_dim")?.filter(|width| !is_shared(&file, *width)) {
        let rule = format!("heads share the residual stream: {} / {} numbers each", file.hidden, file.heads);
        return Err(unexpressed("head_dim", width, rule));
    }
    let file = with_heads(fields, file, None)?;
    let bias = Some(fields.flag("attention_bias", false)?);
    Ok(ModelFile { norm_epsilon, qk_norm: Some(QkNorm::RmsAll), qkv_bias: bias, projection_bias: bias, ..file })
}

/// Phi-3 of short sequences: a Llama that may turn a part of each head only, and whose attention may be bounded.
pub(crate) fn phi3(fields: &mut Fields) -> Result<ModelFile, SpecError> {
    // Which code of the hub computes the same, and where frequencies of long sequences begin, which are refused.
    ["auto_map", "original_max_position_embeddings"].into_iter().for_each(|field| drop(fields.take(field)));
    for field in ["embd_pdrop", "resid_pdrop"] {
        if let Some(rate) = fields.number(field)?.filter(|rate| *rate != 0.0) {
            return Err(unexpressed(field, rate, "dropout has one rate, also on attention probabilities"));
        }
    }
    fields.check_flag("attention_bias", false, "linear layers of Phi-3 have no biases")?;
    let norm_epsilon = fields.number("rms_norm_eps")?.unwrap_or(1e-5);
    let file = decoder(fields, "Phi3ForCausalLM")?;
    let file = with_heads(fields, file, None)?;
    let ffn = Some(fields.needed_size("intermediate_size")?);
    let file = ModelFile { ffn, norm_epsilon, window: fields.window(None)?, ..file };
    let file = fields.rotary()?.in_part(file, 1.0)?;
    match file.rotary_scaling {
        Some(rule) => Err(unexpressed("rope_scaling", rule, "Phi-3 has no such scaling in the library")),
        None => Ok(file),
    }
}

/// Whether heads of this width share the residual stream.
fn is_shared(file: &ModelFile, width: usize) -> bool {
    width.checked_mul(file.heads) == Some(file.hidden)
}

/// Heads of keys and values, and the width of a head. Where nobody says how many keys there are, they are `default`; null is
/// as many as heads.
pub(crate) fn with_heads(fields: &mut Fields, file: ModelFile, default: Option<usize>) -> Result<ModelFile, SpecError> {
    let default = default.filter(|_| !fields.names("num_key_value_heads"));
    let kv_heads = fields.size("num_key_value_heads")?.or(default);
    // A width that follows from the others is none of its own.
    let head_dim = fields.size("head_dim")?.filter(|width| !is_shared(&file, *width)).or(file.head_dim);
    Ok(ModelFile { kv_heads, head_dim, ..file })
}

/// What all have whose heads turn whole.
pub(crate) fn rotary_decoder(fields: &mut Fields, architecture: &str) -> Result<ModelFile, SpecError> {
    let file = decoder(fields, architecture)?;
    fields.rotary()?.whole(file)
}

/// RMS norms, rotary positions that are still to be read, SwiGLU; no biases, no dropout.
fn decoder(fields: &mut Fields, architecture: &str) -> Result<ModelFile, SpecError> {
    fields.check_architecture(architecture)?;
    fields.check_function("hidden_act", "silu", &["silu", "swish"])?;
    check_no_dropout(fields)?;
    Ok(ModelFile {
        tied_head: Some(fields.flag("tie_word_embeddings", false)?),
        biases: false,
        norm: Norm::Rms,
        norm_epsilon: fields.number("rms_norm_eps")?.unwrap_or(1e-6),
        activation: Activation::Swiglu,
        ..sized(fields)?
    })
}

/// Refuses dropout on attention probabilities alone.
pub(crate) fn check_no_dropout(fields: &mut Fields) -> Result<(), SpecError> {
    match fields.number("attention_dropout")?.unwrap_or(0.0) {
        0.0 => Ok(()),
        dropout => {
            let rule = "dropout has one rate, also after the embedding and on the outputs of a block";
            Err(unexpressed("attention_dropout", dropout, rule))
        }
    }
}

/// The width of a head of a family that has a usual one, where nobody says it.
pub(crate) fn default_width(fields: &Fields, file: &ModelFile, usual: usize) -> Option<usize> {
    (!fields.names("head_dim") && !is_shared(file, usual)).then_some(usual)
}

/// The sizes that all but GPT-2 call alike, of a decoder with rotary positions.
pub(crate) fn sized(fields: &mut Fields) -> Result<ModelFile, SpecError> {
    Ok(ModelFile {
        name: fields.name()?,
        layers: fields.needed_size("num_hidden_layers")?,
        hidden: fields.needed_size("hidden_size")?,
        heads: fields.needed_size("num_attention_heads")?,
        vocab: Some(fields.needed_size("vocab_size")?),
        seq_len: fields.needed_size("max_position_embeddings")?,
        positions: Positions::Rotary,
        causal: Some(true),
        ..ModelFile::default()
    })
}
