//! Decoders with layer norms and biases as a Hugging Face configuration describes them: GPT-2, GPT-NeoX and StarCoder2.

use crate::hf_fields::{Fields, cut, unexpressed};
use crate::hf_llama::{sized, with_heads};
use crate::{Activation, ModelFile, Norm, Positions, ResidualOrder, SpecError};

/// The names of GELU in its tanh form.
const GELU: [&str; 3] = ["gelu_new", "gelu_fast", "gelu_pytorch_tanh"];
/// The names of GELU in either form: by the error function, or as above.
const ANY_GELU: [&str; 4] = ["gelu", GELU[0], GELU[1], GELU[2]];

/// GPT-2: layer norm, learned positions, GELU, biases, tied head.
pub(crate) fn gpt2(fields: &mut Fields) -> Result<ModelFile, SpecError> {
    fields.check_architecture("GPT2LMHeadModel")?;
    fields.check_function("activation_function", "gelu_new", &GELU)?;
    fields.check_flag("scale_attn_weights", true, "scores are divided by the root of a head's width")?;
    fields.check_flag("scale_attn_by_inverse_layer_idx", false, "scores are scaled alike in every layer")?;
    fields.check_flag("add_cross_attention", false, "there is no encoder to attend to")?;
    let heads = fields.needed_size("n_head")?;
    Ok(ModelFile {
        name: fields.name()?,
        layers: fields.needed_size("n_layer")?,
        hidden: fields.needed_size("n_embd")?,
        heads,
        ffn: fields.size("n_inner")?,
        vocab: Some(fields.needed_size("vocab_size")?),
        seq_len: fields.needed_size("n_positions")?,
        tied_head: Some(fields.flag("tie_word_embeddings", true)?),
        biases: true,
        dropout: fields.one_dropout(&[("embd_pdrop", 0.1), ("attn_pdrop", 0.1), ("resid_pdrop", 0.1)])?,
        norm: Norm::Layer,
        norm_epsilon: fields.number("layer_norm_epsilon")?.unwrap_or(1e-5),
        positions: Positions::Learned,
        activation: Activation::Gelu,
        causal: Some(true),
        ..ModelFile::default()
    })
}

/// GPT-NeoX: layer norm, rotary positions on a part of each head, GELU, biases, attention and perceptron beside each other.
pub(crate) fn gpt_neox(fields: &mut Fields) -> Result<ModelFile, SpecError> {
    fields.check_architecture("GPTNeoXForCausalLM")?;
    let function = gelu(fields, "gelu")?;
    // Of the first models, and read by no version of the library.
    for field in ["attention_probs_dropout_prob", "hidden_dropout_prob"] {
        if let Some(rate) = fields.number(field)?.filter(|rate| *rate != 0.0) {
            return Err(unexpressed(field, rate, "the library reads attention_dropout and hidden_dropout"));
        }
    }
    let parallel = fields.flag("use_parallel_residual", true)?;
    let older = (fields.number("rotary_emb_base")?, fields.number("rotary_pct")?);
    let file = layered(fields, function)?;
    let file = ModelFile {
        ffn: Some(fields.needed_size("intermediate_size")?),
        tied_head: Some(fields.flag("tie_word_embeddings", false)?),
        dropout: fields.one_dropout(&[("hidden_dropout", 0.0), ("attention_dropout", 0.0)])?,
        norm_epsilon: fields.number("layer_norm_eps")?.unwrap_or(1e-5),
        residual: parallel.then_some(ResidualOrder::Parallel),
        ..file
    };
    // Of queries, keys, values and the projection.
    let biases = (!fields.flag("attention_bias", true)?).then_some(false);
    let file = ModelFile { qkv_bias: biases, projection_bias: biases, ..file };
    let turning = fields.rotary()?;
    turning.or(older).in_part(file, 0.25)
}

/// StarCoder2: layer norm, rotary positions, GELU, biases, grouped keys and values, and attention that may be bounded.
pub(crate) fn starcoder2(fields: &mut Fields) -> Result<ModelFile, SpecError> {
    fields.check_architecture("Starcoder2ForCausalLM")?;
    let function = gelu(fields, "gelu_pytorch_tanh")?;
    fields.check_flag("scale_attn_weights", true, "scores are divided by the root of a head's width")?;
    for (field, only) in [("mlp_type", "default"), ("norm_type", "layer_norm")] {
        if let Some(other) = fields.text(field)?.filter(|text| text != only) {
            return Err(unexpressed(field, cut(&other), format!("the library has {only}")));
        }
    }
    // How scores are rounded, and an epsilon that no version of the library reads.
    ["attention_softmax_in_fp32", "scale_attention_softmax_in_fp32", "layer_norm_epsilon"]
        .into_iter()
        .for_each(|field| drop(fields.take(field)));
    let file = layered(fields, function)?;
    let file = with_heads(fields, file, Some(2))?;
    let file = ModelFile {
        ffn: Some(fields.needed_size("intermediate_size")?),
        tied_head: Some(fields.flag("tie_word_embeddings", true)?),
        biases: fields.flag("use_bias", true)?,
        dropout: fields.one_dropout(&[
            ("residual_dropout", 0.0),
            ("embedding_dropout", 0.0),
            ("attention_dropout", 0.0),
        ])?,
        norm_epsilon: fields.number("norm_epsilon")?.unwrap_or(1e-5),
        window: fields.window(None)?,
        ..file
    };
    fields.rotary()?.whole(file)
}

/// GELU in one of its forms.
fn gelu(fields: &mut Fields, default: &str) -> Result<Activation, SpecError> {
    let name = fields.check_function("hidden_act", default, &ANY_GELU)?;
    Ok(if name == ANY_GELU[0] { Activation::GeluErf } else { Activation::Gelu })
}

/// What GPT-NeoX and StarCoder2 share.
fn layered(fields: &mut Fields, activation: Activation) -> Result<ModelFile, SpecError> {
    Ok(ModelFile { biases: true, norm: Norm::Layer, activation, ..sized(fields)? })
}
