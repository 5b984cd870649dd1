//! The `config.json` of a model that was not imported, or that changed since.

use quadrille_spec::{Activation, Classic, Model, Norm, NormedOver, Positions};
use serde_json::{Value, json};

use crate::config_decoders::{gpt_neox, gpt2, llama, mistral, olmo2, phi3, qwen2, qwen3, starcoder2};
use crate::config_experts::{MIXTURES, check_said, mixtral, mixture, olmoe, qwen3_moe};
use crate::config_gemma::{gemma, gemma2, gemma3};
use crate::config_rotary::complete;
use crate::{Family, HuggingFaceError, StoredType, config_gemma};

/// What the families without experts compute, for refusals.
const FAMILIES: &str = "gpt2 has layer norms, learned positions and GELU, gpt_neox and starcoder2 layer norms, rotary positions and \
                        GELU, llama RMS norms, rotary positions and SwiGLU; mistral has one window in all blocks besides, qwen2 \
                        biases of queries, keys and values, qwen3 norms of every query and key, phi3 heads that turn in part, olmo2 \
                        norms after attention and perceptron and of all queries and all keys, and no biases of perceptrons; gemma \
                        has GEGLU, norms whose gammas are distances from 1 and embedded tokens times the root of their \
                        width, gemma2 norms on both sides, windows in some blocks and caps besides, gemma3_text norms of \
                        every query and key and other rotary bases in blocks with windows";

/// The family that computes what the model computes, and its configuration.
///
/// # Errors
/// A model that no family computes, with the field that stands in the way.
pub(crate) fn fresh(model: &Model, dtype: StoredType) -> Result<(Family, Value), HuggingFaceError> {
    let family = family(model)?;
    let mut config = match family {
        Family::Gemma => gemma(model),
        Family::Gemma2 => gemma2(model),
        Family::Gemma3Text => gemma3(model),
        Family::Gpt2 => gpt2(model),
        Family::GptNeox => gpt_neox(model),
        Family::Llama => llama(model),
        Family::Mistral => mistral(model),
        Family::Mixtral => mixtral(model),
        Family::Olmo2 => olmo2(model),
        Family::Olmoe => olmoe(model),
        Family::Phi3 => phi3(model),
        Family::Qwen2 => qwen2(model),
        Family::Qwen3 => qwen3(model),
        Family::Qwen3Moe => qwen3_moe(model),
        Family::Starcoder2 => starcoder2(model),
    };
    config["tie_word_embeddings"] = model.tied_head.into();
    config["vocab_size"] = model.vocab.into();
    config["use_cache"] = true.into();
    set_dtype(&mut config, dtype);
    for (field, token) in usual_special_tokens(model) {
        config[field] = token;
    }
    complete(&mut config, model, family);
    check_said(&config, model, if model.has_experts() { MIXTURES } else { FAMILIES })?;
    Ok((family, config))
}

/// Fields of which models here have one meaning only, or that are no part of a model's replaceable fields.
const KEPT: [&str; 19] = [
    "model_type",
    "architectures",
    "activation_function",
    "hidden_act",
    "hidden_activation",
    "embd_pdrop",
    "attn_pdrop",
    "resid_pdrop",
    "hidden_dropout",
    "attention_dropout",
    "residual_dropout",
    "embedding_dropout",
    "layer_types",
    "use_cache",
    "torch_dtype",
    "bos_token_id",
    "eos_token_id",
    "head_dim",
    "router_aux_loss_coef",
];

/// A configuration with the sizes and constants of `model` in place of its own, all else as it is; `None` where no family
/// computes the model. Fields that are left out or null mean the library's defaults: `defaults` writes those of constants,
/// too. Whether it says the model then is for the caller to see.
pub(crate) fn with_fields(config: &Value, model: &Model, defaults: bool) -> Option<Value> {
    const CONSTANTS: [&str; 7] = [
        "rope_theta",
        "rope_local_base_freq",
        "max_position_embeddings",
        "rms_norm_eps",
        "layer_norm_eps",
        "norm_epsilon",
        "num_experts_per_tok",
    ];
    let (_, new) = fresh(model, StoredType::F32).ok()?;
    let mut config = config.clone();
    for (field, value) in new.as_object()?.iter().filter(|(field, _)| !KEPT.contains(&field.as_str())) {
        if field == "num_experts" && config["num_local_experts"].is_number() {
            // As version 5 writes it.
            config["num_local_experts"] = value.clone();
        } else if config.get(field).is_some_and(|old| !old.is_null()) || defaults && CONSTANTS.contains(&field.as_str())
        {
            config[field] = value.clone();
        }
    }
    Some(config)
}

/// Writes the type of the weights under the name that the configuration has for it.
pub(crate) fn set_dtype(config: &mut Value, dtype: StoredType) {
    // Version 5 says `dtype`, and reads the name of version 4, too.
    let fields: Vec<&str> = ["dtype", "torch_dtype"].into_iter().filter(|name| config.get(name).is_some()).collect();
    let fields = if fields.is_empty() { vec!["torch_dtype"] } else { fields };
    for field in fields {
        config[field] = dtype.library_name().into();
    }
}

/// Writes the dropout rate; whether the family has one that means the same.
pub(crate) fn set_dropout(config: &mut Value, family: Family, dropout: f64) -> bool {
    let fields: &[&str] = match family {
        Family::Gpt2 => &["embd_pdrop", "attn_pdrop", "resid_pdrop"],
        Family::GptNeox => &["hidden_dropout", "attention_dropout"],
        Family::Starcoder2 => &["residual_dropout", "embedding_dropout", "attention_dropout"],
        Family::Gemma
        | Family::Gemma2
        | Family::Gemma3Text
        | Family::Llama
        | Family::Mistral
        | Family::Mixtral
        | Family::Olmo2
        | Family::Olmoe
        | Family::Phi3
        | Family::Qwen2
        | Family::Qwen3
        | Family::Qwen3Moe => return dropout == 0.0,
    };
    for field in fields {
        config[*field] = dropout.into();
    }
    true
}

fn family(model: &Model) -> Result<Family, HuggingFaceError> {
    let refuse =
        |field, value: String, rule: &str| Err(HuggingFaceError::Inexpressible { field, value, rule: rule.to_owned() });
    if let Some(values) = model.patch_values {
        return refuse("patch_values", values.to_string(), "the library's decoders read tokens");
    }
    if !model.classic().causal {
        return refuse("causal", "false".to_owned(), "the library's decoders attend to positions before only");
    }
    if model.has_experts() {
        return Ok(mixture(model));
    }
    let classic = &model.classic();
    match (classic.norm, classic.positions, classic.activation) {
        (Norm::Layer, Positions::Learned, Activation::Gelu) => {}
        (Norm::Layer, Positions::Rotary, Activation::Gelu | Activation::GeluErf) => return Ok(layered(model)),
        (Norm::Rms, Positions::Rotary, Activation::Swiglu) => return Ok(kin_of_llama(model)),
        (Norm::Rms, Positions::Rotary, Activation::Geglu) => return Ok(config_gemma::nearest(model)),
        (norm, Positions::Learned, Activation::Gelu) => return refuse("norm", norm.to_string(), FAMILIES),
        (Norm::Rms, Positions::Learned, _) => return refuse("positions", "learned".to_owned(), FAMILIES),
        (_, Positions::None, _) => return refuse("positions", "none".to_owned(), FAMILIES),
        (_, _, activation) => return refuse("activation", activation.to_string(), FAMILIES),
    }
    if !classic.biases {
        return refuse("biases", "false".to_owned(), "the linear layers of gpt2 have biases");
    }
    if classic.kv_heads != classic.heads {
        let rule = format!("every head of gpt2 has its own key, and there are {} heads", classic.heads);
        return refuse("kv_heads", classic.kv_heads.to_string(), &rule);
    }
    Ok(Family::Gpt2)
}

/// The family that comes nearest to a model of layer norms and rotary positions.
fn layered(model: &Model) -> Family {
    let Classic { heads, kv_heads, biases, .. } = model.classic();
    if kv_heads != heads || !biases || has_window(model) { Family::Starcoder2 } else { Family::GptNeox }
}

/// The family that comes nearest to a model of RMS norms and SwiGLU.
fn kin_of_llama(model: &Model) -> Family {
    let attention = &model.blocks.first().attention;
    match attention.qk_norm.map(|norm| norm.over) {
        Some(NormedOver::AllHeads) => Family::Olmo2,
        Some(NormedOver::Head) => Family::Qwen3,
        None if attention.qkv_bias && !attention.projection_bias => Family::Qwen2,
        None if attention.rotary.is_some_and(|rotary| rotary.columns < attention.head_dim) => Family::Phi3,
        None if has_window(model) => Family::Mistral,
        None => Family::Llama,
    }
}

/// Whether attention of some block reaches back over a window only.
fn has_window(model: &Model) -> bool {
    model.blocks.kinds().iter().any(|block| block.attention.window.is_some())
}

/// GPT-2's vocabulary ends in `<|endoftext|>`. Of another nothing is known here, and the library's defaults could lie
/// outside it.
fn usual_special_tokens(model: &Model) -> [(&'static str, Value); 2] {
    const END_OF_TEXT: usize = 50_256;
    let token = if model.vocab == END_OF_TEXT + 1 { json!(END_OF_TEXT) } else { Value::Null };
    [("bos_token_id", token.clone()), ("eos_token_id", token)]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn gpt() -> Model {
        Model { name: "gpt2".to_owned(), ..Model::gpt(2, 12, 6, 11, 7) }
    }

    fn any_model() -> impl Strategy<Value = Model> {
        let kinds = any::<[bool; 7]>();
        (kinds, 1..4_usize, 1..4_usize, 1..60_usize, 0.0..0.9_f64, 1e-9..1e-3_f64, 1e2..1e7_f64).prop_map(
            |(
                [rms, rotary, swiglu, biases, tied_head, causal, grouped],
                layers,
                half,
                ffn,
                dropout,
                norm_epsilon,
                base,
            )| {
                let heads = if grouped { 4 } else { 3 };
                Model::gpt(layers, heads * 2 * half, heads, 11, 7).reshaped(|m| {
                    m.kv_heads = if grouped { 2 } else { 3 };
                    m.ffn = ffn;
                    m.dropout = dropout;
                    m.norm_epsilon = norm_epsilon;
                    m.rotary_base = if rotary { base } else { 10_000.0 };
                    m.tied_head = tied_head;
                    m.biases = biases;
                    m.causal = causal || biases;
                    m.norm = if rms { Norm::Rms } else { Norm::Layer };
                    m.positions = if rotary { Positions::Rotary } else { Positions::Learned };
                    m.activation = if swiglu { Activation::Swiglu } else { Activation::Gelu };
                })
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_configuration_says_the_model_again(model in any_model()) {
            if let Ok((family, config)) = fresh(&model, StoredType::Bf16) {
                let read = Model::from_hugging_face(&config.to_string(), &[]).unwrap();
                let without = [Family::Llama, Family::Mistral, Family::Qwen2].contains(&family);
                let dropout = if without { 0.0 } else { model.dropout };
                prop_assert_eq!(read, Model { name: family.to_string(), dropout, ..model });
                prop_assert_eq!(&config["torch_dtype"], "bfloat16");
            }
        }
    }

    #[test]
    fn what_no_family_computes_is_refused_by_its_field() {
        let llama = || {
            gpt().reshaped(|m| {
                m.norm = Norm::Rms;
                m.positions = Positions::Rotary;
                m.activation = Activation::Swiglu;
                m.biases = false;
            })
        };
        for (model, starts) in [
            (
                gpt().reshaped(|m| {
                    m.patch_values = Some(3);
                    m.vocab = 0;
                }),
                "patch_values = 3: ",
            ),
            (gpt().reshaped(|m| m.causal = false), "causal = false: "),
            (gpt().reshaped(|m| m.norm = Norm::Rms), "norm = rms: "),
            (gpt().reshaped(|m| m.activation = Activation::Swiglu), "activation = swiglu: "),
            (llama().reshaped(|m| m.positions = Positions::Learned), "positions = learned: "),
            (llama().reshaped(|m| m.activation = Activation::Gelu), "activation = gelu: "),
            (llama().reshaped(|m| m.norm = Norm::Layer), "activation = swiglu: "),
            (gpt().reshaped(|m| m.biases = false), "biases = false: "),
            (gpt().reshaped(|m| m.kv_heads = 2), "kv_heads = 2: "),
        ] {
            let message = fresh(&model, StoredType::F32).expect_err(starts).to_string();
            assert!(message.starts_with(starts), "{message}");
        }
        assert!(fresh(&llama(), StoredType::F32).is_ok() && fresh(&gpt(), StoredType::F32).is_ok());
    }

    /// Norms after attention and perceptron, of all queries and of all keys: OLMo 2, if there is nothing else.
    #[test]
    fn a_llama_with_norms_after_and_over_all_heads_is_an_olmo2() {
        let text = "name = \"m\"\nlayers = 2\nhidden = 12\nheads = 6\nkv_heads = 2\nvocab = 11\nseq_len = 7\n\
                    tied_head = false\nbiases = false\nnorm = \"rms\"\npositions = \"rotary\"\nffn = 10\n\
                    activation = \"swiglu\"\nqk_norm = \"rms-all\"\nnorm_place = \"after\"\n";
        let with = |field: &str, value: &str| Model::from_toml(text, &[(field.to_owned(), value.to_owned())]).unwrap();
        let model = with("qkv_bias", "false");
        let (family, config) = fresh(&model, StoredType::F32).unwrap();
        let read = Model::from_hugging_face(&config.to_string(), &[]).unwrap();
        assert_eq!((family, Model { name: "m".to_owned(), ..read }), (Family::Olmo2, model));
        for (field, value, starts) in [
            ("qk_norm", "rms", "norm_place = after: "),
            ("qk_norm", "layer-all", "qk_norm = layer-all: "),
            ("norm_place", "both", "norm_place = both: "),
            ("biases", "true", "biases = true: "),
            ("qkv_bias", "true", "projection_bias = "),
            ("window", "3", "window = 3: "),
        ] {
            let message = fresh(&with(field, value), StoredType::F32).expect_err(starts).to_string();
            assert!(message.starts_with(starts), "{message}");
        }
    }

    #[test]
    fn special_tokens_lie_in_the_vocabulary() {
        let tokens = |vocab| fresh(&Model { vocab, ..gpt() }, StoredType::F32).unwrap().1["eos_token_id"].clone();
        assert_eq!((tokens(50_257), tokens(11)), (json!(50_256), Value::Null));
    }

    #[test]
    fn the_type_has_the_name_that_is_there() {
        for (mut config, field) in [
            (json!({"dtype": "float32"}), "dtype"),
            (json!({"torch_dtype": "x"}), "torch_dtype"),
            (json!({}), "torch_dtype"),
        ] {
            set_dtype(&mut config, StoredType::F16);
            assert_eq!(config, json!({field: "float16"}));
        }
    }
}
