//! Models read from Hugging Face configurations: published ones exactly, everything else refused by name.

use proptest::prelude::*;
use quadrille_spec::{Activation, Block, Model, Norm, NormPlace, NormedOver, Positions, QueryKeyNorm, SpecError};
use serde_json::{Map, Value, json};

const GPT2: &str = include_str!("../data/hugging_face/gpt2.json");
const LLAMA_2: &str = include_str!("../data/hugging_face/llama-2-7b.json");
const LLAMA_3: &str = include_str!("../data/hugging_face/llama-3-8b.json");
const MISTRAL: &str = include_str!("../data/hugging_face/mistral-7b-v0.3.json");
const NEOX: &str = r#"{"model_type": "gpt_neox", "hidden_act": "gelu_new", "use_parallel_residual": false,
    "rotary_pct": 1.0, "rotary_emb_base": 20000, "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2,
    "intermediate_size": 256, "vocab_size": 100, "max_position_embeddings": 32, "hidden_dropout": 0.0}"#;

fn read(text: &str) -> Result<Model, SpecError> {
    Model::from_hugging_face(text, &[])
}

/// `text` with other values of some fields; null takes a field away.
fn with(text: &str, changes: Value) -> String {
    let mut map: Map<String, Value> = serde_json::from_str(text).unwrap();
    for (field, value) in changes.as_object().unwrap() {
        map.insert(field.clone(), value.clone());
        if value.is_null() {
            map.remove(field);
        }
    }
    Value::Object(map).to_string()
}

#[test]
fn published_models_have_their_parameters() {
    for (text, name, parameters) in [
        (GPT2, "gpt2", 124_439_808),
        (LLAMA_2, "Llama-2-7b-hf", 6_738_415_616),
        (LLAMA_3, "llama", 8_030_261_248),
        (MISTRAL, "mistral", 7_248_023_552),
    ] {
        let model = read(text).unwrap();
        assert_eq!((model.name.as_str(), model.parameters()), (name, parameters));
    }
}

#[test]
fn published_models_are_the_presets() {
    for (text, preset) in [(LLAMA_2, "llama2-7b"), (LLAMA_3, "llama3-8b")] {
        let read = read(text).unwrap();
        assert_eq!(Model { name: preset.to_owned(), ..read }, Model::preset(preset).unwrap());
    }
    let gpt2 = read(GPT2).unwrap();
    assert_eq!(gpt2.dropout, 0.1, "as it was trained");
    assert_eq!(Model { name: "gpt2-124m".to_owned(), dropout: 0.0, ..gpt2 }, Model::preset("gpt2-124m").unwrap());
    let mistral = read(MISTRAL).unwrap();
    assert_eq!((mistral.seq_len, mistral.classic().rotary_base, mistral.classic().kv_heads), (32_768, 1e6, 8));
}

/// Norms after attention and perceptron, and of all queries together and all keys.
#[test]
fn an_olmo2_is_a_llama_with_other_norms() {
    let olmo2 = json!({"model_type": "olmo2", "architectures": null, "attention_bias": false, "rms_norm_eps": 1e-6});
    let model = read(&with(LLAMA_2, olmo2)).unwrap();
    let Block { attention, norm, norm_place, .. } = *model.blocks.first();
    assert_eq!(norm_place, NormPlace::After);
    assert_eq!(attention.qk_norm, Some(QueryKeyNorm { rule: norm, over: NormedOver::AllHeads }));
    // Beside the Llama it has a gamma for every column of queries and keys.
    let more = 2 * model.hidden as u64 * model.layers() as u64;
    assert_eq!(model.parameters(), read(LLAMA_2).unwrap().parameters() + more);
}

#[test]
fn a_serial_gpt_neox_is_expressed() {
    let model = read(NEOX).unwrap();
    assert_eq!(
        (model.classic().norm, model.classic().positions, model.classic().activation),
        (Norm::Layer, Positions::Rotary, Activation::Gelu)
    );
    assert_eq!((model.classic().biases, model.tied_head, model.classic().rotary_base), (true, false, 20_000.0));
    // Version 5 writes both fields of positions inside rope_parameters.
    let rope = json!({"rope_type": "default", "rope_theta": 2e4, "partial_rotary_factor": 1.0});
    let newer = with(NEOX, json!({"rotary_pct": null, "rotary_emb_base": null, "rope_parameters": rope}));
    assert_eq!(read(&newer).unwrap(), model);
}

/// What is left out has the default of transformers, which differs between families.
#[test]
fn defaults_are_those_of_the_library() {
    let model =
        read(&with(LLAMA_3, json!({"num_key_value_heads": null, "rms_norm_eps": null, "rope_theta": null}))).unwrap();
    assert_eq!(
        (model.classic().kv_heads, model.classic().norm_epsilon, model.classic().rotary_base),
        (32, 1e-6, 10_000.0)
    );
    assert_eq!(read(&with(MISTRAL, json!({"num_key_value_heads": null}))).unwrap().classic().kv_heads, 8);
    let windowed = read(&with(MISTRAL, json!({"sliding_window": null}))).unwrap();
    assert_eq!(windowed.blocks.first().attention.window, Some(4096));
    assert_eq!(read(&with(GPT2, json!({"n_inner": 1000}))).unwrap().classic().ffn, 1000);
    // Version 5 names the base inside rope_parameters.
    let new =
        with(LLAMA_3, json!({"rope_theta": null, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}));
    assert_eq!(read(&new).unwrap(), read(LLAMA_3).unwrap());
    // What is written for both versions says it twice.
    let older = json!({"rope_scaling": {"type": "linear", "factor": 2.0}});
    let mut both = older.clone();
    both["rope_parameters"] = json!({"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5});
    assert_eq!(read(&with(LLAMA_3, both)).unwrap(), read(&with(LLAMA_3, older)).unwrap());
}

#[test]
fn fields_without_effect_are_accepted() {
    let noted = json!({
        "_attn_implementation_autoset": true, "_commit_hash": "8afb486c1db24fe5", "cache_implementation": "hybrid",
        "use_return_dict": true, "max_new_tokens": 256, "suppress_tokens": [1], "unsloth_version": "2025.3.1",
    });
    assert_eq!(read(&with(LLAMA_3, noted)).unwrap(), read(LLAMA_3).unwrap());
}

#[test]
fn a_window_that_no_sequence_reaches_is_none() {
    let windowed = with(MISTRAL, json!({"sliding_window": 4096}));
    let set = |seq_len: &str| Model::from_hugging_face(&windowed, &[("seq_len".to_owned(), seq_len.to_owned())]);
    let window = |seq_len| set(seq_len).unwrap().blocks.first().attention.window;
    assert_eq!((window("4096"), window("4097")), (None, Some(4096)));
    assert_eq!(read(&with(MISTRAL, json!({"sliding_window": 32768}))).unwrap(), read(MISTRAL).unwrap());
}

#[test]
fn what_changes_the_computation_is_refused_by_name() {
    for (text, changes, starts) in [
        (
            LLAMA_3,
            json!({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}),
            "low_freq_factor = none: a configuration of llama with rope_scaling llama3 says it",
        ),
        (LLAMA_3, json!({"rope_scaling": {"type": "linear"}}), "factor = none: "),
        (LLAMA_3, json!({"rope_scaling": {"type": "linear", "factor": 0.5}}), "rotary_factor = 0.5: "),
        (
            LLAMA_3,
            json!({"rope_scaling": {"type": "linear", "factor": 2.0, "beta_fast": 32.0}}),
            "rope_scaling = beta_fast: rope_type linear has no such field",
        ),
        (
            LLAMA_3,
            json!({"rope_scaling": {"type": "linear", "rope_type": "llama3", "factor": 2.0}}),
            "rope_scaling = {",
        ),
        (
            LLAMA_3,
            json!({"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters": {"type": "linear", "factor": 2.0}}),
            "rope_parameters = {",
        ),
        (
            LLAMA_3,
            json!({"rope_scaling": {"type": "linear", "factor": 2.0},
                "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 5e5}}),
            "rope_parameters = {",
        ),
        (
            LLAMA_3,
            json!({"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}),
            "rope_parameters = rope_theta 10000: rope_theta is 500000 in the same configuration",
        ),
        (LLAMA_3, json!({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}), "rope_scaling = {"),
        (LLAMA_3, json!({"rope_interleaved": true}), "rope_interleaved = true: "),
        (LLAMA_3, json!({"rope_parameters": {"rope_type": "yarn"}}), "rope_parameters = {"),
        (LLAMA_3, json!({"rope_scaling": 2.0}), "rope_scaling = 2.0: "),
        (LLAMA_3, json!({"attention_dropout": 0.1}), "attention_dropout = 0.1: "),
        (LLAMA_3, json!({"hidden_act": "gelu"}), "hidden_act = gelu: "),
        (LLAMA_3, json!({"partial_rotary_factor": 0.5}), "partial_rotary_factor = 0.5: "),
        (LLAMA_3, json!({"architectures": ["LlamaForSequenceClassification"]}), "architectures = ["),
        (LLAMA_3, json!({"quantization_config": {"bits": 4}}), "quantization_config = {"),
        (LLAMA_3, json!({"auto_map": {"AutoModel": "other.py"}}), "auto_map = {"),
        (LLAMA_3, json!({"layer_types": ["full_attention", "sliding_attention"]}), "layer_types = ["),
        (LLAMA_3, json!({"num_local_experts": 8}), "num_local_experts = 8: "),
        (LLAMA_3, json!({"num_attention_heads": 33}), "heads=33 does not divide hidden = 4096"),
        (LLAMA_3, json!({"hidden_size": null}), "hidden_size = none: "),
        (LLAMA_3, json!({"hidden_size": "4096"}), "hidden_size = \"4096\": it is a whole number"),
        (LLAMA_3, json!({"hidden_size": 4096.5}), "hidden_size = 4096.5: it is a whole number"),
        (LLAMA_3, json!({"tie_word_embeddings": 1}), "tie_word_embeddings = 1: it is true or false"),
        (MISTRAL, json!({"sliding_window": 0}), "sliding_window = 0: "),
        (GPT2, json!({"activation_function": "relu"}), "activation_function = relu: "),
        (GPT2, json!({"attn_pdrop": 0.0}), "attn_pdrop = 0: dropout has one rate, and embd_pdrop is 0.1"),
        (GPT2, json!({"scale_attn_weights": false}), "scale_attn_weights = false: "),
        (GPT2, json!({"scale_attn_by_inverse_layer_idx": true}), "scale_attn_by_inverse_layer_idx = true: "),
        (GPT2, json!({"add_cross_attention": true}), "add_cross_attention = true: "),
        (GPT2, json!({"is_encoder_decoder": true}), "is_encoder_decoder = true: "),
        (GPT2, json!({"pruned_heads": {"0": [1]}}), "pruned_heads = {"),
        (NEOX, json!({"rotary_pct": 0.05}), "partial_rotary_factor = 0.05: pairs of a head's 16 numbers turn"),
        (NEOX, json!({"rotary_pct": 1.5}), "partial_rotary_factor = 1.5: "),
        (NEOX, json!({"rotary_pct": 0.2}), "rotary_dim = 3: "),
        (NEOX, json!({"hidden_dropout_prob": 0.1}), "hidden_dropout_prob = 0.1: "),
        (NEOX, json!({"hidden_act": "relu"}), "hidden_act = relu: "),
        (NEOX, json!({"attention_dropout": 0.2}), "attention_dropout = 0.2: "),
        (LLAMA_3, json!({"model_type": null}), "model_type = none: "),
        (LLAMA_3, json!({"model_type": "gemma3"}), "model_type = gemma3: it reads images, too"),
        (LLAMA_3, json!({"model_type": "vit"}), "model_type = vit: "),
        (
            LLAMA_3,
            json!({"model_type": "olmoe"}),
            "architectures = [\"LlamaForCausalLM\"]: it is [\"OlmoeForCausalLM\"]",
        ),
        (
            LLAMA_3,
            json!({"model_type": "phi"}),
            "unknown model_type 'phi' (did you mean 'phi3'?); known: deepseek_v3, gemma, gemma2, gemma3_text, gpt2, gpt_neox, kimi_k2, llama, mistral",
        ),
    ] {
        let message = read(&with(text, changes.clone())).expect_err(starts).to_string();
        assert!(message.starts_with(starts), "{changes}: {message}");
    }
    for text in ["", "[]", "{", "null", "{\"model_type\": 3}"] {
        assert!(read(text).is_err(), "{text}");
    }
    let long = read(&with(LLAMA_3, json!({"more": "x".repeat(10_000)}))).unwrap_err().to_string();
    assert!(long.len() < 300, "{long}");
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,200}") {
        let _ = read(&text);
    }

    /// Any field with any value is read or refused, and what is read is a legal model.
    #[test]
    fn no_value_panics(
        which in 0_usize..5, pick in any::<prop::sample::Index>(), name in "[a-z_]{1,20}", invent in any::<bool>(),
        value in prop_oneof![
            Just(Value::Null), any::<bool>().prop_map(Value::from), any::<u64>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from), any::<f64>().prop_map(Value::from), (0_u64..100).prop_map(Value::from),
            "\\PC{0,80}".prop_map(Value::from), Just(json!([])), Just(json!({})), Just(json!([1, "a"])),
            Just(json!({"rope_type": "default", "rope_theta": 0.0})),
        ],
    ) {
        let mut map: Map<String, Value> = serde_json::from_str([GPT2, LLAMA_2, LLAMA_3, MISTRAL, NEOX][which]).unwrap();
        let fields: Vec<String> = map.keys().cloned().collect();
        let field = if invent { name } else { fields[pick.index(fields.len())].clone() };
        map.insert(field, value);
        if let Ok(model) = read(&Value::Object(map).to_string()) {
            prop_assert!(model.hidden % model.classic().heads == 0 && model.parameters() > 0);
        }
    }
}
