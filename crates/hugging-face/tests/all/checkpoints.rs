//! Folders of the library to checkpoints and back.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use quadrille_checkpoint::{About, Checkpoint, Draft, Quantity, TensorShape, Tile};
use quadrille_hugging_face::{
    COMPANIONS, Destination, ExportOptions, Family, HuggingFaceError, Imported, Source, StoredType, export, import,
    tensors,
};
use quadrille_spec::{Activation, Grid, Layout, LayoutRequest, Model, Norm, Positions, RealType};
use serde_json::{Value, json};

use crate::common::{FOLDERS, config, fixture, folder, in_both_forms, raw};

/// Every file of a folder, byte for byte.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let mut all = BTreeMap::new();
    for path in entries {
        if path.is_dir() {
            let inner = files(&path).into_iter();
            all.extend(inner.map(|(file, bytes)| (format!("{}/{file}", name(&path)), bytes)));
        } else {
            all.insert(name(&path), fs::read(&path).unwrap());
        }
    }
    all
}

fn imported(from: &Path, to: &Path) -> Result<Imported, HuggingFaceError> {
    import(&mut Source::open(from, &[])?, to)
}

#[test]
fn every_folder_comes_back_bit_by_bit_by_way_of_a_checkpoint() {
    for name in FOLDERS {
        let out = tempfile::tempdir().unwrap();
        let [checkpoints, model] = ["checkpoints", "model"].map(|name| out.path().join(name));
        let done = imported(&fixture(name), &checkpoints).unwrap();
        let checkpoint = Checkpoint::find(&checkpoints).unwrap();
        assert_eq!((checkpoint.path(), checkpoint.about().step), (done.checkpoint.as_path(), 0), "{name}");
        assert!(!checkpoint.has(Quantity::FirstMoment) && checkpoint.about().dtype == RealType::F32);
        let parameters: usize = checkpoint.tensors().iter().map(|shape| shape.rows * shape.cols).sum();
        assert_eq!(parameters as u64, done.parameters, "{name}");
        let (exported, notes) = export(checkpoint, &model, ExportOptions::default()).unwrap();
        assert!(notes.is_empty() && exported.rounded == 0, "{name}: {notes:?}");
        assert!(raw(&model) == raw(&fixture(name)), "{name}");
        assert_eq!(config(&model), in_both_forms(config(&fixture(name))), "{name}");
        // The other way round: what was exported is imported as the same, and exported again.
        let [second, again] = ["second", "again"].map(|name| out.path().join(name));
        imported(&model, &second).unwrap();
        let second = Checkpoint::find(&second).unwrap();
        let of_first = Checkpoint::find(&checkpoints).unwrap().about().model.clone();
        assert_eq!(second.about().model, Model { name: second.about().model.name.clone(), ..of_first }, "{name}");
        export(second, &again, ExportOptions::default()).unwrap();
        assert!(files(&again) == files(&model), "{name}");
    }
}

#[test]
fn companions_go_to_the_checkpoints_and_back() {
    let from = folder(&config(&fixture("llama")), &raw(&fixture("llama")));
    fs::write(from.path().join("tokenizer.json"), "{}").unwrap();
    fs::write(from.path().join("generation_config.json"), "[]").unwrap();
    let out = tempfile::tempdir().unwrap();
    let run = out.path().join("run");
    let done = imported(from.path(), &run.join("checkpoints")).unwrap();
    assert_eq!(done.copied, ["tokenizer.json", "generation_config.json"]);
    let again =
        |to: &str| export(Checkpoint::find(&run).unwrap(), &out.path().join(to), ExportOptions::default()).unwrap().0;
    assert_eq!(again("beside").copied, done.copied);
    // Beside the folder of checkpoints, where a run has them.
    for name in &done.copied {
        fs::rename(run.join("checkpoints").join(name), run.join(name)).unwrap();
    }
    assert_eq!(again("around").copied, done.copied);
    assert_eq!(fs::read_to_string(out.path().join("around/generation_config.json")).unwrap(), "[]");
}

/// The files around the weights that a folder of the library may have, with content that no program would write again alike.
#[test]
fn every_companion_survives_both_ways_byte_for_byte() {
    for name in ["llama-3.1", "qwen2", "gemma2", "mixtral", "gpt2", "llama-chat"] {
        let from = tempfile::tempdir().unwrap();
        for (file, bytes) in files(&fixture(name)) {
            fs::write(from.path().join(file), bytes).unwrap();
        }
        fs::create_dir(from.path().join("additional_chat_templates")).unwrap();
        let tools = "additional_chat_templates/tools.jinja";
        let kept: Vec<&str> = COMPANIONS.into_iter().chain([tools]).collect();
        for file in &kept {
            let path = from.path().join(file);
            if !path.exists() {
                fs::write(path, format!("{{  \"\\u00e9\": 1.50, \"of\": \"{file}\" }}\r\n\n")).unwrap();
            }
        }
        for file in ["README.md", "LICENSE", "modeling.py", ".gitattributes"] {
            fs::write(from.path().join(file), file).unwrap();
        }
        let out = tempfile::tempdir().unwrap();
        let [first, model, second, again] = ["first", "model", "second", "again"].map(|name| out.path().join(name));
        imported(from.path(), &first).unwrap();
        export(Checkpoint::find(&first).unwrap(), &model, ExportOptions::default()).unwrap();
        imported(&model, &second).unwrap();
        export(Checkpoint::find(&second).unwrap(), &again, ExportOptions::default()).unwrap();
        let before = files(from.path());
        let after = files(&model);
        let last = files(&again);
        for file in kept {
            assert!(before[file] == after[file] && before[file] == last[file], "{name}: {file}");
        }
        assert!(["README.md", "LICENSE", "modeling.py"].iter().all(|file| !after.contains_key(*file)));
        assert_eq!(config(&model), in_both_forms(config(from.path())), "{name}");
        assert_eq!(config(&again), config(&model), "{name}");
    }
}

/// A tokenizer whose vocabulary is an object, or a list of pieces with scores; ids are those of the files.
#[test]
fn a_model_from_scratch_has_the_special_tokens_of_its_tokenizer() {
    let model = Model::gpt(1, 8, 2, 300, 6);
    let out = tempfile::tempdir().unwrap();
    let object =
        json!({ "added_tokens": [{ "id": 7, "content": "<s>" }], "model": { "vocab": { "</s>": 3, "<pad>": 4 } } });
    let pieces = json!({ "added_tokens": [], "model": { "vocab": [["<unk>", 0.0], ["<s>", -1.5], ["</s>", -2.0]] } });
    let names = json!({ "bos_token": "<s>", "eos_token": { "content": "</s>" }, "pad_token": "<pad>" });
    let cases = [("object", object, json!([7, 3, 4])), ("pieces", pieces, json!([1, 2, null]))];
    for (number, (name, tokenizer, expected)) in cases.into_iter().enumerate() {
        for names_in in ["tokenizer_config.json", "special_tokens_map.json"] {
            let from = out.path().join(format!("{name}-{names_in}"));
            write::<f32>(&model, &from, None, |_| 0.5);
            fs::write(from.join("tokenizer.json"), tokenizer.to_string()).unwrap();
            fs::write(from.join(names_in), names.to_string()).unwrap();
            let to = out.path().join(format!("exported-{number}-{names_in}"));
            export(Checkpoint::find(&from).unwrap(), &to, ExportOptions::default()).unwrap();
            let generation: Value =
                serde_json::from_slice(&fs::read(to.join("generation_config.json")).unwrap()).unwrap();
            for (at, field) in ["bos_token_id", "eos_token_id", "pad_token_id"].into_iter().enumerate() {
                assert_eq!((&config(&to)[field], &generation[field]), (&expected[at], &expected[at]), "{name} {field}");
            }
            // It is imported as it is.
            imported(&to, &out.path().join(format!("again-{number}-{names_in}"))).unwrap();
        }
    }
    // Alone, a tokenizer has the tokens of usual names; also one with as many tokens as GPT-2, whose ids are others.
    let lone =
        json!({ "added_tokens": [{ "id": 7, "content": "<s>" }], "model": { "vocab": { "</s>": 3, "[PAD]": 4 } } });
    for (tokenizer, vocab, expected) in [
        (lone.clone(), 300, [json!(7), json!(3)]),
        (lone, 50_257, [json!(7), json!(3)]),
        (json!({ "added_tokens": [], "model": { "vocab": { "</s>": 3 } } }), 50_257, [Value::Null, json!(3)]),
    ] {
        let name = format!("lone-{vocab}-{}", expected[0]);
        let from = out.path().join(&name);
        write::<f32>(&Model::gpt(1, 8, 2, vocab, 6), &from, None, |_| 0.5);
        fs::write(from.join("tokenizer.json"), tokenizer.to_string()).unwrap();
        let to = out.path().join(name + "-exported");
        export(Checkpoint::find(&from).unwrap(), &to, ExportOptions::default()).unwrap();
        assert_eq!(["bos_token_id", "eos_token_id"].map(|field| config(&to)[field].clone()), expected);
    }
    // Without a tokenizer nothing is said.
    write::<f32>(&model, &out.path().join("plain"), None, |_| 0.5);
    let to = out.path().join("exported");
    export(Checkpoint::find(&out.path().join("plain")).unwrap(), &to, ExportOptions::default()).unwrap();
    assert!(config(&to)["eos_token_id"].is_null() && !to.join("generation_config.json").exists());
}

/// A model that has changed since its import keeps the imported special tokens.
#[test]
fn a_changed_model_keeps_its_special_tokens() {
    let source = Source::open(&fixture("llama-chat"), &[]).unwrap();
    let changed = source.model().reshaped(|m| m.seq_len = 12);
    let out = tempfile::tempdir().unwrap();
    let mut origin = source.origin().clone();
    origin.config["eos_token_id"] = json!([301, 303]);
    write::<f32>(&changed, &out.path().join("c"), Some(origin.to_value()), |_| 0.5);
    let to = out.path().join("exported");
    let (_, notes) = export(Checkpoint::find(&out.path().join("c")).unwrap(), &to, ExportOptions::default()).unwrap();
    assert!(notes[0].contains("the model has changed"), "{notes:?}");
    let written = config(&to);
    assert_eq!((&written["bos_token_id"], &written["pad_token_id"]), (&json!(300), &json!(304)));
    assert_eq!(written["eos_token_id"], json!([301, 303]));
}

/// Checkpoints of a run with another tokenizer have the special tokens of that tokenizer alone.
#[test]
fn special_tokens_are_of_the_tokenizer_that_was_read_last() {
    let source = Source::open(&fixture("llama-chat"), &[]).unwrap();
    let mut origin = source.origin().clone();
    origin.other_tokenizer = true;
    let out = tempfile::tempdir().unwrap();
    let changed = source.model().reshaped(|m| m.seq_len = 12);
    for (name, model) in [("same", source.model()), ("changed", &changed)] {
        let from = out.path().join(name);
        write::<f32>(model, &from, Some(origin.to_value()), |_| 0.5);
        let tokenizer = json!({ "added_tokens": [], "model": { "vocab": { "<s>": 5, "</s>": 6 } } });
        fs::write(from.join("tokenizer.json"), tokenizer.to_string()).unwrap();
        let to = out.path().join(format!("{name}-exported"));
        export(Checkpoint::find(&from).unwrap(), &to, ExportOptions::default()).unwrap();
        let written = config(&to);
        assert_eq!((&written["bos_token_id"], &written["eos_token_id"]), (&json!(5), &json!(6)), "{name}");
        assert!(written["pad_token_id"].is_null(), "{name}");
        let generation = fs::read_to_string(to.join("generation_config.json")).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&generation).unwrap()["eos_token_id"], 6, "{name}");
    }
}

/// Either version of the library reads the base and the scaling where it looks for them; this program reads either form alone.
#[test]
fn rotary_positions_are_written_for_both_versions_of_the_library() {
    let llama3 = json!({ "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32 });
    let linear = json!({ "rope_type": "linear", "factor": 8.0 });
    let out = tempfile::tempdir().unwrap();
    for (name, base, scaling, other) in [
        ("llama-3.1", ("rope_theta", 100.0), Some(llama3), None),
        ("llama", ("rope_theta", 10_000.0), None, None),
        ("qwen2", ("rope_theta", 10_000.0), None, None),
        ("mixtral", ("rope_theta", 1e6), None, None),
        ("gemma3", ("rope_theta", 500.0), Some(linear.clone()), Some(("rope_local_base_freq", 100.0))),
        ("phi3", ("rope_theta", 10_000.0), None, Some(("partial_rotary_factor", 0.5))),
        ("gpt-neox-parallel", ("rotary_emb_base", 10_000.0), None, Some(("rotary_pct", 0.5))),
        ("gpt-neox-scaled", ("rotary_emb_base", 10_000.0), Some(linear.clone()), Some(("rotary_pct", 0.5))),
    ] {
        let source = match name {
            "gpt-neox-scaled" => {
                let neox = fixture("gpt-neox-parallel");
                let mut scaled = config(&neox);
                scaled["rope_parameters"]["rope_type"] = linear["rope_type"].clone();
                scaled["rope_parameters"]["factor"] = linear["factor"].clone();
                Source::open(folder(&scaled, &raw(&neox)).path(), &[]).unwrap()
            }
            name => Source::open(&fixture(name), &[]).unwrap(),
        };
        for origin in [Some(source.origin()), None] {
            let made = Destination::new(source.model(), origin, None).unwrap().config().clone();
            let said = &made["rope_parameters"];
            let inner = said.get("full_attention").unwrap_or(said);
            assert_eq!((made[base.0].as_f64(), inner["rope_theta"].as_f64()), (Some(base.1), Some(base.1)), "{name}");
            if let Some(scaling) = &scaling {
                assert_eq!(&made["rope_scaling"], scaling, "{name}");
                assert!(scaling.as_object().unwrap().iter().all(|(field, value)| inner[field] == *value), "{name}");
            }
            if let Some((field, value)) = other {
                assert_eq!(made[field].as_f64(), Some(value), "{name}");
            }
            let without = |fields: &[&str]| {
                let mut config = made.clone();
                fields.iter().for_each(|field| drop(config.as_object_mut().unwrap().remove(*field)));
                let path = out.path().join("config.json");
                fs::write(&path, config.to_string()).unwrap();
                Model::from_hugging_face(&config.to_string(), &[]).unwrap()
            };
            let both = without(&[]);
            let older = [
                "rope_theta",
                "rope_scaling",
                "rope_local_base_freq",
                "partial_rotary_factor",
                "rotary_emb_base",
                "rotary_pct",
            ];
            assert_eq!((without(&["rope_parameters"]), without(&older)), (both.clone(), both), "{name}");
        }
    }
    // Forms that differ are refused: each version would compute another model.
    let mut config = in_both_forms(config(&fixture("llama-3.1")));
    for (place, wrong) in [("/rope_theta", json!(77.0)), ("/rope_scaling/factor", json!(2.0))] {
        let before = config.pointer(place).unwrap().clone();
        *config.pointer_mut(place).unwrap() = wrong;
        let message = Model::from_hugging_face(&config.to_string(), &[]).unwrap_err().to_string();
        assert!(message.contains("rope_parameters"), "{message}");
        *config.pointer_mut(place).unwrap() = before;
    }
}

#[test]
fn nothing_is_replaced_and_a_failure_leaves_nothing() {
    let out = tempfile::tempdir().unwrap();
    let checkpoints = out.path().join("checkpoints");
    imported(&fixture("llama"), &checkpoints).unwrap();
    let message = imported(&fixture("llama"), &checkpoints).unwrap_err().to_string();
    assert!(message.contains("none is replaced"), "{message}");

    let from = folder(&config(&fixture("llama")), &raw(&fixture("llama")));
    fs::write(from.path().join("tokenizer.json"), "{}").unwrap();
    let mut source = Source::open(from.path(), &[]).unwrap();
    // The file is cut after it was opened.
    let file = fs::OpenOptions::new().write(true).open(from.path().join("model.safetensors")).unwrap();
    file.set_len(50_000).unwrap();
    let other = out.path().join("other");
    let message = import(&mut source, &other).unwrap_err().to_string();
    assert!(message.contains("model.safetensors is damaged: it has become shorter"), "{message}");
    assert!(!other.exists());
}

/// Writes a checkpoint of these weights, in one tile for each tensor.
fn write<T: quadrille_checkpoint::Number>(
    model: &Model,
    folder: &Path,
    hugging_face: Option<Value>,
    number: impl Fn(usize) -> T,
) {
    let family = if model.classic().norm == Norm::Rms { Family::Llama } else { Family::Gpt2 };
    let tensors = tensors(model, family, true);
    let mut at = 0;
    let mut tile = |tensor: &quadrille_hugging_face::Tensor| {
        let rows = tensor.rows;
        let cols = tensor.cols;
        let tensor = tensor.name.clone();
        let numbers: Vec<T> = (at..at + rows * cols).map(&number).collect();
        at += rows * cols;
        (Tile { tensor, quantity: Quantity::Value, row: 0, col: 0, rows, cols }, Cow::Owned(numbers))
    };
    let tiles: Vec<(Tile, Cow<[T]>)> = tensors.iter().map(&mut tile).collect();
    let shapes: Vec<TensorShape> = tensors
        .iter()
        .map(|tensor| TensorShape { name: tensor.name.clone(), rows: tensor.rows, cols: tensor.cols })
        .collect();
    let layout = Layout::new(model, &LayoutRequest::new(Grid::new(1, 1, 1, 1).unwrap(), 1)).unwrap();
    let about = About {
        model: model.clone(),
        layout,
        dtype: T::TYPE,
        step: 7,
        samples: 0,
        tokens: 0,
        seed: 0,
        hyper: Value::Null,
        data: Value::Null,
        run: Value::Null,
        hugging_face,
    };
    let draft = Draft::begin(folder, 7).unwrap();
    draft.write(0, &tiles).unwrap();
    draft.commit(&about, &shapes, &[0]).unwrap();
}

/// A model of this program, in double precision, that was never imported.
#[test]
fn a_model_trained_from_scratch_is_exported_and_read_again() {
    let gpt = Model::gpt(2, 12, 3, 11, 7);
    let llama = gpt.reshaped(|m| {
        m.kv_heads = 1;
        m.tied_head = false;
        m.biases = false;
        m.norm = Norm::Rms;
        m.positions = Positions::Rotary;
        m.activation = Activation::Swiglu;
    });
    for (model, model_type) in [(gpt, "gpt2"), (llama, "llama")] {
        let out = tempfile::tempdir().unwrap();
        let [first, folder, second] = ["first", "folder", "second"].map(|name| out.path().join(name));
        write::<f64>(&model, &first, None, |index| index as f64 + 1.0 / 1024.0);
        let options = ExportOptions { shard_size: 2000, ..ExportOptions::default() };
        let (exported, notes) = export(Checkpoint::find(&first).unwrap(), &folder, options).unwrap();
        assert_eq!((exported.family.as_str(), exported.rounded, notes.len()), (model_type, 0, 0));
        assert!(exported.files.len() > 2);
        imported(&folder, &second).unwrap();
        let [first, second] = [first, second].map(|path| Checkpoint::find(&path).unwrap());
        let named = |model: &Model| Model { name: String::new(), ..model.clone() };
        assert_eq!(named(&second.about().model), named(&model));
        assert_eq!(first.tensors(), second.tensors());
        for shape in first.tensors() {
            let numbers = |checkpoint: &Checkpoint| checkpoint.whole::<f64>(&shape.name, Quantity::Value).unwrap();
            assert_eq!(numbers(&first), numbers(&second), "{}", shape.name);
        }
    }
}

#[test]
fn rounding_of_double_precision_is_counted() {
    let model = Model::gpt(1, 8, 2, 5, 6);
    let out = tempfile::tempdir().unwrap();
    write::<f64>(&model, &out.path().join("c"), None, |index| if index < 10 { 0.1 } else { 0.5 });
    let checkpoint = || Checkpoint::find(&out.path().join("c")).unwrap();
    let to = |dtype| ExportOptions { dtype: Some(dtype), ..ExportOptions::default() };
    for dtype in [StoredType::F32, StoredType::Bf16] {
        let (exported, _) = export(checkpoint(), &out.path().join(dtype.name()), to(dtype)).unwrap();
        assert_eq!((exported.rounded, exported.dtype), (10, dtype));
    }
    write::<f64>(&model, &out.path().join("large"), None, |_| 1e300);
    let large = Checkpoint::find(&out.path().join("large")).unwrap();
    let message = export(large, &out.path().join("x"), to(StoredType::F32)).unwrap_err().to_string();
    assert!(
        message.starts_with("tensor transformer.wte.weight holds 1e300, more than the largest number of f32"),
        "{message}"
    );
}

#[test]
fn what_cannot_be_exported_is_refused() {
    let out = tempfile::tempdir().unwrap();
    let at = |name: &str| out.path().join(name);
    let gpt = Model::gpt(1, 8, 2, 5, 6);
    write::<f32>(&gpt.reshaped(|m| m.biases = false), &at("plain"), None, |_| 0.5);
    let message =
        export(Checkpoint::find(&at("plain")).unwrap(), &at("x"), ExportOptions::default()).unwrap_err().to_string();
    assert_eq!(message, "biases = false: the linear layers of gpt2 have biases; export a model that the library has");
    write::<f32>(&gpt, &at("odd"), Some(json!({"config": 3})), |_| 0.5);
    let message =
        export(Checkpoint::find(&at("odd")).unwrap(), &at("x"), ExportOptions::default()).unwrap_err().to_string();
    assert!(message.starts_with("the checkpoint's record of its import cannot be read: "), "{message}");
    // A number of the first tensor is damaged.
    write::<f32>(&gpt, &at("damaged"), None, |_| 0.5);
    let file = at("damaged/step-000000000007/rank-00000.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&file, bytes).unwrap();
    let error = export(Checkpoint::find(&at("damaged")).unwrap(), &at("x"), ExportOptions::default()).unwrap_err();
    assert!(matches!(error, HuggingFaceError::Checkpoint(_)), "{error}");
    assert!(!at("x").exists());
}
