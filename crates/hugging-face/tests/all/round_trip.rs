//! What is read and written again is what it was: every bit, the names, the types, the configuration.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use quadrille_hugging_face::{Destination, Exported, HuggingFaceError, Origin, Source, StoredType};
use quadrille_spec::Model;
use safetensors::Dtype;
use serde_json::json;

use crate::common::{FOLDERS, Raw, config, fixture, folder, in_both_forms, raw};

const LARGE: u64 = 5_000_000_000;

/// Reads a folder and writes it again.
fn round_trip(
    from: &Path,
    to: &Path,
    shard_size: u64,
    dtype: Option<StoredType>,
) -> Result<Exported, HuggingFaceError> {
    let mut source = Source::open(from, &[])?;
    let origin = source.origin().clone();
    let destination = Destination::new(source.model(), Some(&origin), dtype)?;
    assert!(destination.notes().is_empty(), "{:?}", destination.notes());
    destination.write(to, shard_size, Some(from), |tensor| {
        let index = source.tensors().iter().position(|other| other.name == tensor.name).unwrap();
        source.read(index)
    })
}

#[test]
fn every_folder_comes_back_bit_by_bit() {
    for name in FOLDERS {
        let out = tempfile::tempdir().unwrap();
        let to = out.path().join("model");
        let exported = round_trip(&fixture(name), &to, LARGE, None).unwrap();
        assert_eq!((exported.rounded, exported.not_finite), (0, 0), "{name}");
        assert_eq!(exported.files, ["model.safetensors"], "{name}");
        assert!(raw(&to) == raw(&fixture(name)), "{name}");
        assert_eq!(config(&to), in_both_forms(config(&fixture(name))), "{name}");
        assert_eq!(fs::read_dir(out.path()).unwrap().count(), 1, "nothing is left beside it");
    }
}

/// All experts of a block in one tensor, as the library's modules have them, are written one by one.
#[test]
fn experts_in_one_tensor_come_back_each_with_its_own() {
    for name in ["mixtral", "olmoe"] {
        let out = tempfile::tempdir().unwrap();
        let to = out.path().join("model");
        round_trip(&fixture(&format!("{name}-fused")), &to, LARGE, None).unwrap();
        assert!(raw(&to) == raw(&fixture(name)), "{name}");
    }
}

#[test]
fn shards_and_their_index_come_back_too() {
    let from = fixture("llama-sharded");
    let out = tempfile::tempdir().unwrap();
    let [to, again] = ["model", "again"].map(|name| out.path().join(name));
    let exported = round_trip(&from, &to, 20_000, None).unwrap();
    assert_eq!(exported.files.len(), 3);
    for file in &exported.files {
        assert!(fs::metadata(to.join(file)).unwrap().len() < 22_000, "{file}");
    }
    let index: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(to.join("model.safetensors.index.json")).unwrap()).unwrap();
    assert_eq!(index["metadata"], json!({"total_parameters": 13_216, "total_size": 52_864}));
    assert_eq!(index["weight_map"].as_object().unwrap().len(), raw(&from).len());
    assert!(raw(&to) == raw(&from));
    round_trip(&to, &again, LARGE, None).unwrap();
    assert!(raw(&again) == raw(&from));
}

/// As older versions stored GPT-2: without the prefix, with masks, and with the tied head.
#[test]
fn older_names_are_read_and_given_back() {
    let mut tensors: BTreeMap<String, Raw> = raw(&fixture("gpt2"))
        .into_iter()
        .map(|(name, raw)| (name.trim_start_matches("transformer.").to_owned(), raw))
        .collect();
    tensors.insert("lm_head.weight".to_owned(), tensors["wte.weight"].clone());
    let stored = tensors.clone();
    tensors.insert("h.0.attn.bias".to_owned(), (Dtype::BOOL, vec![1, 1, 16, 16], vec![1; 256]));
    tensors.insert("h.0.attn.masked_bias".to_owned(), (Dtype::F32, vec![], vec![0; 4]));
    let old = folder(&config(&fixture("gpt2")), &tensors);
    let source = Source::open(old.path(), &[]).unwrap();
    assert_eq!(source.ignored(), ["h.0.attn.bias", "h.0.attn.masked_bias"]);
    assert!(source.origin().tied_head_stored && !source.origin().prefix);
    let out = tempfile::tempdir().unwrap();
    let to = out.path().join("model");
    round_trip(old.path(), &to, LARGE, None).unwrap();
    assert!(raw(&to) == stored, "all but the masks");
    // Read, both forms are the same numbers.
    let mut source = source;
    let mut newer = Source::open(&fixture("gpt2"), &[]).unwrap();
    for index in 0..source.tensors().len() {
        assert_eq!(source.read(index).unwrap(), newer.read(index).unwrap());
    }
}

/// Norms in f32 beside weights in bf16, an odd number of them.
#[test]
fn mixed_types_come_back() {
    let mut tensors = raw(&fixture("llama-bf16"));
    for (name, (dtype, _, bytes)) in &mut tensors {
        if name.contains("norm") {
            *dtype = Dtype::F32;
            *bytes = bytes.chunks(2).flat_map(|pair| [0x55, 0, pair[0], pair[1]]).collect();
        }
    }
    let mixed = folder(&config(&fixture("llama-bf16")), &tensors);
    let origin = Source::open(mixed.path(), &[]).unwrap().origin().clone();
    assert_eq!((origin.dtype, origin.other_dtypes.len()), (StoredType::Bf16, 3));
    assert_eq!(Origin::from_value(&origin.to_value()).unwrap(), origin);
    let out = tempfile::tempdir().unwrap();
    let to = out.path().join("model");
    round_trip(mixed.path(), &to, LARGE, None).unwrap();
    assert!(raw(&to) == tensors);
}

#[test]
fn another_type_is_said_in_the_configuration_and_rounding_is_counted() {
    let out = tempfile::tempdir().unwrap();
    let to = |name: &str| out.path().join(name);
    let exported = round_trip(&fixture("llama"), &to("bf16"), LARGE, Some(StoredType::Bf16)).unwrap();
    assert!(exported.rounded > 10_000 && exported.dtype == StoredType::Bf16);
    assert_eq!(config(&to("bf16"))["dtype"], "bfloat16");
    assert!(raw(&to("bf16")).values().all(|(dtype, ..)| *dtype == Dtype::BF16));
    // To a wider type nothing is lost, and back it is as it was.
    let exported = round_trip(&fixture("gpt2-f16"), &to("f32"), LARGE, Some(StoredType::F32)).unwrap();
    assert_eq!(exported.rounded, 0);
    assert_eq!(config(&to("f32"))["dtype"], "float32");
    let exported = round_trip(&to("f32"), &to("f16"), LARGE, Some(StoredType::F16)).unwrap();
    assert_eq!(exported.rounded, 0);
    assert!(raw(&to("f16")) == raw(&fixture("gpt2-f16")));
    assert_eq!(config(&to("f16")), config(&fixture("gpt2-f16")));
}

#[test]
fn a_number_too_large_for_its_type_is_named() {
    let mut tensors = raw(&fixture("llama"));
    tensors.get_mut("model.norm.weight").unwrap().2[..4].copy_from_slice(&7e4_f32.to_le_bytes());
    let large = folder(&config(&fixture("llama")), &tensors);
    let out = tempfile::tempdir().unwrap();
    let to = out.path().join("model");
    let message = round_trip(large.path(), &to, LARGE, Some(StoredType::F16)).unwrap_err().to_string();
    assert_eq!(
        message,
        "tensor model.norm.weight holds 7e4, more than the largest number of f16; export it with `layout.dtype` bf16 or f32"
    );
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0, "nothing is left");
    round_trip(large.path(), &to, LARGE, Some(StoredType::Bf16)).unwrap();
}

#[test]
fn companions_go_along_and_nothing_is_replaced() {
    let from = folder(&config(&fixture("llama")), &raw(&fixture("llama")));
    fs::write(from.path().join("tokenizer.json"), "{}").unwrap();
    let out = tempfile::tempdir().unwrap();
    let to = out.path().join("new/model");
    let exported = round_trip(from.path(), &to, LARGE, None).unwrap();
    assert_eq!(exported.copied, ["tokenizer.json"]);
    assert_eq!(fs::read_to_string(to.join("tokenizer.json")).unwrap(), "{}");
    let message = round_trip(from.path(), &to, LARGE, None).unwrap_err().to_string();
    assert!(
        message.ends_with("there are files, and none is replaced; name another folder, or empty this one"),
        "{message}"
    );
    // An empty folder is filled.
    let empty = tempfile::tempdir().unwrap();
    round_trip(from.path(), empty.path(), LARGE, None).unwrap();
}

/// The model changes when it is trained further, or was never imported.
#[test]
fn a_configuration_follows_the_model() {
    let origin = Source::open(&fixture("gpt2"), &[]).unwrap().origin().clone();
    let model = origin.model().unwrap();
    let new = |model: &Model| Destination::new(model, Some(&origin), None).unwrap();
    let dropped = new(&Model { dropout: 0.25, name: "mine".to_owned(), ..model.clone() });
    let mut expected = config(&fixture("gpt2"));
    for field in ["embd_pdrop", "attn_pdrop", "resid_pdrop"] {
        expected[field] = json!(0.25);
    }
    assert_eq!((dropped.config(), dropped.notes().len()), (&expected, 0));
    let deeper = new(&model.reshaped(|m| m.layers = 3));
    assert_eq!((&deeper.config()["n_layer"], deeper.notes().len()), (&json!(3), 1));
    let untied = Destination::new(&Model { tied_head: false, ..model }, None, Some(StoredType::F16)).unwrap();
    let config = untied.config();
    assert_eq!((&config["tie_word_embeddings"], &config["torch_dtype"]), (&json!(false), &json!("float16")));
    let llama = Source::open(&fixture("llama"), &[]).unwrap();
    let dropped =
        Destination::new(&Model { dropout: 0.1, ..llama.model().clone() }, Some(llama.origin()), None).unwrap();
    assert!(dropped.notes()[0].starts_with("llama has no dropout of this kind: the rate 0.1"), "{:?}", dropped.notes());
    assert_eq!(dropped.config(), &in_both_forms(llama.origin().config.clone()));
}

/// What was replaced at the import stands in the configuration that is written: the library would compute another model
/// otherwise.
#[test]
fn replaced_fields_are_given_back() {
    for (name, family, version) in [
        ("llama", "llama", "5.23.0"),
        ("gpt-neox", "gpt_neox", "5.23.0"),
        ("mistral", "mistral", "5.23.0"),
        ("gpt-neox-parallel", "gpt_neox", "5.24.0"),
        ("llama-3.1", "llama", "5.24.0"),
        ("mistral-window", "mistral", "5.24.0"),
        ("phi3", "phi3", "5.24.0"),
        ("qwen2", "qwen2", "5.24.0"),
        ("qwen3", "qwen3", "5.24.0"),
        ("starcoder2", "starcoder2", "5.24.0"),
        ("gemma", "gemma", "5.24.0"),
        ("gemma2", "gemma2", "5.24.0"),
        ("gemma3", "gemma3_text", "5.24.0"),
    ] {
        for (field, value) in [("rotary_base", "777"), ("seq_len", "8"), ("norm_epsilon", "0.001")] {
            let source = Source::open(&fixture(name), &[(field.to_owned(), value.to_owned())]).unwrap();
            let made = Destination::new(source.model(), Some(source.origin()), None).unwrap();
            let read = Model::from_hugging_face(&made.config().to_string(), &[]).unwrap();
            assert_eq!(read, Model { name: read.name.clone(), ..source.model().clone() }, "{name} {field}");
            assert!(made.notes().is_empty() && made.config()["model_type"] == family, "{name} {field}");
            assert_eq!(made.config()["transformers_version"], version, "{name} {field}");
        }
    }
    let dropout = Source::open(&fixture("gpt2"), &[("dropout".to_owned(), "0.25".to_owned())]).unwrap();
    let made = Destination::new(dropout.model(), Some(dropout.origin()), None).unwrap();
    assert_eq!(made.config()["attn_pdrop"], 0.25);
    // Longer than the window of the folder's own configuration.
    let mut settings = config(&fixture("mistral"));
    settings["max_position_embeddings"] = json!(32);
    settings["sliding_window"] = json!(16);
    let windowed = folder(&settings, &raw(&fixture("mistral")));
    let source = Source::open(windowed.path(), &[("seq_len".to_owned(), "16".to_owned())]).unwrap();
    let made = Destination::new(source.model(), Some(source.origin()), None).unwrap();
    settings["max_position_embeddings"] = json!(16);
    assert_eq!((made.config(), made.notes().len()), (&in_both_forms(settings), 0));
}

#[test]
fn a_reader_that_gives_too_little_is_an_error() {
    let model = Model::gpt(1, 8, 2, 5, 6);
    let destination = Destination::new(&model, None, None).unwrap();
    let out = tempfile::tempdir().unwrap();
    let result = destination.write(&out.path().join("m"), LARGE, None, |_| Ok::<_, HuggingFaceError>(vec![0.0_f32; 3]));
    let message = result.unwrap_err().to_string();
    assert!(message.contains("embedding.table has 3 numbers instead of 5 x 8"), "{message}");
}
