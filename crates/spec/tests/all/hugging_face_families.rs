//! Decoders of other families read from Hugging Face configurations: published ones exactly, everything else refused by name.

use proptest::prelude::*;
use quadrille_spec::{Activation, Attention, Block, Model, Norm, NormedOver, ResidualOrder, RotaryScaling, SpecError};
use serde_json::{Map, Value, json};

const LLAMA_31: &str = include_str!("../data/hugging_face/llama-3.1-8b.json");
const LLAMA_32: &str = include_str!("../data/hugging_face/llama-3.2-1b.json");
const SMOLLM2: &str = include_str!("../data/hugging_face/smollm2-135m.json");
const MISTRAL: &str = include_str!("../data/hugging_face/mistral-7b-v0.1.json");
const NEMO: &str = include_str!("../data/hugging_face/mistral-nemo-12b.json");
const QWEN25_SMALL: &str = include_str!("../data/hugging_face/qwen2.5-0.5b.json");
const QWEN25: &str = include_str!("../data/hugging_face/qwen2.5-7b.json");
const QWEN3_SMALL: &str = include_str!("../data/hugging_face/qwen3-0.6b.json");
const QWEN3: &str = include_str!("../data/hugging_face/qwen3-8b.json");
const PHI3: &str = include_str!("../data/hugging_face/phi-3-mini-4k.json");
const STARCODER2: &str = include_str!("../data/hugging_face/starcoder2-3b.json");
const NEOX: &str = include_str!("../data/hugging_face/gpt-neox-20b.json");
const PYTHIA: &str = include_str!("../data/hugging_face/pythia-1b.json");

/// The model of a configuration with other values of some fields.
fn changed(text: &str, changes: &Value) -> Result<Model, SpecError> {
    let mut map: Map<String, Value> = serde_json::from_str(text).unwrap();
    map.extend(changes.as_object().unwrap().clone());
    Model::from_hugging_face(&Value::Object(map).to_string(), &[])
}

/// The model of a configuration without some fields.
fn without(text: &str, fields: &[&str]) -> Model {
    let mut map: Map<String, Value> = serde_json::from_str(text).unwrap();
    for field in fields {
        map.remove(*field);
    }
    Model::from_hugging_face(&Value::Object(map).to_string(), &[]).unwrap()
}

fn read(text: &str) -> Model {
    without(text, &[])
}

/// Attention of the first block.
fn attention(model: &Model) -> Attention {
    model.blocks.first().attention
}

/// By block, its window.
fn windows(model: &Model) -> Vec<Option<usize>> {
    model.blocks.iter().map(|block| block.attention.window).collect()
}

#[test]
fn published_models_have_their_parameters() {
    for (text, parameters) in [
        (LLAMA_31, 8_030_261_248),
        (LLAMA_32, 1_235_814_400),
        (SMOLLM2, 134_515_008),
        (MISTRAL, 7_241_732_096),
        (NEMO, 12_247_782_400),
        (QWEN25_SMALL, 494_032_768),
        (QWEN25, 7_615_616_512),
        (QWEN3_SMALL, 596_049_920),
        (QWEN3, 8_190_735_360),
        (PHI3, 3_821_079_552),
        (STARCODER2, 3_030_371_328),
        (NEOX, 20_554_567_680),
        (PYTHIA, 1_011_781_632),
    ] {
        let model = read(text);
        assert_eq!(model.parameters(), parameters, "{}", model.name);
    }
}

/// By the factor of each, after sequences of 8,192 tokens.
#[test]
fn frequencies_of_llama_3_1_and_3_2_are_scaled() {
    for (text, factor) in [(LLAMA_31, 8.0), (LLAMA_32, 32.0)] {
        let model = read(text);
        let scaling = RotaryScaling::Llama3 { factor, low: 1.0, high: 4.0, positions: 8192 };
        assert_eq!((attention(&model).rotary.unwrap().scaling, model.seq_len), (scaling, 131_072));
    }
    // Nothing else is another than in Llama 3, but for longer sequences.
    let plain = changed(LLAMA_31, &json!({"rope_scaling": null, "max_position_embeddings": 8192})).unwrap();
    assert_eq!(Model { name: "llama3-8b".to_owned(), ..plain }, Model::preset("llama3-8b").unwrap());
    // The same under the names of version 5.
    let newer = json!({"rope_scaling": null, "rope_theta": null, "rope_parameters": {"rope_type": "llama3", "factor": 8.0,
        "rope_theta": 500_000.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}});
    assert_eq!(changed(LLAMA_31, &newer).unwrap(), read(LLAMA_31));
    let linear = changed(LLAMA_31, &json!({"rope_scaling": {"type": "linear", "factor": 2.0}})).unwrap();
    assert_eq!(attention(&linear).rotary.unwrap().scaling, RotaryScaling::Linear { factor: 2.0 });
}

#[test]
fn heads_and_biases_of_a_llama_are_as_they_are_said() {
    assert_eq!((attention(&read(NEMO)).head_dim, read(NEMO).hidden / 32), (128, 160));
    // A width that follows from the others.
    assert_eq!(changed(LLAMA_32, &json!({"head_dim": null})).unwrap(), read(LLAMA_32));
    for (attention_bias, perceptron_bias) in [(false, false), (false, true), (true, false), (true, true)] {
        let biases = json!({"attention_bias": attention_bias, "mlp_bias": perceptron_bias});
        let Block { attention, feed_forward, .. } = *changed(LLAMA_31, &biases).unwrap().blocks.first();
        let perceptron = feed_forward.dense().unwrap();
        assert_eq!((attention.qkv_bias, attention.projection_bias), (attention_bias, attention_bias));
        assert_eq!((perceptron.up_bias, perceptron.down_bias), (perceptron_bias, perceptron_bias));
    }
    assert!(read(SMOLLM2).tied_head);
}

/// In all blocks of Mistral and Phi-3, in none where nothing is said.
#[test]
fn windows_are_described() {
    assert_eq!(windows(&read(MISTRAL)), [Some(4096); 32]);
    assert_eq!(windows(&read(NEMO)), [None; 40]);
    assert_eq!(windows(&read(PHI3)), [Some(2047); 32]);
    assert_eq!(windows(&read(STARCODER2)), [Some(4096); 30]);
    for text in [PHI3, STARCODER2] {
        assert!(windows(&without(text, &["sliding_window"])).iter().all(Option::is_none));
    }
}

/// From a block on, or where the types of blocks say so.
#[test]
fn the_last_blocks_of_a_qwen_may_have_windows() {
    for text in [QWEN25_SMALL, QWEN3_SMALL] {
        let few = |changes: Value| {
            let mut all = json!({"num_hidden_layers": 4, "use_sliding_window": true, "sliding_window": 64});
            all.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
            changed(text, &all)
        };
        let all = None;
        let window = Some(64);
        for (changes, expected) in [
            (json!({"max_window_layers": 3}), [all, all, all, window]),
            (json!({"max_window_layers": 0}), [window; 4]),
            (json!({"max_window_layers": 4}), [all; 4]),
            (json!({"max_window_layers": 3, "use_sliding_window": false}), [all; 4]),
            (json!({"max_window_layers": 3, "sliding_window": null}), [all; 4]),
            (
                json!({"layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]}),
                [window, all, window, all],
            ),
            (json!({"layer_types": vec!["full_attention"; 4], "max_window_layers": 0}), [all; 4]),
            (json!({"layer_types": vec!["sliding_attention"; 4]}), [window; 4]),
        ] {
            assert_eq!(windows(&few(changes.clone()).unwrap()), expected, "{changes}");
        }
        for (changes, starts) in [
            (json!({"layer_types": vec!["full_attention"; 3]}), "layer_types = [\"full_attention\","),
            (json!({"layer_types": vec!["chunked_attention"; 4]}), "layer_types = [\"chunked_attention\""),
            (json!({"layer_types": 3}), "layer_types = 3: it says of each of 4 blocks"),
            (
                json!({"layer_types": vec!["sliding_attention"; 4], "use_sliding_window": false}),
                "layer_types = sliding_attention: it says so of block 0, and there is no window",
            ),
        ] {
            let message = few(changes.clone()).expect_err(starts).to_string();
            assert!(message.starts_with(starts), "{changes}: {message}");
        }
    }
}

/// Of the library, which differ between families.
#[test]
fn defaults_are_those_of_the_library() {
    let keys = |text, field| attention(&without(text, &[field])).kv_heads;
    assert_eq!(keys(QWEN3, "num_key_value_heads"), 32);
    assert_eq!(keys(STARCODER2, "num_key_value_heads"), 2);
    assert_eq!(keys(PHI3, "num_key_value_heads"), 32);
    assert_eq!(attention(&without(QWEN3_SMALL, &["head_dim"])).head_dim, 128);
    for (text, field, epsilon) in [
        (QWEN25, "rms_norm_eps", 1e-6),
        (QWEN3, "rms_norm_eps", 1e-6),
        (PHI3, "rms_norm_eps", 1e-5),
        (STARCODER2, "norm_epsilon", 1e-5),
        (NEOX, "layer_norm_eps", 1e-5),
    ] {
        assert_eq!(without(text, &[field]).final_norm.epsilon, epsilon, "{field}");
    }
    assert_eq!(attention(&without(NEOX, &["rotary_pct"])).rotary.unwrap().columns, 24);
    assert!(without(STARCODER2, &["tie_word_embeddings", "use_bias"]).tied_head);
    assert_eq!(without(STARCODER2, &["residual_dropout", "embedding_dropout", "attention_dropout"]).dropout, 0.0);
}

#[test]
fn what_families_have_is_described() {
    let qwen2 = attention(&read(QWEN25));
    assert_eq!((qwen2.qkv_bias, qwen2.projection_bias, qwen2.qk_norm), (true, false, None));
    let qwen3 = attention(&read(QWEN3));
    let norm = qwen3.qk_norm.unwrap();
    assert_eq!((qwen3.qkv_bias, norm.over, norm.rule.kind), (false, NormedOver::Head, Norm::Rms));
    let phi3 = changed(PHI3, &json!({"partial_rotary_factor": 0.5})).unwrap();
    assert_eq!((attention(&read(PHI3)).rotary.unwrap().columns, attention(&phi3).rotary.unwrap().columns), (96, 48));
    let starcoder2 = read(STARCODER2);
    let Block { attention: of_code, norm, feed_forward, .. } = *starcoder2.blocks.first();
    assert_eq!((norm.kind, feed_forward.activation(), starcoder2.dropout), (Norm::Layer, Activation::Gelu, 0.1));
    assert_eq!((of_code.kv_heads, of_code.qkv_bias, starcoder2.tied_head), (2, true, true));
    let neox = read(NEOX);
    let Block { attention: of_neox, residual, .. } = *neox.blocks.first();
    assert_eq!((residual.order, of_neox.rotary.unwrap().columns, of_neox.head_dim), (ResidualOrder::Parallel, 24, 96));
    let function = |model: &Model| model.blocks.first().feed_forward.activation();
    assert_eq!((function(&neox), function(&read(PYTHIA))), (Activation::Gelu, Activation::GeluErf));
    assert_eq!(function(&without(NEOX, &["hidden_act"])), Activation::GeluErf);
    let unbiased = changed(NEOX, &json!({"attention_bias": false})).unwrap();
    let Block { attention: bare, feed_forward, .. } = *unbiased.blocks.first();
    assert_eq!((bare.qkv_bias, bare.projection_bias), (false, false));
    assert!(feed_forward.dense().unwrap().up_bias);
}

#[test]
fn what_changes_the_computation_is_refused_by_name() {
    for (text, changes, starts) in [
        (PYTHIA, json!({"hidden_act": "relu"}), "hidden_act = relu: the activation function is gelu or gelu_new"),
        (QWEN25, json!({"use_mrope": true}), "use_mrope = true: "),
        (QWEN25, json!({"attention_bias": false}), "attention_bias = false: no field of qwen2"),
        (QWEN25, json!({"rope_scaling": {"type": "yarn", "factor": 4.0}}), "rope_scaling = {"),
        (QWEN25, json!({"sliding_window": 0}), "sliding_window = 0: "),
        (QWEN3, json!({"attention_dropout": 0.1}), "attention_dropout = 0.1: "),
        (QWEN3, json!({"architectures": ["Qwen3ForSequenceClassification"]}), "architectures = ["),
        (PHI3, json!({"rope_scaling": {"type": "longrope", "long_factor": [1.0]}}), "rope_scaling = {"),
        (PHI3, json!({"rope_scaling": {"type": "linear", "factor": 2.0}}), "rope_scaling = linear: "),
        (PHI3, json!({"partial_rotary_factor": 0.01}), "partial_rotary_factor = 0.01: "),
        (PHI3, json!({"resid_pdrop": 0.1}), "resid_pdrop = 0.1: "),
        (PHI3, json!({"embd_pdrop": 0.1}), "embd_pdrop = 0.1: "),
        (PHI3, json!({"attention_bias": true}), "attention_bias = true: "),
        (STARCODER2, json!({"mlp_type": "gated"}), "mlp_type = gated: "),
        (STARCODER2, json!({"norm_type": "rms_norm"}), "norm_type = rms_norm: "),
        (STARCODER2, json!({"hidden_act": "silu"}), "hidden_act = silu: "),
        (STARCODER2, json!({"residual_dropout": 0.0}), "embedding_dropout = 0.1: dropout has one rate"),
        (STARCODER2, json!({"partial_rotary_factor": 0.5}), "partial_rotary_factor = 0.5: "),
        (STARCODER2, json!({"scale_attn_weights": false}), "scale_attn_weights = false: "),
        (NEOX, json!({"attention_probs_dropout_prob": 0.1}), "attention_probs_dropout_prob = 0.1: "),
        (MISTRAL, json!({"layer_types": vec!["sliding_attention"; 32]}), "layer_types = ["),
        (QWEN3, json!({"num_hidden_layers": u64::MAX}), "layers = "),
    ] {
        let message = changed(text, &changes).expect_err(starts).to_string();
        assert!(message.starts_with(starts), "{changes}: {message}");
    }
}

proptest! {
    /// Any field with any value is read or refused, and what is read is a legal model.
    #[test]
    fn no_value_panics(
        text in prop::sample::select(vec![LLAMA_31, MISTRAL, QWEN25, QWEN3, PHI3, STARCODER2, NEOX, PYTHIA]),
        pick in any::<prop::sample::Index>(),
        added in prop::sample::select(vec!["layer_types", "rope_parameters", "rope_scaling", "partial_rotary_factor"]),
        add in any::<bool>(),
        value in prop_oneof![
            Just(Value::Null), any::<bool>().prop_map(Value::from), any::<u64>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from), any::<f64>().prop_map(Value::from), (0_u64..100).prop_map(Value::from),
            "\\PC{0,80}".prop_map(Value::from), Just(json!([])), Just(json!({})), Just(json!([1, 2, u64::MAX])),
            Just(json!({"rope_type": "linear", "factor": -1.0})), Just(json!({"type": "llama3", "factor": "8"})),
        ],
    ) {
        let mut map: Map<String, Value> = serde_json::from_str(text).unwrap();
        map.insert("use_sliding_window".to_owned(), true.into());
        let fields: Vec<String> = map.keys().cloned().collect();
        let field = if add { added.to_owned() } else { fields[pick.index(fields.len())].clone() };
        map.insert(field, value);
        if let Ok(model) = Model::from_hugging_face(&Value::Object(map).to_string(), &[]) {
            prop_assert!(model.parameters() > 0);
        }
    }
}
