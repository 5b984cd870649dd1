//! Gemma read from Hugging Face configurations: published ones exactly, everything else refused by name.

use proptest::prelude::*;
use quadrille_spec::{Activation, Block, Model, NormPlace, Normalization, NormedOver, RotaryScaling, SpecError};
use serde_json::{Map, Value, json};

const GEMMA: &str = include_str!("../data/hugging_face/gemma-2b.json");
const GEMMA_2: [&str; 3] = [
    include_str!("../data/hugging_face/gemma-2-2b.json"),
    include_str!("../data/hugging_face/gemma-2-9b.json"),
    include_str!("../data/hugging_face/gemma-2-27b.json"),
];
const GEMMA_3: [&str; 4] = [
    include_str!("../data/hugging_face/gemma-3-1b.json"),
    include_str!("../data/hugging_face/gemma-3-4b-text.json"),
    include_str!("../data/hugging_face/gemma-3-12b-text.json"),
    include_str!("../data/hugging_face/gemma-3-27b-text.json"),
];

/// The model of a configuration with other values of some fields.
fn changed(text: &str, changes: &Value) -> Result<Model, SpecError> {
    let mut map: Map<String, Value> = serde_json::from_str(text).unwrap();
    map.extend(changes.as_object().unwrap().clone());
    Model::from_hugging_face(&Value::Object(map).to_string(), &[])
}

fn read(text: &str) -> Model {
    changed(text, &json!({})).unwrap()
}

/// By block, its window.
fn windows(model: &Model) -> Vec<Option<usize>> {
    model.blocks.iter().map(|block| block.attention.window).collect()
}

/// Those of the published weights, the tied head once; of the models that read images those of their model of texts.
#[test]
fn published_models_have_their_parameters_and_are_the_presets() {
    let counts = [
        ("gemma2-2b", GEMMA_2[0], 2_614_341_888),
        ("gemma2-9b", GEMMA_2[1], 9_241_705_984),
        ("gemma2-27b", GEMMA_2[2], 27_227_128_320),
        ("gemma3-1b", GEMMA_3[0], 999_885_952),
        ("gemma3-4b", GEMMA_3[1], 3_880_263_168),
        ("gemma3-12b", GEMMA_3[2], 11_766_034_176),
        ("gemma3-27b", GEMMA_3[3], 27_009_346_304),
    ];
    for (name, text, parameters) in counts {
        let model = Model { name: name.to_owned(), ..read(text) };
        assert_eq!(model.parameters(), parameters, "{name}");
        assert_eq!(model, Model::preset(name).unwrap(), "{name}");
    }
    assert_eq!(read(GEMMA).parameters(), 2_506_172_416);
}

#[test]
fn what_gemmas_have_is_described() {
    let gemma = read(GEMMA);
    let Block { attention, feed_forward, norm, norm_place, .. } = *gemma.blocks.first();
    assert_eq!((norm.offset, norm_place, attention.kv_heads, attention.head_dim), (true, NormPlace::Before, 1, 256));
    assert_eq!((feed_forward.activation(), gemma.tied_head, gemma.logit_cap), (Activation::Geglu, true, None));
    assert_eq!(gemma.embedding_scale, 2048_f64.sqrt());

    let gemma2 = read(GEMMA_2[2]);
    let Block { attention, norm_place, .. } = *gemma2.blocks.first();
    assert_eq!((norm_place, attention.cap, gemma2.logit_cap), (NormPlace::Both, Some(50.0), Some(30.0)));
    assert_eq!(attention.score_scale, (128.0_f64 / 144.0).sqrt());
    assert_eq!(read(GEMMA_2[0]).blocks.first().attention.score_scale, 1.0);
    assert_eq!(windows(&gemma2)[..4], [Some(4096), None, Some(4096), None]);

    let gemma3 = read(GEMMA_3[1]);
    assert_eq!(windows(&gemma3)[3..8], [Some(1024), Some(1024), None, Some(1024), Some(1024)]);
    let turning = |block: usize| gemma3.blocks[block].attention.rotary.map(|rotary| (rotary.base, rotary.scaling));
    assert_eq!(turning(4), Some((1e4, RotaryScaling::None)));
    assert_eq!(turning(5), Some((1e6, RotaryScaling::Linear { factor: 8.0 })));
    let norm = gemma3.blocks.first().attention.qk_norm.unwrap();
    let Normalization { offset, epsilon, .. } = norm.rule;
    assert_eq!((norm.over, offset, epsilon, gemma3.logit_cap), (NormedOver::Head, true, 1e-6, None));
}

/// As version 5 of the library writes them; and where nobody says them.
#[test]
fn blocks_are_as_they_are_said_and_as_usual() {
    let few = |changes: Value| {
        let mut all = json!({"num_hidden_layers": 4, "sliding_window": 64});
        all.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        windows(&changed(GEMMA_3[0], &all).unwrap())
    };
    let all = None;
    let window = Some(64);
    let types = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"];
    assert_eq!(few(json!({"layer_types": types})), [all, window, window, all]);
    assert_eq!(few(json!({"layer_types": vec!["full_attention"; 4]})), [all; 4]);
    assert_eq!(few(json!({"layer_types": vec!["sliding_attention"; 4]})), [window; 4]);
    assert_eq!(few(json!({})), [window; 4]);
    assert_eq!(few(json!({"sliding_window_pattern": 2})), [window, all, window, all]);
    assert_eq!(
        few(json!({"_sliding_window_pattern": 3, "sliding_window_pattern": null})),
        [window, window, all, window]
    );
    assert_eq!(few(json!({"sliding_window_pattern": 1})), [all; 4]);

    let newer = json!({"rope_scaling": null, "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}});
    assert_eq!(changed(GEMMA_3[1], &newer).unwrap(), read(GEMMA_3[1]));
    let others = json!({"rope_theta": 5e5, "rope_local_base_freq": 77.0});
    let model = changed(GEMMA_3[0], &others).unwrap();
    let bases = [0, 5].map(|block: usize| model.blocks[block].attention.rotary.unwrap().base);
    assert_eq!(bases, [77.0, 5e5]);

    let usual = |text: &str, fields: &[&str]| {
        let mut map: Map<String, Value> = serde_json::from_str(text).unwrap();
        fields.iter().for_each(|field| drop(map.remove(*field)));
        Model::from_hugging_face(&Value::Object(map).to_string(), &[]).unwrap()
    };
    let caps =
        ["attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar", "sliding_window", "head_dim"];
    assert_eq!(usual(GEMMA_2[0], &caps), read(GEMMA_2[0]));
    let uncapped = json!({"attn_logit_softcapping": null, "final_logit_softcapping": null});
    let uncapped = changed(GEMMA_2[0], &uncapped).unwrap();
    assert_eq!((uncapped.blocks.first().attention.cap, uncapped.logit_cap), (None, None));
}

#[test]
fn what_changes_the_computation_is_refused_by_name() {
    for (text, changes, starts) in [
        (GEMMA, json!({"hidden_act": "silu"}), "hidden_act = silu: "),
        (GEMMA, json!({"sliding_window": 3}), "sliding_window = 3: no field of gemma"),
        (GEMMA_2[0], json!({"hidden_activation": "gelu"}), "hidden_activation = gelu: "),
        (GEMMA_2[0], json!({"use_bidirectional_attention": true}), "use_bidirectional_attention = true: "),
        (GEMMA_2[0], json!({"final_logit_softcapping": 0.0}), "final_logit_softcapping = 0: "),
        (GEMMA_2[0], json!({"query_pre_attn_scalar": 0}), "query_pre_attn_scalar = 0: "),
        (GEMMA_2[0], json!({"attention_dropout": 0.1}), "attention_dropout = 0.1: "),
        (GEMMA_2[0], json!({"rope_local_base_freq": 1e4}), "rope_local_base_freq = 10000"),
        (GEMMA_2[0], json!({"layer_types": ["full_attention"]}), "layer_types = "),
        (GEMMA_3[0], json!({"attn_logit_softcapping": 50.0}), "attn_logit_softcapping = 50: "),
        (GEMMA_3[0], json!({"sliding_window_pattern": 0}), "sliding_window_pattern = 0: "),
        (
            GEMMA_3[0],
            json!({"rope_parameters": {"sliding_attention": {"rope_type": "linear", "factor": 2.0}}}),
            "rope_parameters = linear: ",
        ),
        (
            GEMMA_3[0],
            json!({"rope_parameters": {"full_attention": null, "chunked": {}}}),
            "rope_parameters = chunked: ",
        ),
        (GEMMA_3[0], json!({"num_hidden_layers": u64::MAX}), "layers = "),
        (GEMMA_3[0], json!({"model_type": "gemma3"}), "model_type = gemma3: it reads images, too"),
    ] {
        let message = changed(text, &changes).expect_err(starts).to_string();
        assert!(message.starts_with(starts), "{changes}: {message}");
    }
}

proptest! {
    /// Any field with any value is read or refused, and what is read is a legal model.
    #[test]
    fn no_value_panics(
        text in prop::sample::select(vec![GEMMA, GEMMA_2[0], GEMMA_3[0], GEMMA_3[1]]),
        pick in any::<prop::sample::Index>(),
        added in prop::sample::select(vec!["layer_types", "rope_parameters", "rope_scaling", "_sliding_window_pattern"]),
        add in any::<bool>(),
        value in prop_oneof![
            Just(Value::Null), any::<bool>().prop_map(Value::from), any::<u64>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from), any::<f64>().prop_map(Value::from), (0_u64..100).prop_map(Value::from),
            "\\PC{0,80}".prop_map(Value::from), Just(json!([])), Just(json!({})), Just(json!([1, 2, u64::MAX])),
            Just(json!({"full_attention": 3})), Just(json!({"sliding_attention": {"rope_theta": -1.0}})),
        ],
    ) {
        let mut map: Map<String, Value> = serde_json::from_str(text).unwrap();
        let fields: Vec<String> = map.keys().cloned().collect();
        let field = if add { added.to_owned() } else { fields[pick.index(fields.len())].clone() };
        map.insert(field, value);
        if let Ok(model) = Model::from_hugging_face(&Value::Object(map).to_string(), &[]) {
            prop_assert!(model.parameters() > 0);
        }
    }
}
