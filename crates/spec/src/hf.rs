//! A model as a Hugging Face configuration (`config.json`) describes it.
//!
//! Only what this crate's [`Model`] computes exactly is accepted. A field that would change the computation is refused
//! by its name; so is a field that is not known, since it may. Fields and defaults are those of the transformers library,
//! version 4 and 5 (`GPT2Config`, `GPTNeoXConfig`, `LlamaConfig`, `MistralConfig`, `MixtralConfig`, `Olmo2Config`,
//! `OlmoeConfig`, `Qwen3MoeConfig`, `DeepseekV3Config`).

use crate::choices::QkNorm;
use crate::hf_deepseek::deepseek_v3;
use crate::hf_experts::{mixtral, olmoe, qwen3_moe};
use crate::hf_fields::{Fields, cut, unexpressed};
use crate::{Activation, Model, ModelFile, Norm, NormPlace, Positions, SpecError};

impl Model {
    /// Reads the text of a `config.json` with `model_type` `deepseek_v3`, `gpt2`, `gpt_neox`, `llama`, `mistral`,
    /// `mixtral`, `olmo2`, `olmoe` or `qwen3_moe`, replaces fields of the model file by `overrides` (field, value) in their order, and
    /// validates the result. Experts drop no token, unless `overrides` say a capacity.
    ///
    /// # Errors
    /// Text that is no JSON object, a missing field, a field of another type, a field that changes the computation in a
    /// way that a [`Model`] cannot express, an unknown field; those of [`ModelFile::set`] and [`ModelFile::validate`].
    pub fn from_hugging_face(text: &str, overrides: &[(String, String)]) -> Result<Self, SpecError> {
        let mut fields = Fields::new(text)?;
        let Described { mut file, window } = described(&mut fields)?;
        fields.check_all_known()?;
        overrides.iter().try_for_each(|(field, value)| file.set(field, value))?;
        let seq_len = file.seq_len;
        if let Some(window) = window.filter(|window| *window < seq_len) {
            let rule = format!("attention here reaches back over whole sequences, and they have {seq_len} tokens");
            let remedy = format!("use `model.seq_len`={window} or less");
            return Err(SpecError::invalid("sliding_window", window, rule, remedy));
        }
        file.validate()
    }
}

/// A model, and how far back its attention reaches where that is bounded.
pub(crate) struct Described {
    pub file: ModelFile,
    pub window: Option<usize>,
}

/// The families that are read.
const KNOWN: [&str; 9] =
    ["deepseek_v3", "gpt2", "gpt_neox", "llama", "mistral", "mixtral", "olmo2", "olmoe", "qwen3_moe"];

fn described(fields: &mut Fields) -> Result<Described, SpecError> {
    let Some(family) = fields.text("model_type")? else {
        let rule = "it says which fields the configuration has";
        return Err(SpecError::invalid("model_type", "none", rule, "give a configuration of one model"));
    };
    let unbounded = |file| Described { file, window: None };
    match family.as_str() {
        "deepseek_v3" => deepseek_v3(fields),
        "gpt2" => gpt2(fields).map(unbounded),
        "gpt_neox" => gpt_neox(fields).map(unbounded),
        "llama" => llama(fields, "LlamaForCausalLM").map(unbounded),
        "mistral" => mistral(fields),
        "mixtral" => mixtral(fields),
        "olmo2" => olmo2(fields).map(unbounded),
        "olmoe" => olmoe(fields).map(unbounded),
        "qwen3_moe" => qwen3_moe(fields),
        "qwen2" => {
            let rule = "Qwen2 has biases on queries, keys and values only; here all linear layers have them, or none";
            Err(SpecError::invalid("model_type", "qwen2", rule, "use a model without those biases, e.g. llama"))
        }
        "vit" => {
            let rule = "ViT has a class token and a classifier; a model of patches here predicts patches";
            Err(SpecError::invalid("model_type", "vit", rule, "describe one in TOML, with patch_values"))
        }
        _ => {
            Err(SpecError::Unknown { what: "model_type", name: cut(&family), known: KNOWN.map(str::to_owned).to_vec() })
        }
    }
}

/// GPT-2: layer norm, learned positions, GELU, biases, tied head.
fn gpt2(fields: &mut Fields) -> Result<ModelFile, SpecError> {
    fields.check_architecture("GPT2LMHeadModel")?;
    fields.check_function("activation_function", "gelu_new", &["gelu_new", "gelu_pytorch_tanh"])?;
    fields.check_flag("scale_attn_weights", true, "scores are divided by the root of a head's width")?;
    fields.check_flag("scale_attn_by_inverse_layer_idx", false, "scores are scaled alike in every layer")?;
    fields.check_flag("add_cross_attention", false, "there is no encoder to attend to")?;
    let heads = fields.needed_size("n_head")?;
    Ok(ModelFile {
        name: fields.name()?,
        layers: fields.needed_size("n_layer")?,
        hidden: fields.needed_size("n_embd")?,
        heads,
        kv_heads: None,
        ffn: fields.size("n_inner")?,
        vocab: Some(fields.needed_size("vocab_size")?),
        seq_len: fields.needed_size("n_positions")?,
        patch_values: None,
        tied_head: Some(fields.flag("tie_word_embeddings", true)?),
        biases: true,
        dropout: fields.one_dropout(&[("embd_pdrop", 0.1), ("attn_pdrop", 0.1), ("resid_pdrop", 0.1)])?,
        norm: Norm::Layer,
        norm_epsilon: fields.number("layer_norm_epsilon")?.unwrap_or(1e-5),
        positions: Positions::Learned,
        rotary_base: None,
        activation: Activation::Gelu,
        causal: Some(true),
        ..ModelFile::default()
    })
}

/// GPT-NeoX without its parallel residual: layer norm, rotary positions, GELU, biases.
fn gpt_neox(fields: &mut Fields) -> Result<ModelFile, SpecError> {
    fields.check_architecture("GPTNeoXForCausalLM")?;
    fields.check_function("hidden_act", "gelu", &["gelu_new", "gelu_pytorch_tanh"])?;
    let parallel = "the perceptron reads what attention has added to; NeoX's default reads beside it";
    if fields.flag("use_parallel_residual", true)? {
        return Err(unexpressed("use_parallel_residual", true, parallel));
    }
    if !fields.flag("attention_bias", true)? {
        return Err(unexpressed("attention_bias", false, "all linear layers have biases, or none has"));
    }
    let part = fields.rotary_part()?.unwrap_or(0.25);
    if part != 1.0 {
        return Err(unexpressed("rotary_pct", part, "rotary positions turn whole heads"));
    }
    let base = fields.number("rotary_emb_base")?;
    let rotary_base = fields.rotary_base()?.or(base);
    Ok(ModelFile {
        name: fields.name()?,
        layers: fields.needed_size("num_hidden_layers")?,
        hidden: fields.needed_size("hidden_size")?,
        heads: fields.needed_size("num_attention_heads")?,
        kv_heads: None,
        ffn: Some(fields.needed_size("intermediate_size")?),
        vocab: Some(fields.needed_size("vocab_size")?),
        seq_len: fields.needed_size("max_position_embeddings")?,
        patch_values: None,
        tied_head: Some(fields.flag("tie_word_embeddings", false)?),
        biases: true,
        dropout: fields.one_dropout(&[("hidden_dropout", 0.0), ("attention_dropout", 0.0)])?,
        norm: Norm::Layer,
        norm_epsilon: fields.number("layer_norm_eps")?.unwrap_or(1e-5),
        positions: Positions::Rotary,
        rotary_base,
        activation: Activation::Gelu,
        causal: Some(true),
        ..ModelFile::default()
    })
}

/// Llama: RMS norm, rotary positions, SwiGLU, grouped keys and values.
fn llama(fields: &mut Fields, architecture: &str) -> Result<ModelFile, SpecError> {
    let file = rotary_decoder(fields, architecture)?;
    let (attention, perceptron) = (fields.flag("attention_bias", false)?, fields.flag("mlp_bias", false)?);
    if attention != perceptron {
        let rule = format!("all linear layers have biases, or none has, and mlp_bias is {perceptron}");
        return Err(unexpressed("attention_bias", attention, rule));
    }
    let file = with_shared_width(fields, file)?;
    Ok(ModelFile { biases: attention, ffn: Some(fields.needed_size("intermediate_size")?), ..file })
}

/// Heads of keys and values, by default all; heads share the width of the residual stream.
pub(crate) fn with_shared_width(fields: &mut Fields, file: ModelFile) -> Result<ModelFile, SpecError> {
    let (hidden, heads) = (file.hidden, file.heads);
    if let Some(width) = fields.size("head_dim")?.filter(|width| width.checked_mul(heads) != Some(hidden)) {
        let rule = format!("heads share the residual stream: {hidden} / {heads} numbers each");
        return Err(unexpressed("head_dim", width, rule));
    }
    Ok(ModelFile { kv_heads: fields.size("num_key_value_heads")?, ..file })
}

/// OLMo 2: a Llama whose norms stand after attention and perceptron, and that norms all queries together, and all keys.
fn olmo2(fields: &mut Fields) -> Result<ModelFile, SpecError> {
    let file = normed_over_all_heads(fields, "Olmo2ForCausalLM")?;
    let ffn = Some(fields.needed_size("intermediate_size")?);
    Ok(ModelFile { ffn, norm_place: Some(NormPlace::After), ..file })
}

/// What OLMo 2 and OLMoE share.
pub(crate) fn normed_over_all_heads(fields: &mut Fields, architecture: &str) -> Result<ModelFile, SpecError> {
    let norm_epsilon = fields.number("rms_norm_eps")?.unwrap_or(1e-5);
    let file = rotary_decoder(fields, architecture)?;
    let file = with_shared_width(fields, file)?;
    let bias = Some(fields.flag("attention_bias", false)?);
    Ok(ModelFile { norm_epsilon, qk_norm: Some(QkNorm::RmsAll), qkv_bias: bias, projection_bias: bias, ..file })
}

/// What Llama and its kin share: RMS norms, rotary positions, SwiGLU; no biases, no dropout.
pub(crate) fn rotary_decoder(fields: &mut Fields, architecture: &str) -> Result<ModelFile, SpecError> {
    fields.check_architecture(architecture)?;
    fields.check_function("hidden_act", "silu", &["silu", "swish"])?;
    let dropout = fields.number("attention_dropout")?.unwrap_or(0.0);
    if dropout != 0.0 {
        let rule = "dropout has one rate, also after the embedding and on the outputs of a block";
        return Err(unexpressed("attention_dropout", dropout, rule));
    }
    if let Some(part) = fields.number("partial_rotary_factor")?.filter(|part| *part != 1.0) {
        return Err(unexpressed("partial_rotary_factor", part, "rotary positions turn whole heads"));
    }
    Ok(ModelFile {
        name: fields.name()?,
        layers: fields.needed_size("num_hidden_layers")?,
        hidden: fields.needed_size("hidden_size")?,
        heads: fields.needed_size("num_attention_heads")?,
        vocab: Some(fields.needed_size("vocab_size")?),
        seq_len: fields.needed_size("max_position_embeddings")?,
        tied_head: Some(fields.flag("tie_word_embeddings", false)?),
        biases: false,
        norm: Norm::Rms,
        norm_epsilon: fields.number("rms_norm_eps")?.unwrap_or(1e-6),
        positions: Positions::Rotary,
        rotary_base: fields.rotary_base()?,
        activation: Activation::Swiglu,
        causal: Some(true),
        ..ModelFile::default()
    })
}

/// Mistral: a Llama whose attention may be bounded, by default to 4,096 positions, and has 8 keys by default.
fn mistral(fields: &mut Fields) -> Result<Described, SpecError> {
    let window = if fields.names("sliding_window") { fields.size("sliding_window")? } else { Some(4096) };
    let file = llama(fields, "MistralForCausalLM")?;
    Ok(Described { file: ModelFile { kv_heads: file.kv_heads.or(Some(8)), ..file }, window })
}
