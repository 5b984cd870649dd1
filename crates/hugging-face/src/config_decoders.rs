//! The `config.json` of decoders without experts that were not imported, or that changed since.

use quadrille_spec::{Activation, Attention, Classic, Model, ResidualOrder, Rotary, RotaryScaling};
use serde_json::{Value, json};

/// The configuration of a GPT-2.
pub(crate) fn gpt2(model: &Model) -> Value {
    let model = &model.classic();
    json!({
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_layer": model.layers,
        "n_embd": model.hidden,
        "n_head": model.heads,
        "n_inner": model.ffn,
        "n_positions": model.seq_len,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": model.norm_epsilon,
        "embd_pdrop": model.dropout,
        "attn_pdrop": model.dropout,
        "resid_pdrop": model.dropout,
        "scale_attn_weights": true,
        "scale_attn_by_inverse_layer_idx": false,
    })
}

/// The configuration of a GPT-NeoX.
pub(crate) fn gpt_neox(model: &Model) -> Value {
    let classic = model.classic();
    let block = model.blocks.first();
    let mut config = decoder(model, "gpt_neox", "GPTNeoXForCausalLM");
    config["hidden_act"] = gelu(&classic).into();
    config["layer_norm_eps"] = classic.norm_epsilon.into();
    config["hidden_dropout"] = classic.dropout.into();
    config["attention_dropout"] = classic.dropout.into();
    config["attention_bias"] = block.attention.qkv_bias.into();
    config["use_parallel_residual"] = (block.residual.order == ResidualOrder::Parallel).into();
    config
}

/// The configuration of a StarCoder2.
pub(crate) fn starcoder2(model: &Model) -> Value {
    let classic = model.classic();
    let mut config = decoder(model, "starcoder2", "Starcoder2ForCausalLM");
    config["hidden_act"] = gelu(&classic).into();
    config["num_key_value_heads"] = classic.kv_heads.into();
    config["head_dim"] = model.blocks.first().attention.head_dim.into();
    config["norm_epsilon"] = classic.norm_epsilon.into();
    config["use_bias"] = classic.biases.into();
    config["residual_dropout"] = classic.dropout.into();
    config["embedding_dropout"] = classic.dropout.into();
    config["attention_dropout"] = classic.dropout.into();
    config["sliding_window"] = model.blocks.first().attention.window.into();
    config
}

/// The configuration of a Llama.
pub(crate) fn llama(model: &Model) -> Value {
    let mut config = rotary_decoder(model, "llama", "LlamaForCausalLM");
    config["attention_bias"] = model.blocks.first().attention.qkv_bias.into();
    config["mlp_bias"] = model.classic().biases.into();
    config
}

/// The configuration of a Mistral.
pub(crate) fn mistral(model: &Model) -> Value {
    let mut config = rotary_decoder(model, "mistral", "MistralForCausalLM");
    config["sliding_window"] = model.blocks.first().attention.window.into();
    config
}

/// The configuration of an OLMo 2.
pub(crate) fn olmo2(model: &Model) -> Value {
    let mut config = rotary_decoder(model, "olmo2", "Olmo2ForCausalLM");
    config["attention_bias"] = model.blocks.first().attention.qkv_bias.into();
    config
}

/// The configuration of a Phi-3.
pub(crate) fn phi3(model: &Model) -> Value {
    let attention = &model.blocks.first().attention;
    let mut config = rotary_decoder(model, "phi3", "Phi3ForCausalLM");
    config["sliding_window"] = attention.window.into();
    config["pad_token_id"] = Value::Null;
    config
}

/// The configuration of a Qwen2.
pub(crate) fn qwen2(model: &Model) -> Value {
    with_windows(rotary_decoder(model, "qwen2", "Qwen2ForCausalLM"), model)
}

/// The configuration of a Qwen3.
pub(crate) fn qwen3(model: &Model) -> Value {
    let mut config = rotary_decoder(model, "qwen3", "Qwen3ForCausalLM");
    config["attention_bias"] = model.blocks.first().attention.qkv_bias.into();
    with_windows(config, model)
}

/// What Llama and its kin share.
pub(crate) fn rotary_decoder(model: &Model, model_type: &str, architecture: &str) -> Value {
    let classic = model.classic();
    let attention = &model.blocks.first().attention;
    let mut config = decoder(model, model_type, architecture);
    config["num_key_value_heads"] = classic.kv_heads.into();
    config["head_dim"] = attention.head_dim.into();
    config["hidden_act"] = "silu".into();
    config["rms_norm_eps"] = classic.norm_epsilon.into();
    config["attention_dropout"] = 0.0.into();
    config
}

/// What all share but GPT-2.
fn decoder(model: &Model, model_type: &str, architecture: &str) -> Value {
    let classic = model.classic();
    json!({
        "model_type": model_type,
        "architectures": [architecture],
        "num_hidden_layers": classic.layers,
        "hidden_size": classic.hidden,
        "num_attention_heads": classic.heads,
        "intermediate_size": classic.ffn,
        "max_position_embeddings": classic.seq_len,
    })
}

/// The name of GELU in its form.
fn gelu(model: &Classic) -> &'static str {
    if model.activation == Activation::GeluErf { "gelu" } else { "gelu_pytorch_tanh" }
}

/// How frequencies are scaled, if the library knows a name for it that decoders here have.
pub(crate) fn scaling(rotary: &Rotary) -> Option<Value> {
    match rotary.scaling {
        RotaryScaling::None | RotaryScaling::Yarn { .. } => None,
        RotaryScaling::Linear { factor } => Some(json!({"rope_type": "linear", "factor": factor})),
        RotaryScaling::Llama3 { factor, low, high, positions } => Some(json!({
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": low,
            "high_freq_factor": high,
            "original_max_position_embeddings": positions,
        })),
    }
}

/// The part of a head that turns: a number of which the library makes as many columns again.
pub(crate) fn rotary_part(attention: &Attention) -> f64 {
    let width = attention.head_dim as f64;
    let columns = attention.rotary.map_or(attention.head_dim, |rotary| rotary.columns);
    let part = columns as f64 / width;
    if (width * part) as usize == columns { part } else { (columns as f64 + 0.5) / width }
}

/// The windows of Qwen's blocks: by block, and, for versions that do not read this, from which on.
fn with_windows(mut config: Value, model: &Model) -> Value {
    let window = |block: usize| model.blocks[block].attention.window;
    let Some(first) = (0..model.layers()).find(|block| window(*block).is_some()) else { return config };
    let kind = |block| if window(block).is_some() { "sliding_attention" } else { "full_attention" };
    config["use_sliding_window"] = true.into();
    config["sliding_window"] = window(first).into();
    config["max_window_layers"] = first.into();
    config["layer_types"] = (0..model.layers()).map(kind).collect();
    config
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoredType;
    use crate::config::fresh;
    use crate::training::computed;

    /// A model's file with these lines; one replaces the usual one of its field.
    fn model(lines: &str) -> Model {
        let usual = "name = \"m\"\nlayers = 3\nhidden = 24\nheads = 2\nkv_heads = 1\nvocab = 11\nseq_len = 7\n\
                     tied_head = false\nbiases = false\nnorm = \"rms\"\npositions = \"rotary\"\n\
                     activation = \"swiglu\"\nffn = 10\n";
        let named = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
        let kept = usual.lines().filter(|line| !lines.lines().any(|other| named(other) == named(line)));
        // Tables come last.
        let text: Vec<&str> = kept.chain(lines.lines()).collect();
        Model::from_toml(&text.join("\n"), &[]).unwrap()
    }

    const LAYERED: &str = "norm = \"layer\"\nactivation = \"gelu\"\nbiases = true\n";

    #[test]
    fn a_configuration_says_the_model_again() {
        let layered = |lines: &str| format!("{LAYERED}{lines}");
        let llama3 = "rotary_scaling = \"llama3\"\nrotary_factor = 8.0\nrotary_low = 1.5\nrotary_high = 3.0\n\
                      rotary_positions = 64";
        for (lines, family) in [
            (String::new(), "llama"),
            ("head_dim = 8".to_owned(), "llama"),
            ("up_bias = true\ndown_bias = true".to_owned(), "llama"),
            ("qkv_bias = true\nprojection_bias = true".to_owned(), "llama"),
            ("tied_head = true\nrotary_scaling = \"linear\"\nrotary_factor = 2.0".to_owned(), "llama"),
            (llama3.to_owned(), "llama"),
            ("window = 3\nhead_dim = 8".to_owned(), "mistral"),
            ("qkv_bias = true\nhead_dim = 8".to_owned(), "qwen2"),
            (format!("qkv_bias = true\nwindow = 3\n{llama3}"), "qwen2"),
            ("qkv_bias = true\n[[blocks]]\nat = [0, 2]\nwindow = 3".to_owned(), "qwen2"),
            ("qk_norm = \"rms\"\nhead_dim = 8".to_owned(), "qwen3"),
            ("qk_norm = \"rms\"\nqkv_bias = true\nprojection_bias = true\nwindow = 3".to_owned(), "qwen3"),
            ("qk_norm = \"rms\"\n[[blocks]]\nfrom = 1\nevery = 1\nwindow = 3".to_owned(), "qwen3"),
            ("rotary_dim = 10\nwindow = 3".to_owned(), "phi3"),
            ("rotary_dim = 4\nhead_dim = 8".to_owned(), "phi3"),
            (layered("kv_heads = 2\nrotary_dim = 10"), "gpt_neox"),
            (layered("kv_heads = 2\nresidual = \"parallel\"\ndropout = 0.1"), "gpt_neox"),
            (layered("kv_heads = 2\nqkv_bias = false\nprojection_bias = false"), "gpt_neox"),
            (layered("kv_heads = 2\nactivation = \"gelu-erf\"").replacen("activation = \"gelu\"\n", "", 1), "gpt_neox"),
            (layered("activation = \"gelu-erf\"").replacen("activation = \"gelu\"\n", "", 1), "starcoder2"),
            (layered("dropout = 0.1\nhead_dim = 8"), "starcoder2"),
            (layered("kv_heads = 2\nwindow = 3"), "starcoder2"),
            (layered(llama3), "starcoder2"),
            ("norm = \"layer\"\nactivation = \"gelu\"\nkv_heads = 2".to_owned(), "starcoder2"),
        ] {
            let model = model(&lines);
            let (found, config) = fresh(&model, StoredType::F32).unwrap();
            assert_eq!(found.model_type(), family, "{lines}");
            let read = Model::from_hugging_face(&config.to_string(), &[]).unwrap();
            assert_eq!((computed(&read), read.dropout), (computed(&model), model.dropout), "{lines}");
        }
    }

    #[test]
    fn what_no_decoder_of_the_library_computes_is_refused_by_its_field() {
        let layered = |lines: &str| format!("{LAYERED}{lines}");
        for (lines, starts) in [
            ("window = 3\nup_bias = true\ndown_bias = true".to_owned(), "biases = true: "),
            ("down_bias = true".to_owned(), "down_bias = true: "),
            ("projection_bias = true".to_owned(), "projection_bias = true: "),
            ("qkv_bias = true\nup_bias = true\ndown_bias = true".to_owned(), "biases = true: "),
            ("[[blocks]]\nat = [1]\nwindow = 3".to_owned(), "blocks = 2 kinds: "),
            ("[[blocks]]\nat = [1]\nnorm_epsilon = 0.5".to_owned(), "blocks = 2 kinds: "),
            ("activation = \"gelu-erf\"".to_owned(), "activation = gelu-erf: "),
            ("attention_cap = 30.0".to_owned(), "attention_cap = 30.0: "),
            ("score_scale = 2.0".to_owned(), "score_scale = 2.0: "),
            ("norm_offset = true".to_owned(), "norm_offset = true: "),
            ("norm_place = \"both\"".to_owned(), "norm_place = both: "),
            ("residual = \"parallel\"".to_owned(), "residual = parallel: "),
            ("positions = \"none\"".to_owned(), "positions = none: "),
            ("rotary_scaling = \"yarn\"\nrotary_factor = 4.0".to_owned(), "rotary_scaling = yarn: "),
            (
                "rotary_dim = 4\nrotary_scaling = \"linear\"\nrotary_factor = 4.0".to_owned(),
                "model_type = \"phi3\": rope_scaling = linear: ",
            ),
            ("rotary_dim = 4\nqk_norm = \"rms\"".to_owned(), "rotary_dim = 4: "),
            (layered("residual = \"parallel\""), "residual = parallel: "),
            (layered("rotary_dim = 4"), "rotary_dim = 4: "),
            (layered("kv_heads = 2\nhead_dim = 8"), "head_dim = 8: "),
            (layered("kv_heads = 2\nresidual_scale = 0.5"), "residual_scale = 0.5: "),
        ] {
            let message = fresh(&model(&lines), StoredType::F32).expect_err(starts).to_string();
            assert!(message.starts_with(starts), "{lines}: {message}");
        }
    }

    /// Divided and multiplied again, some parts are rounded below their columns.
    #[test]
    fn every_number_of_columns_is_said() {
        let mut attention = model("").blocks.first().attention;
        for width in 2..200 {
            for columns in 1..=width {
                attention.head_dim = width;
                attention.rotary = attention.rotary.map(|rotary| Rotary { columns, ..rotary });
                let part = rotary_part(&attention);
                assert_eq!((width as f64 * part) as usize, columns);
                assert!(part <= 1.0);
            }
        }
    }
}
