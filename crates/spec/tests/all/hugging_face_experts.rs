//! Mixtures of experts read from Hugging Face configurations: published ones exactly, everything else refused by name.

use proptest::prelude::*;
use quadrille_spec::{Block, ExpertGroups, Experts, Model, NormedOver, RotaryScaling, SpecError};
use serde_json::{Map, Value, json};

const KIMI: &str = include_str!("../data/hugging_face/kimi-k2.json");
const DEEPSEEK: &str = include_str!("../data/hugging_face/deepseek-v3.json");
const MIXTRAL: &str = include_str!("../data/hugging_face/mixtral-8x7b.json");
const OLMOE: &str = include_str!("../data/hugging_face/olmoe-1b-7b.json");
const QWEN3: &str = include_str!("../data/hugging_face/qwen3-30b-a3b.json");

/// The model of a configuration with other values of some fields, and other fields of the model.
fn read(text: &str, changes: Value, set: &[(&str, &str)]) -> Result<Model, SpecError> {
    let mut map: Map<String, Value> = serde_json::from_str(text).unwrap();
    map.extend(changes.as_object().unwrap().clone());
    let set: Vec<_> = set.iter().map(|(field, value)| ((*field).to_owned(), (*value).to_owned())).collect();
    Model::from_hugging_face(&Value::Object(map).to_string(), &set)
}

/// The experts of the last block.
fn experts(model: &Model) -> Experts {
    *model.blocks[model.layers() - 1].feed_forward.experts().unwrap()
}

/// By block, whether it has experts.
fn placed(model: &Model) -> Vec<bool> {
    model.blocks.iter().map(|block: &Block| block.feed_forward.experts().is_some()).collect()
}

#[test]
fn published_mixtures_have_their_parameters() {
    for (text, parameters, active) in [
        (DEEPSEEK, 671_026_419_200, 37_552_297_472),
        (MIXTRAL, 46_702_792_704, 12_879_925_248),
        (OLMOE, 6_919_161_856, 1_282_017_280),
        (QWEN3, 30_532_122_624, 3_353_032_704),
    ] {
        let model = read(text, json!({}), &[]).unwrap();
        assert_eq!((model.parameters(), model.active_parameters()), (parameters, active));
        let dense = if text == DEEPSEEK { 3 } else { 0 };
        assert!(placed(&model).iter().enumerate().all(|(at, has_experts)| *has_experts == (at >= dense)));
    }
    let mixtral = read(MIXTRAL, json!({}), &[]).unwrap();
    assert!(experts(&mixtral).router.normalize);
    let qwen3 = read(QWEN3, json!({}), &[]).unwrap();
    let attention = qwen3.blocks.first().attention;
    assert_eq!((attention.head_dim, attention.qk_norm.unwrap().rule.epsilon), (128, 1e-6));
    assert_eq!((experts(&qwen3).expert.width, experts(&qwen3).router.normalize), (768, true));
}

/// The library's loss is its coefficient times `k` once a model where loads are equal, the loss here its factor once a block.
#[test]
fn the_balance_loss_has_the_strength_of_the_configuration() {
    let factor = |text, changes, set: &[(&str, &str)]| {
        let model = read(text, changes, set).unwrap();
        (experts(&model).router.balance_loss, model.router_aux_loss_coef().unwrap())
    };
    for (text, changes, ours, theirs) in [
        (MIXTRAL, json!({}), 0.00125, 0.02),
        (MIXTRAL, json!({"num_hidden_layers": 2, "num_experts_per_tok": 4}), 0.04, 0.02),
        (MIXTRAL, json!({"router_aux_loss_coef": null}), 0.000_062_5, 0.001),
        (OLMOE, json!({}), 0.005, 0.01),
        (QWEN3, json!({}), 0.001 * 8.0 / 48.0, 0.001),
        // Experts in every second of 48 blocks, and of these not in two.
        (QWEN3, json!({"decoder_sparse_step": 2, "mlp_only_layers": [0, 1, 3]}), 0.001 * 8.0 / 22.0, 0.001),
        // DeepSeek's is a block's, as here.
        (DEEPSEEK, json!({"aux_loss_alpha": 0.0001}), 0.0001, 0.0001 * 58.0 / 8.0),
    ] {
        let found = factor(text, changes.clone(), &[]);
        let near = |found: f64, right: f64| (found - right).abs() <= 1e-15 * right;
        assert!(near(found.0, ours) && near(found.1, theirs), "{changes}: {found:?}");
    }
    // Fields that are replaced describe the configuration of another model, but for the factor, which is said as it is here.
    assert_eq!(factor(MIXTRAL, json!({}), &[("layers", "2"), ("experts_per_token", "4")]), (0.04, 0.02));
    assert_eq!(factor(MIXTRAL, json!({}), &[("balance_loss", "0.5")]), (0.5, 8.0));
    assert_eq!(factor(MIXTRAL, json!({}), &[("balance", "none")]), (0.0, 0.0));
    assert_eq!(Model::preset("gpt-demo").unwrap().router_aux_loss_coef(), None);
}

/// All queries are normed together, and all keys; weights of experts stay as their scores are.
#[test]
fn a_published_olmoe_is_the_preset_but_for_a_loss_that_its_configuration_does_not_know() {
    let read = |changes| read(OLMOE, changes, &[("router_z_loss", "0.001")]).unwrap();
    let olmoe = read(json!({}));
    assert_eq!(Model { name: "olmoe-1b-7b".to_owned(), ..olmoe.clone() }, Model::preset("olmoe-1b-7b").unwrap());
    let norm = olmoe.blocks.first().attention.qk_norm.unwrap();
    assert_eq!((norm.over, norm.rule.epsilon), (NormedOver::AllHeads, 1e-5));
    assert!(!experts(&olmoe).router.normalize);
    for changes in [
        json!({"router_aux_loss_coef": null, "num_key_value_heads": null, "rms_norm_eps": null, "norm_topk_prob": null}),
        json!({"head_dim": 128, "num_experts": null, "num_local_experts": 64, "num_experts_per_tok": null}),
    ] {
        assert_eq!(read(changes), olmoe, "defaults and other names");
    }
}

/// The code of DeepSeek-V3 with a name of its own: fewer heads, more experts without groups, one block without them.
#[test]
fn a_published_kimi_is_the_preset_but_for_longer_sequences() {
    let set = [("name", "kimi-k2"), ("seq_len", "4096")];
    let preset = Model::preset("kimi-k2").unwrap();
    assert_eq!(read(KIMI, json!({"rope_scaling": null}), &set).unwrap(), preset);
    let longer = read(KIMI, json!({}), &[]).unwrap();
    let yarn = RotaryScaling::Yarn { factor: 32.0, low: 1.0, high: 1.0, positions: 4096 };
    assert_eq!((longer.seq_len, longer.blocks.first().attention.rotary.unwrap().scaling), (131_072, yarn));
    assert_eq!(experts(&longer).router.groups, None);
}

/// Of the sequences that it was trained with; losses are not in its configuration, nor how biases move.
#[test]
fn a_published_deepseek_is_the_preset_but_for_longer_sequences() {
    let set = [("name", "deepseek-v3"), ("seq_len", "4096"), ("balance_loss", "0.0001")];
    let read = |changes, set: &[(&str, &str)]| read(DEEPSEEK, changes, set).unwrap();
    let preset = Model::preset("deepseek-v3").unwrap();
    assert_eq!(read(json!({"rope_scaling": null}), &set), preset);
    let longer = read(json!({}), &[]);
    assert_eq!(longer.seq_len, 163_840);
    let attention = longer.blocks.first().attention;
    let yarn = RotaryScaling::Yarn { factor: 40.0, low: 1.0, high: 32.0, positions: 4096 };
    assert_eq!(attention.rotary.unwrap().scaling, yarn);
    // (0.1 ln 40 + 1)^2
    assert!((attention.score_scale - 1.873_854_207_092_626_5).abs() < 1e-12, "{}", attention.score_scale);
    assert_eq!(experts(&longer).router.groups, Some(ExpertGroups { count: 8, chosen: 4 }));
    for changes in [
        json!({"rope_scaling": null, "rope_theta": null, "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0,
            "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096}}),
        json!({"head_dim": 64, "qk_head_dim": 192, "rope_interleave": true, "moe_layer_freq": null, "norm_topk_prob": null}),
        json!({"scoring_func": null, "topk_method": null, "seq_aux": true, "quantization_config": null}),
    ] {
        assert_eq!(read(changes.clone(), &[]), longer, "{changes}");
    }
    for field in
        ["n_group", "topk_group", "n_shared_experts", "first_k_dense_replace", "routed_scaling_factor", "q_lora_rank"]
    {
        let mut map: Map<String, Value> = serde_json::from_str(DEEPSEEK).unwrap();
        map.remove(field);
        let message = Model::from_hugging_face(&Value::Object(map).to_string(), &[]).unwrap_err().to_string();
        assert!(message.starts_with(&format!("{field} = none: a configuration of deepseek_v3 says it")), "{message}");
    }
    let open = read(json!({"n_group": 1, "topk_group": 1, "q_lora_rank": null, "first_k_dense_replace": 1}), &[]);
    assert_eq!((experts(&open).router.groups, open.blocks.first().attention.latent.unwrap().queries), (None, None));
    assert!(placed(&open)[1] && !placed(&open)[0]);
}

#[test]
fn nothing_is_dropped_unless_it_is_asked_for() {
    let factor = |text, set: &[(&str, &str)]| {
        let capacity = experts(&read(text, json!({}), set).unwrap()).capacity;
        capacity.map(|capacity| capacity.factor)
    };
    assert_eq!(factor(MIXTRAL, &[]), None);
    assert_eq!(factor(QWEN3, &[("experts", "6"), ("experts_per_token", "3")]), None);
    assert_eq!(factor(MIXTRAL, &[("capacity", "1.25")]), Some(1.25));
}

#[test]
fn blocks_without_experts_are_those_of_the_configuration() {
    let few = |changes: Value| {
        let mut all = json!({"num_hidden_layers": 6});
        all.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        let model = read(QWEN3, all, &[]).unwrap();
        let width = |block: &Block| block.feed_forward.dense().map_or(768, |dense| dense.width);
        (placed(&model), model.blocks.iter().map(width).collect::<Vec<_>>())
    };
    let (blocks, widths) = few(json!({"decoder_sparse_step": 2}));
    assert_eq!((blocks, widths), (vec![false, true, false, true, false, true], vec![6144, 768, 6144, 768, 6144, 768]));
    assert_eq!(few(json!({"mlp_only_layers": [0, 3, 9]})).0, [false, true, true, false, true, true]);
    let both = json!({"decoder_sparse_step": 3, "mlp_only_layers": [2, 4]});
    assert_eq!(few(both).0, [false, false, false, false, false, true]);
}

/// What is left out has the default of transformers, which differs between families.
#[test]
fn defaults_are_those_of_the_library() {
    let read = |text, changes| read(text, changes, &[]).unwrap();
    let mut bare: Map<String, Value> = serde_json::from_str(MIXTRAL).unwrap();
    for field in ["num_key_value_heads", "rms_norm_eps", "rope_theta", "num_experts_per_tok", "router_aux_loss_coef"] {
        bare.remove(field);
    }
    let bare = Value::Object(bare).to_string();
    let model = read(&bare, json!({}));
    let classic = model.classic();
    assert_eq!((classic.kv_heads, classic.norm_epsilon, classic.rotary_base), (8, 1e-5, 1e6));
    assert_eq!((experts(&model).per_token, experts(&model).router.balance_loss), (2, 0.001 * 2.0 / 32.0));
    assert_eq!(read(MIXTRAL, json!({"num_key_value_heads": null})).classic().kv_heads, 32);
    let newer = json!({"num_experts": null, "num_local_experts": 128});
    assert_eq!(read(QWEN3, newer), read(QWEN3, json!({})));
    let unnormalized = experts(&read(QWEN3, json!({"norm_topk_prob": null})));
    assert!(!unnormalized.router.normalize);
    let base = |changes| read(QWEN3, changes).classic().rotary_base;
    assert_eq!(base(json!({"rope_theta": null})), 10_000.0);
    // Biases of attention alone, and a head that is as wide as its part of the stream.
    let other = read(QWEN3, json!({"attention_bias": true, "head_dim": null}));
    let attention = other.blocks.first().attention;
    assert_eq!((attention.qkv_bias, attention.projection_bias, attention.head_dim), (true, true, 64));
    // A window that no sequence reaches, or that is switched off, is none.
    let windows = [json!({"sliding_window": 9}), json!({"use_sliding_window": true, "sliding_window": 40_960})];
    for window in windows {
        assert_eq!(read(QWEN3, window), read(QWEN3, json!({})));
    }
    for (text, window) in
        [(QWEN3, json!({"use_sliding_window": true, "sliding_window": 100})), (MIXTRAL, json!({"sliding_window": 100}))]
    {
        assert!(read(text, window).blocks.iter().all(|block| block.attention.window == Some(100)));
    }
    assert_eq!(read(MIXTRAL, json!({"head_dim": 64})).blocks.first().attention.head_dim, 64);
    assert_eq!(
        read(MIXTRAL, json!({"head_dim": null})),
        read(MIXTRAL, json!({"head_dim": null, "architectures": null}))
    );
}

#[test]
fn what_changes_the_computation_is_refused_by_name() {
    for (text, changes, starts) in [
        (MIXTRAL, json!({"router_jitter_noise": 0.1}), "router_jitter_noise = 0.1: "),
        (MIXTRAL, json!({"sliding_window": 0}), "sliding_window = 0: "),
        (MIXTRAL, json!({"num_local_experts": null}), "num_local_experts = none: "),
        (MIXTRAL, json!({"num_local_experts": 0}), "num_local_experts = 0: "),
        (MIXTRAL, json!({"num_local_experts": 1, "num_experts_per_tok": 2}), "experts = 1: "),
        (MIXTRAL, json!({"num_experts_per_tok": 1}), "num_experts_per_tok = 1: "),
        (MIXTRAL, json!({"num_experts_per_tok": 9}), "experts_per_token = 9: "),
        (MIXTRAL, json!({"hidden_act": "gelu"}), "hidden_act = gelu: "),
        (MIXTRAL, json!({"norm_topk_prob": true}), "norm_topk_prob = true: "),
        (MIXTRAL, json!({"shared_expert_intermediate_size": 3}), "shared_expert_intermediate_size = 3: "),
        (MIXTRAL, json!({"router_aux_loss_coef": -1.0}), "balance_loss = -1: "),
        (MIXTRAL, json!({"architectures": ["MixtralForTokenClassification"]}), "architectures = ["),
        (DEEPSEEK, json!({"attention_bias": true}), "attention_bias = true: "),
        (DEEPSEEK, json!({"num_key_value_heads": 8}), "num_key_value_heads = 8: "),
        (DEEPSEEK, json!({"qk_nope_head_dim": null}), "qk_nope_head_dim = none: "),
        (DEEPSEEK, json!({"qk_head_dim": 128}), "qk_head_dim = 128: it follows from the parts of a key: 192"),
        (DEEPSEEK, json!({"scoring_func": "softmax"}), "scoring_func = softmax: "),
        (DEEPSEEK, json!({"topk_method": "greedy"}), "topk_method = greedy: "),
        (DEEPSEEK, json!({"topk_group": 2}), "topk_group = 2: the 2 largest keys"),
        (DEEPSEEK, json!({"n_group": 6}), "n_group = 6: groups have equally many of 256 experts"),
        (DEEPSEEK, json!({"n_group": 4, "topk_group": 8}), "topk_group = 8: a token chooses some of the 4 groups"),
        (DEEPSEEK, json!({"n_group": 0}), "n_group = 0: "),
        (DEEPSEEK, json!({"rms_norm_eps": 1e-5}), "rms_norm_eps = 0.00001: norms of narrow rows have 1e-6"),
        (DEEPSEEK, json!({"moe_layer_freq": 2}), "moe_layer_freq = 2: "),
        (DEEPSEEK, json!({"n_routed_experts": null}), "n_routed_experts = none: "),
        (DEEPSEEK, json!({"n_routed_experts": 0}), "n_routed_experts = 0: some of its blocks have experts"),
        (
            DEEPSEEK,
            json!({"rope_scaling": {"type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096, "mscale": 1.0,
            "mscale_all_dim": 1.0, "beta_slow": 100.0}}),
            "rotary_low = 100: it lies above 0 and is at most rotary_high = 32",
        ),
        (DEEPSEEK, json!({"rope_theta": 3.0}), "rope_theta = 3: the waves of some pair fit at most 32 times into 4096"),
        (
            DEEPSEEK,
            json!({"rope_scaling": {"type": "linear"}}),
            "rope_scaling = {\"type\":\"linear\"}: rotary frequencies are scaled by YaRN or not at all: rope_type is \"yarn\" or \"default\"",
        ),
        (
            DEEPSEEK,
            json!({"rope_scaling": {"type": "yarn"}}),
            "factor = none: a configuration of deepseek_v3 with rope_scaling yarn says it",
        ),
        (
            DEEPSEEK,
            json!({"rope_scaling": {"type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 1.0}}),
            "original_max_position_embeddings = none: ",
        ),
        (
            DEEPSEEK,
            json!({"rope_scaling": {"type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096,
            "mscale": 0.7, "mscale_all_dim": 1.0}}),
            "mscale = 0.7: ",
        ),
        (
            DEEPSEEK,
            json!({"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}}),
            "factor = 4: sequences of 163840 are so many times as long",
        ),
        (DEEPSEEK, json!({"rope_scaling": {"type": "yarn", "factor": "40"}}), "factor = \"40\": it is a number"),
        (DEEPSEEK, json!({"rope_scaling": {"type": "yarn", "rope_type": "default", "factor": 40}}), "rope_scaling = {"),
        (
            DEEPSEEK,
            json!({"rope_scaling": {"type": "yarn", "factor": 4.0, "attention_factor": 1.0}}),
            "rope_scaling = attention_factor: YaRN has",
        ),
        (DEEPSEEK, json!({"index_topk": 2048}), "index_topk = 2048: no field of deepseek_v3"),
        (OLMOE, json!({"clip_qkv": 8.0}), "clip_qkv = 8: "),
        (OLMOE, json!({"head_dim": 64}), "head_dim = 64: "),
        (QWEN3, json!({"num_local_experts": 64}), "num_experts = 128: num_local_experts means the same, and it is 64"),
        (QWEN3, json!({"num_experts": null}), "num_experts = none: "),
        (QWEN3, json!({"num_experts": 0}), "num_experts = 0: "),
        (QWEN3, json!({"moe_intermediate_size": null}), "moe_intermediate_size = none: "),
        (QWEN3, json!({"decoder_sparse_step": 0}), "decoder_sparse_step = 0: "),
        (QWEN3, json!({"decoder_sparse_step": 49}), "decoder_sparse_step = 49: "),
        (QWEN3, json!({"decoder_sparse_step": 48, "mlp_only_layers": [47]}), "mlp_only_layers = 1 blocks: "),
        (QWEN3, json!({"mlp_only_layers": [-1]}), "mlp_only_layers = [-1]: it is a list of whole numbers"),
        (QWEN3, json!({"router_jitter_noise": 0.1}), "router_jitter_noise = 0.1: no field of qwen3_moe"),
        (
            QWEN3,
            json!({"rope_scaling": {"rope_type": "yarn"}}),
            "rope_scaling = {\"rope_type\":\"yarn\"}: rotary frequencies are scaled by rope_type \"linear\" or \"llama3\", or not at all; ",
        ),
    ] {
        let message = read(text, changes.clone(), &[]).expect_err(starts).to_string();
        assert!(message.starts_with(starts), "{changes}: {message}");
    }
}

proptest! {
    /// Any field with any value is read or refused, and what is read is a legal model.
    #[test]
    fn no_value_panics(
        text in prop::sample::select(vec![DEEPSEEK, MIXTRAL, OLMOE, QWEN3]), pick in any::<prop::sample::Index>(),
        value in prop_oneof![
            Just(Value::Null), any::<bool>().prop_map(Value::from), any::<u64>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from), any::<f64>().prop_map(Value::from), (0_u64..100).prop_map(Value::from),
            "\\PC{0,80}".prop_map(Value::from), Just(json!([])), Just(json!({})), Just(json!([1, 2, u64::MAX])),
        ],
    ) {
        let map: Map<String, Value> = serde_json::from_str(text).unwrap();
        let fields: Vec<&String> = map.keys().collect();
        let field = fields[pick.index(fields.len())].clone();
        if let Ok(model) = read(text, json!({field: value}), &[]) {
            prop_assert!(model.has_experts() && model.parameters() > 0);
        }
    }
}
