use proptest::prelude::*;

use super::*;
use crate::{Block, Blocks, Latent, NormedOver, QueryKeyNorm, RotaryScaling};

const SMALL: &str = "name = \"small\"\nlayers = 2\nhidden = 12\nheads = 3\nvocab = 7\nseq_len = 5\n";

fn with(overrides: &[(&str, &str)]) -> Result<Model, SpecError> {
    let owned: Vec<_> = overrides.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    Model::from_toml(SMALL, &owned)
}

#[test]
fn fields_left_out_have_their_usual_values() {
    let model = with(&[]).unwrap();
    assert_eq!((model.classic().ffn, model.tied_head, model.classic().biases), (48, true, true));
    assert_eq!((model.dropout, model.classic().norm_epsilon), (0.0, 1e-5));
}

#[test]
fn a_stated_ffn_stays_and_the_default_follows_hidden() {
    assert_eq!(with(&[("hidden", "24")]).unwrap().classic().ffn, 96);
    assert_eq!(with(&[("ffn", "30"), ("hidden", "24")]).unwrap().classic().ffn, 30);
}

#[test]
fn every_field_can_be_set_and_only_those() {
    let values = [
        "n", "3", "24", "6", "2", "72", "50_257", "9", "8", "false", "1.5", "20", "false", "0.25", "rms", "1e-6",
        "rotary", "5e5", "swiglu", "false", "10", "7", "0", "0", "0", "true", "false", "true", "false", "0", "0.5",
        "30", "rms", "4", "llama3", "8", "1", "4", "64", "both", "true", "parallel", "0.5", "8", "3", "10", "2", "1",
        "4", "sigmoid", "2", "1", "false", "2.5", "batch", "0.5", "0.001", "0.002", "1.25", "3", "score",
    ];
    let overrides: Vec<_> = ModelFile::FIELDS.into_iter().zip(values).collect();
    let message = with(&overrides).unwrap_err().to_string();
    assert!(message.contains("either tokens (vocab) or patches (patch_values)"), "{message}");
    let overrides: Vec<_> = overrides.into_iter().filter(|(field, _)| *field != "patch_values").collect();
    let model = with(&overrides).unwrap();
    assert_eq!((model.name.as_str(), model.layers(), model.hidden, model.classic().heads), ("n", 3, 24, 6));
    assert_eq!((model.classic().ffn, model.vocab, model.seq_len), (72, 50_257, 9));
    assert_eq!(
        (model.tied_head, model.classic().biases, model.dropout, model.classic().norm_epsilon),
        (false, true, 0.25, 1e-6)
    );
    assert_eq!(
        (model.classic().kv_heads, model.classic().norm, model.classic().positions),
        (2, Norm::Rms, Positions::Rotary)
    );
    assert_eq!(
        (model.classic().rotary_base, model.classic().activation, model.classic().causal),
        (5e5, Activation::Swiglu, false)
    );
    assert_eq!((model.embedding_scale, model.logit_cap), (1.5, Some(20.0)));
    let Block { attention, feed_forward, .. } = *model.blocks.first();
    let perceptron = feed_forward.dense().unwrap();
    assert_eq!((attention.head_dim, attention.value_dim, attention.latent), (10, 7, None));
    assert_eq!((attention.window, attention.score_scale, attention.cap), (None, 0.5, Some(30.0)));
    assert_eq!((attention.qkv_bias, attention.projection_bias), (true, false));
    assert_eq!((perceptron.up_bias, perceptron.down_bias), (true, false));
    assert_eq!(attention.qk_norm, Some(QueryKeyNorm { rule: model.final_norm, over: NormedOver::Head }));
    // Blocks 2, 4, ... have experts.
    let experts = |block: usize| model.blocks[block].feed_forward.experts().is_some();
    assert_eq!([0, 1, 2].map(experts), [false, false, true]);
    let message = with(&[("width", "3")]).unwrap_err().to_string();
    assert_eq!(message, format!("unknown model field 'width'; known: {}", ModelFile::FIELDS.join(", ")));
}

#[test]
fn blocks_differ_by_tables_and_by_keys() {
    let text = format!("{SMALL}window = 4\nqk_norm = \"rms\"\n")
        + "[[blocks]]\nfrom = 1\nevery = 2\nwindow = 0\n[[blocks]]\nat = [0]\nffn = 9\nhead_dim = 6\n";
    let text = text.replace("layers = 2", "layers = 5");
    let model = Model::from_toml(&text, &[("blocks.4.causal".to_owned(), "true".to_owned())]).unwrap();
    let windows: Vec<_> = model.blocks.iter().map(|block| block.attention.window.unwrap_or(0)).collect();
    assert_eq!(windows, [4, 0, 4, 0, 4]);
    let width = |block: usize| model.blocks[block].feed_forward.dense().unwrap().width;
    assert_eq!((width(0), width(2)), (9, 48));
    assert_eq!((model.blocks[0].attention.width(), model.blocks[4].attention.width()), (18, 12));
    assert_eq!(model.blocks.kinds().len(), 3);
    let again = toml::to_string(&model).unwrap();
    assert_eq!(Model::from_toml(&again, &[]).unwrap(), model, "{again}");
    let (field, value) = model.beyond_classic().unwrap();
    assert_eq!((field, value.as_str()), ("window", "4"));
    let by_key = with(&[("blocks.0/2.heads", "6"), ("blocks.1.norm", "rms")]).unwrap();
    assert_eq!([0, 1].map(|block| by_key.blocks[block].attention.heads), [6, 3]);
    assert_eq!([0, 1].map(|block| by_key.blocks[block].norm.kind), [Norm::Layer, Norm::Rms]);
    // More heads of the same width, which is the stream's share of the first block's heads only.
    let more = with(&[("blocks.1.heads", "6"), ("blocks.1.head_dim", "4")]).unwrap();
    assert_eq!([0, 1].map(|block| more.blocks[block].attention.head_dim), [4, 4]);
    assert_eq!(Model::from_toml(&toml::to_string(&more).unwrap(), &[]).unwrap(), more);
    let refused = |key: &str, value: &str| with(&[(key, value)]).unwrap_err().to_string();
    assert!(refused("blocks.2.heads", "6").contains("the model has no such block"));
    assert!(refused("blocks.0.hidden", "6").contains("unknown field of a block 'hidden'"));
    assert!(refused("blocks.x.heads", "6").contains("`model.blocks.3.window`=1024"));
    assert!(refused("blocks.0.positions", "learned").contains("for all blocks"));
    assert!(refused("blocks.1.heads", "5").contains("does not divide hidden"));
}

#[test]
fn embedded_tokens_have_a_factor_and_logits_a_cap() {
    let usual = with(&[]).unwrap();
    assert_eq!((usual.embedding_scale, usual.logit_cap), (1.0, None));
    assert_eq!(with(&[("embedding_scale", "1"), ("logit_cap", "0")]).unwrap(), usual);
    for (field, value) in [("embedding_scale", "3.5"), ("logit_cap", "30")] {
        let model = with(&[(field, value)]).unwrap();
        assert_eq!(Model::from_toml(&toml::to_string(&model).unwrap(), &[]).unwrap(), model);
        assert_eq!(model.beyond_classic(), Some((field, value.to_owned())));
        let in_a_table = with(&[(&format!("blocks.1.{field}"), value)]).unwrap_err().to_string();
        assert!(in_a_table.starts_with(&format!("unknown field of a block '{field}'")), "{in_a_table}");
        let patches = SMALL.replace("vocab = 7", "patch_values = 3");
        let refused = Model::from_toml(&patches, &[(field.to_owned(), value.to_owned())]).unwrap_err().to_string();
        assert!(refused.starts_with(&format!("{field} = {value}: it is of tokens")), "{refused}");
    }
    for (field, value) in
        [("embedding_scale", "0"), ("embedding_scale", "nan"), ("logit_cap", "-1"), ("logit_cap", "nan")]
    {
        let refused = with(&[(field, value)]).unwrap_err().to_string();
        assert!(refused.to_lowercase().starts_with(&format!("{field} = {value}: ")), "{refused}");
    }
}

#[test]
fn attention_may_go_by_way_of_narrow_rows() {
    let latent = [("head_dim", "6"), ("value_dim", "5"), ("key_value_latent", "8"), ("shared_key", "2")];
    let model = with(&latent).unwrap();
    let attention = model.blocks.first().attention;
    assert_eq!(attention.latent, Some(Latent { queries: None, keys_values: 8, shared_key: 2 }));
    assert_eq!((attention.queries_width(), attention.width(), attention.qkv_bias), (18, 15, false));
    let names: Vec<_> = model.all_parameters().filter(|it| it.block == Some(0)).skip(2).take(6).collect();
    let shapes = names.iter().map(|it| (it.name(), [it.rows, it.cols])).collect::<Vec<_>>();
    let expected = [
        ("block.0.queries.weight", [12, 18]),
        ("block.0.key_value_latent.weight", [12, 8]),
        ("block.0.key_value_latent_norm.gamma", [1, 8]),
        ("block.0.key_value_latent_norm.beta", [1, 8]),
        ("block.0.keys_values.weight", [8, 27]),
        ("block.0.shared_key.weight", [12, 2]),
    ];
    assert_eq!(shapes, expected.map(|(name, shape)| (name.to_owned(), shape)));

    let mixed = with(&[&latent[..], &[("query_latent", "4"), ("blocks.1.key_value_latent", "0")]].concat()).unwrap();
    let latents = [0, 1].map(|block| mixed.blocks[block].attention.latent);
    assert_eq!(latents, [Some(Latent { queries: Some(4), keys_values: 8, shared_key: 2 }), None]);
    for model in [&model, &mixed] {
        assert_eq!(Model::from_toml(&toml::to_string(model).unwrap(), &[]).as_ref(), Ok(model));
        assert_eq!(model.beyond_classic().unwrap(), ("key_value_latent", "8".to_owned()));
    }

    let refused = |more: &[(&str, &str)]| with(&[&latent[..], more].concat()).unwrap_err().to_string();
    let bare = with(&[("head_dim", "1"), ("key_value_latent", "8"), ("shared_key", "1")]).unwrap_err().to_string();
    assert!(bare.starts_with("head_dim = 1: all heads share a part of a key's columns"), "{bare}");
    assert!(refused(&[("shared_key", "0")]).ends_with("use a number above 0 and below 6"));
    assert!(
        refused(&[("kv_heads", "1")]).starts_with("kv_heads = 1: in latent attention each of the 3 heads has a key")
    );
    assert!(refused(&[("qkv_bias", "true")]).contains("have no biases"));
    assert!(refused(&[("shared_key", "6")]).starts_with("shared_key = 6: it is a part of a key's 6 columns"));
    let taken_back = with(&[&latent[..], &[("key_value_latent", "0")]].concat()).unwrap();
    assert_eq!(taken_back.blocks.first().attention.latent, None);
    assert!(
        refused(&[("key_value_latent", "0"), ("shared_key", "2")])
            .starts_with("shared_key = 2: it is said of latent attention")
    );
    assert!(refused(&[("value_dim", "0")]).starts_with("value_dim = 0: it must lie in"));
    assert!(
        with(&[("query_latent", "4")]).unwrap_err().to_string().starts_with("query_latent = 4: it is said of latent")
    );
}

/// Remedies said "leave it out" of fields that all blocks have, which a table can only give another value.
#[test]
fn remedies_of_latent_attention_can_be_followed_in_a_table() {
    let of_all = [("heads", "6"), ("kv_heads", "2"), ("qkv_bias", "true")];
    let mut said = vec![("blocks.1.key_value_latent", "8"), ("blocks.1.shared_key", "1")];
    for (field, remedy, value) in [("kv_heads", "use 6", "6"), ("qkv_bias", "use false", "false")] {
        let message = with(&[&of_all[..], &said].concat()).unwrap_err().to_string();
        assert!(message.starts_with(field) && message.ends_with(remedy), "{message}");
        said.push((if field == "kv_heads" { "blocks.1.kv_heads" } else { "blocks.1.qkv_bias" }, value));
    }
    let model = with(&[&of_all[..], &said].concat()).unwrap();
    assert_eq!([0, 1].map(|block| model.blocks[block].attention.kv_heads), [2, 6]);
}

#[test]
fn rules_of_scaled_frequencies_have_their_usual_numbers_and_survive_a_round_trip() {
    let rotary = [("hidden", "24"), ("positions", "rotary"), ("rotary_factor", "8")];
    let scaled = |more: &[(&str, &str)]| {
        let model = with(&[&rotary[..], more].concat())?;
        let again = toml::to_string(&model).unwrap();
        assert_eq!(Model::from_toml(&again, &[]).as_ref(), Ok(&model), "{again}");
        Ok::<_, SpecError>(model.blocks.first().attention.rotary.unwrap().scaling)
    };
    let factor = 8.0;
    let low = 1.0;
    let positions = 8192;
    let rule = |name: &'static str| ("rotary_scaling", name);
    assert_eq!(scaled(&[rule("none")]), Ok(RotaryScaling::None));
    assert_eq!(scaled(&[rule("linear")]), Ok(RotaryScaling::Linear { factor }));
    assert_eq!(scaled(&[rule("llama3")]), Ok(RotaryScaling::Llama3 { factor, low, high: 4.0, positions }));
    assert_eq!(scaled(&[rule("yarn")]), Ok(RotaryScaling::Yarn { factor, low, high: 32.0, positions }));
    let own = [rule("yarn"), ("rotary_low", "0.5"), ("rotary_high", "2"), ("rotary_positions", "20")];
    assert_eq!(scaled(&own), Ok(RotaryScaling::Yarn { factor, low: 0.5, high: 2.0, positions: 20 }));
    let met = scaled(&[rule("yarn"), ("rotary_low", "32")]);
    assert_eq!(met, Ok(RotaryScaling::Yarn { factor, low: 32.0, high: 32.0, positions }));
    for (name, low, words) in
        [("yarn", "33", "is at most rotary_high = 32"), ("llama3", "4", "is below rotary_high = 4")]
    {
        let refused = scaled(&[rule(name), ("rotary_low", low)]).unwrap_err().to_string();
        assert!(refused.starts_with(&format!("rotary_low = {low}: it lies above 0 and {words}")), "{refused}");
        assert!(refused.ends_with(&format!("use e.g. 1 and {}", words.split(" = ").nth(1).unwrap())), "{refused}");
    }
}

#[test]
fn scaled_frequencies_that_nothing_has_are_refused() {
    let message = |fields: &[(&str, &str)]| with(&[&[("hidden", "24")], fields].concat()).unwrap_err().to_string();
    let turning = ("positions", "rotary");
    let yarn = ("rotary_scaling", "yarn");
    let factor = ("rotary_factor", "4");
    assert!(message(&[yarn, factor]).starts_with("rotary_scaling = yarn: it is said of rotary positions"));
    for (field, value, text) in [
        ("rotary_factor", "nan", "NaN"),
        ("rotary_low", "1", "1"),
        ("rotary_high", "2", "2"),
        ("rotary_positions", "64", "64"),
    ] {
        let of = message(&[(field, value)]);
        assert!(
            of.starts_with(&format!("{field} = {text}: it is said of rotary positions, and there are none")),
            "{of}"
        );
        let of = message(&[turning, (field, value)]);
        assert!(
            of.starts_with(&format!("{field} = {text}: it is said of scaled frequencies, and there are none")),
            "{of}"
        );
    }
    let linear = message(&[turning, ("rotary_scaling", "linear"), factor, ("rotary_high", "2")]);
    assert_eq!(
        linear,
        "rotary_high = 2: linear scaling has rotary_factor alone; leave it out, or use another rotary_scaling"
    );
    let none = message(&[turning, ("rotary_high", "2")]);
    assert!(none.ends_with("; leave it out, or give `model.rotary_scaling`"), "{none}");
    // A block may turn nothing, or turn as before.
    let mixed = with(&[("hidden", "24"), turning, yarn, factor, ("blocks.1.positions", "none")]).unwrap();
    assert_eq!(mixed.blocks[1].attention.rotary, None);
    let own = [
        ("hidden", "24"),
        turning,
        factor,
        ("rotary_scaling", "yarn"),
        ("rotary_high", "9"),
        ("rotary_positions", "64"),
    ];
    for rule in [RotaryRule::None, RotaryRule::Linear, RotaryRule::Llama3, RotaryRule::Yarn] {
        let name = rule.to_string();
        let mixed = with(&[&own[..], &[("blocks.1.rotary_scaling", &name)]].concat()).unwrap();
        assert_eq!(mixed.blocks[1].attention.rotary.unwrap().scaling.rule(), rule);
        assert_eq!(Model::from_toml(&toml::to_string(&mixed).unwrap(), &[]).unwrap(), mixed);
        let turned = Blocks::new(mixed.blocks[1], [mixed.blocks[0]]);
        let turned = Model { blocks: turned, ..mixed };
        assert_eq!(Model::from_toml(&toml::to_string(&turned).unwrap(), &[]).unwrap(), turned);
    }
    // Beside learned positions, too.
    let both =
        [("blocks.0/1.positions", "rotary"), ("blocks.0/1.rotary_scaling", "yarn"), ("blocks.0/1.rotary_factor", "4")];
    let both = with(&[&[("hidden", "24")], &both[..]].concat()).unwrap();
    assert!(both.learned_positions && both.blocks.first().attention.rotary.is_some());
    assert_eq!(Model::from_toml(&toml::to_string(&both).unwrap(), &[]).unwrap(), both);
    // What is taken back is as if it was never said.
    let back = with(&[("hidden", "24"), turning, yarn, factor, ("rotary_scaling", "none")]).unwrap();
    assert_eq!(back.blocks.first().attention.rotary.unwrap().scaling, RotaryScaling::None);
}

/// The columns that turn, of latent attention where `rotary_dim` is left out those that all heads share.
#[test]
fn shared_columns_of_keys_turn() {
    let latent = [("head_dim", "6"), ("key_value_latent", "8"), ("shared_key", "2"), ("positions", "rotary")];
    let turning = |more: &[(&str, &str)]| {
        let model = with(&[&latent[..], more].concat()).unwrap();
        let again = toml::to_string(&model).unwrap();
        assert_eq!(Model::from_toml(&again, &[]).as_ref(), Ok(&model), "{again}");
        [0, 1].map(|block| model.blocks[block].attention.rotary.map(|rotary| rotary.columns))
    };
    let other = ("blocks.0.key_value_latent", "0");
    assert_eq!(turning(&[]), [Some(2); 2]);
    assert_eq!(turning(&[("rotary_dim", "4")]), [Some(4); 2]);
    assert_eq!(turning(&[("rotary_dim", "0")]), [Some(6); 2]);
    assert_eq!(turning(&[other]), [Some(6), Some(2)]);
    assert_eq!(turning(&[other, ("rotary_dim", "0")]), [Some(6); 2]);
    assert_eq!(turning(&[other, ("blocks.1.rotary_dim", "6")]), [Some(6); 2]);
    assert_eq!(turning(&[("blocks.1.key_value_latent", "0")]), [Some(2), Some(6)]);
    assert_eq!(turning(&[("blocks.0.positions", "none")]), [None, Some(2)]);
    assert_eq!(turning(&[("blocks.1.shared_key", "4")]), [Some(2), Some(4)]);
    let odd = with(&[&latent[..], &[("shared_key", "3")]].concat()).unwrap_err().to_string();
    assert!(odd.starts_with("shared_key = 3: rotary positions turn pairs") && odd.contains("rotary_dim"), "{odd}");
    assert_eq!(turning(&[("shared_key", "3"), ("rotary_dim", "2")]), [Some(2); 2]);
}

#[test]
fn refusals_name_field_value_rule_and_remedy() {
    let message = |field, value| with(&[(field, value)]).unwrap_err().to_string();
    assert_eq!(message("heads", "5"), "heads=5 does not divide hidden = 12; try heads=4 or 6");
    assert_eq!(message("layers", "0"), "layers = 0: it must lie in 1..=8192; give a positive number");
    assert_eq!(message("hidden", "-1"), "hidden = '-1': it must be a whole number; write `model.hidden`=...");
    assert_eq!(message("dropout", "1"), "dropout = 1: a rate lies in [0, 1); use e.g. 0.1, or 0");
    assert!(message("dropout", "NaN").contains("[0, 1)"));
    assert!(message("norm_epsilon", "0").contains("(0, 1]"));
    assert!(message("norm_epsilon", "inf").contains("(0, 1]"));
    assert!(message("name", "").contains("1 to 100 printable"));
    assert!(message("tied_head", "maybe").contains("true or false"));
    assert_eq!(message("kv_heads", "2"), "kv_heads=2 does not divide heads = 3; try kv_heads=1 or 3");
    assert!(message("norm", "batch").contains("unknown norm 'batch'; known: layer, rms"));
    assert!(message("rotary_base", "0").contains("1..=1e12"));
    let rotary = with(&[("heads", "4"), ("positions", "rotary")]).unwrap_err().to_string();
    assert!(rotary.contains("a head has 3"), "{rotary}");
    assert!(message("vocab", "99999999999999999999").contains("whole number"));
}

#[test]
fn faults_of_a_file_name_their_line() {
    let message = |text: &str| Model::from_toml(text, &[]).unwrap_err().to_string();
    let unknown = message(&format!("{SMALL}width = 3\n"));
    assert!(unknown.contains("'width = 3': line 7: unknown field `width`, expected one of `name`"), "{unknown}");
    let missing = message(&SMALL.replace("heads = 3\n", ""));
    assert!(missing.contains("missing field `heads`"), "{missing}");
    let wrong = message(&SMALL.replace("= 12", "= \"wide\""));
    assert!(wrong.contains("'hidden = \"wide\"': line 3: invalid type"), "{wrong}");
    let listed = message(&format!("{SMALL}[[blocks]]\nat = [1]\nwindow = [3]\n"));
    assert!(listed.contains("a number, text in quotes, true or false"), "{listed}");
    assert_eq!(Model::from_toml(&SMALL.replace("= 12", "= 12.0"), &[]), Model::from_toml(SMALL, &[]));
}

#[test]
fn a_model_of_patches_has_no_vocabulary_and_sees_everything() {
    let text = SMALL.replace("vocab = 7", "patch_values = 20");
    let model = Model::from_toml(&text, &[]).unwrap();
    assert_eq!((model.vocab, model.patch_values, model.tied_head, model.classic().causal), (0, Some(20), false, false));
    let tied = Model::from_toml(&text, &[("tied_head".to_owned(), "true".to_owned())]).unwrap_err().to_string();
    assert!(tied.contains("no table of tokens"), "{tied}");
    let neither = Model::from_toml(&SMALL.replace("vocab = 7\n", ""), &[]).unwrap_err().to_string();
    assert!(neither.contains("give one of them"), "{neither}");
}

#[test]
fn the_largest_sizes_do_not_overflow() {
    let sizes = [("layers", MAX_LAYERS), ("hidden", MAX_HIDDEN), ("ffn", MAX_FFN), ("vocab", MAX_VOCAB)];
    let mut file = ModelFile::from_toml(SMALL).unwrap();
    for (field, size) in sizes.into_iter().chain([("seq_len", MAX_SEQ_LEN), ("heads", 1)]) {
        file.set(field, &size.to_string()).unwrap();
    }
    let file = ModelFile { tied_head: Some(false), activation: Activation::Swiglu, ..file };
    let model = file.validate().unwrap();
    // Parameter, gradient and two moments in f64.
    assert!(model.parameters().checked_mul(4 * 8).is_some());
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,200}", field in "[a-z_]{0,8}", value in "\\PC{0,20}") {
        let _ = Model::from_toml(&text, &[(field.clone(), value.clone())]);
        let _ = Model::from_toml(SMALL, &[(field, value)]);
    }

    #[test]
    fn no_values_panic_and_what_is_accepted_survives_a_round_trip(
        sizes in prop::collection::vec(prop_oneof![20 => 1_usize..70, 1 => Just(0), 1 => any::<usize>()], 6),
        dropout in any::<f64>(),
        epsilon in any::<f64>(),
        flags in any::<[bool; 3]>(),
    ) {
        let file = ModelFile {
            name: "any".to_owned(),
            layers: sizes[0],
            hidden: if flags[2] { sizes[1] } else { sizes[1].saturating_mul(sizes[2]) },
            heads: sizes[2],
            kv_heads: flags[1].then_some(sizes[3]),
            ffn: flags[0].then_some(sizes[3]),
            vocab: flags[0].then_some(sizes[4]),
            seq_len: sizes[5],
            patch_values: (!flags[0]).then_some(sizes[4]),
            tied_head: flags[0].then_some(flags[1]),
            biases: flags[2],
            dropout: if flags[0] { dropout } else { 0.1 },
            norm: if flags[1] { Norm::Rms } else { Norm::Layer },
            norm_epsilon: if flags[2] { epsilon } else { 1e-6 },
            positions: if flags[2] { Positions::Rotary } else { Positions::Learned },
            rotary_base: flags[2].then_some(epsilon),
            activation: if flags[1] { Activation::Swiglu } else { Activation::Gelu },
            causal: Some(flags[2]),
            ..ModelFile::default()
        };
        if let Ok(model) = file.validate() {
            prop_assert!(model.classic().head_dim() * model.classic().heads == model.hidden && model.parameters() > 0);
            let text = toml::to_string(&model).unwrap();
            prop_assert_eq!(Model::from_toml(&text, &[]).unwrap(), model);
        }
    }
}

/// Every position of a model of tokens predicts the next token, which it may not read.
#[test]
fn only_models_of_patches_attend_to_later_positions_when_they_are_trained() {
    let text = "name = 'm'\nlayers = 3\nhidden = 12\nheads = 3\nseq_len = 8\n";
    let model = |lines: &str| Model::from_toml(&format!("{text}{lines}"), &[]).unwrap();
    for lines in ["vocab = 17\n", "patch_values = 6\n", "patch_values = 6\ncausal = true\n"] {
        assert_eq!(model(lines).check_next_token(), Ok(()), "{lines}");
    }
    for (lines, field) in [
        ("vocab = 17\ncausal = false\n", "causal"),
        ("vocab = 17\n[[blocks]]\nat = [1]\ncausal = false\n", "blocks.1.causal"),
    ] {
        let message = model(lines).check_next_token().unwrap_err().to_string();
        assert!(message.starts_with(&format!("{field} = false: the next token is predicted")), "{message}");
        assert!(message.contains(&format!("use {field} = true")), "{message}");
    }
}
