//! What the tests of folders share.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use safetensors::tensor::{TensorView, serialize_to_file};
use serde_json::Value;
use tempfile::TempDir;

/// Every folder of weights beside the tests, but for those that have all experts in one tensor.
pub const FOLDERS: [&str; 24] = [
    "gemma",
    "gemma2",
    "gemma3",
    "gpt2",
    "gpt2-f16",
    "gpt-neox",
    "gpt-neox-parallel",
    "llama",
    "llama-3.1",
    "llama-biases",
    "llama-bf16",
    "llama-sharded",
    "llama-tied",
    "mistral",
    "mistral-window",
    "mixtral",
    "olmo2",
    "olmoe",
    "phi3",
    "pythia",
    "qwen2",
    "qwen3",
    "qwen3-moe",
    "starcoder2",
];

/// One of [`FOLDERS`].
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// Type, shape and bytes of a tensor.
pub type Raw = (safetensors::Dtype, Vec<usize>, Vec<u8>);

/// All tensors of a folder's model files, read by the safetensors crate.
pub fn raw(folder: &Path) -> BTreeMap<String, Raw> {
    let mut tensors = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.starts_with("model") && name.ends_with(".safetensors") {
            let bytes = fs::read(&path).unwrap();
            for (name, view) in SafeTensors::deserialize(&bytes).unwrap().tensors() {
                let raw = (view.dtype(), view.shape().to_vec(), view.data().to_vec());
                assert!(tensors.insert(name.clone(), raw).is_none(), "{name} is stored twice");
            }
        }
    }
    tensors
}

/// A folder with `config` and these tensors in one file.
pub fn folder(config: &Value, tensors: &BTreeMap<String, Raw>) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let views = tensors
        .iter()
        .map(|(name, (dtype, shape, bytes))| (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap()));
    serialize_to_file(views, None, &folder.path().join("model.safetensors")).unwrap();
    folder
}

/// A configuration as version 5 writes it, with what version 4 reads of rotary positions: moved over, not computed.
pub fn in_both_forms(mut config: Value) -> Value {
    let Some(parameters) = config["rope_parameters"].as_object().cloned() else { return config };
    let all = parameters.get("full_attention").and_then(Value::as_object).unwrap_or(&parameters).clone();
    let (base, part) = match config["model_type"].as_str().unwrap() {
        "gpt_neox" => ("rotary_emb_base", Some("rotary_pct")),
        "phi3" => ("rope_theta", Some("partial_rotary_factor")),
        _ => ("rope_theta", None),
    };
    let mut scaling = all.clone();
    scaling.retain(|field, _| field != "rope_theta" && field != "partial_rotary_factor");
    let mut older = vec![(base, all["rope_theta"].clone())];
    older.extend(part.map(|part| (part, all["partial_rotary_factor"].clone())));
    older.extend(parameters.get("sliding_attention").map(|said| ("rope_local_base_freq", said["rope_theta"].clone())));
    older.extend((scaling["rope_type"] != "default").then_some(("rope_scaling", Value::Object(scaling))));
    for (field, value) in older {
        if config[field].is_null() {
            config[field] = value;
        }
    }
    config
}

/// The configuration of a folder.
pub fn config(folder: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(folder.join("config.json")).unwrap()).unwrap()
}
