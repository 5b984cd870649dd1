//! `convert`: models of Hugging Face's library to checkpoints and back.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use serde_json::{Value, json as value};

use crate::common::{json, run};
use crate::refusals::{folder_with, refused, refused_in};

const FOLDERS: [&str; 9] =
    ["gpt2", "gpt2-f16", "gpt-neox", "llama", "llama-biases", "llama-bf16", "llama-sharded", "llama-tied", "mistral"];

/// A model as transformers saved it.
fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../hugging-face/tests/data").join(name)
}

/// All tensors of a folder: type, shape and bytes.
fn tensors(folder: &Path) -> BTreeMap<String, (String, Vec<usize>, Vec<u8>)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.starts_with("model") && name.ends_with(".safetensors") {
            let bytes = fs::read(&path).unwrap();
            for (name, view) in SafeTensors::deserialize(&bytes).unwrap().tensors() {
                let tensor = (view.dtype().to_string(), view.shape().to_vec(), view.data().to_vec());
                assert!(found.insert(name, tensor).is_none());
            }
        }
    }
    found
}

fn read_json(path: PathBuf) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// What a successful command prints.
fn printed(folder: &Path, line: &str) -> String {
    let output = run(folder, line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn models_come_back_bit_by_bit() {
    for name in FOLDERS {
        let folder = tempfile::tempdir().unwrap();
        let from = fixture(name);
        let read = printed(folder.path(), &format!("convert --from-hf {} ours", from.display()));
        assert!(read.contains("written  ours/step-000000000000: "), "{read}");
        printed(folder.path(), "convert --to-hf theirs ours");
        let theirs = folder.path().join("theirs");
        assert!(tensors(&theirs) == tensors(&from), "{name}");
        // Version 4 of the library reads rotary positions under other names, which are added.
        let older = ["rope_theta", "rotary_emb_base", "rotary_pct"];
        let mut written = read_json(theirs.join("config.json"));
        let before = read_json(from.join("config.json"));
        let is_kept = |field: &str| before.get(field).is_some() || !older.contains(&field);
        written.as_object_mut().unwrap().retain(|field, _| is_kept(field));
        assert_eq!(written, before, "{name}");
    }
}

#[test]
fn results_are_one_document() {
    let read = json(&format!("convert --from-hf {} ours", fixture("llama").display()));
    assert_eq!((&read["model"]["name"], &read["imported"]["dtype"]), (&"llama".into(), &"f32".into()));
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("model");
    fs::create_dir(&from).unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(fixture("llama").join(file), from.join(file)).unwrap();
    }
    fs::write(from.join("tokenizer.json"), "{}").unwrap();
    let document = |line: &str| -> Value { serde_json::from_str(&printed(folder.path(), line)).unwrap() };
    let read = document("convert --from-hf model --set name=mine ours --json");
    assert_eq!((&read["model"]["name"], &read["imported"]["parameters"]), (&"mine".into(), &20_192.into()));
    assert_eq!(read["imported"]["copied"], value!(["tokenizer.json"]));
    assert!(folder.path().join("ours/tokenizer.json").is_file());
    let written = document("convert --to-hf theirs --dtype bf16 --shard-size 30KB ours --json");
    assert_eq!(written["exported"]["files"].as_array().unwrap().len(), 2);
    assert!(written["exported"]["rounded"].as_u64().unwrap() > 10_000);
    assert_eq!(read_json(folder.path().join("theirs/config.json"))["dtype"], "bfloat16");
    assert!(folder.path().join("theirs/model.safetensors.index.json").is_file());
    assert!(folder.path().join("theirs/tokenizer.json").is_file());
    let text = printed(folder.path(), "convert --to-hf more --dtype f16 ours/step-000000000000");
    assert!(text.contains("\nrounded  ") && text.ends_with("copied   tokenizer.json\n"), "{text}");
}

/// Trained from scratch, exported, imported, trained on in another layout, exported again.
#[test]
fn models_are_trained_between_conversions() {
    let folder = tempfile::tempdir().unwrap();
    let train = |line: &str| {
        let output = run(folder.path(), line);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    };
    train("train --model llama-tiny --set vocab=256 --out run --steps 1 --grid x=2,data=2");
    printed(folder.path(), "convert --to-hf first run");
    printed(folder.path(), "convert --from-hf first ours");
    // The exported folder has no tokenizer.json.
    let words = ["ours", "imported llama without a tokenizer.json", "its 256 ids", "--tokenizer"];
    fs::write(folder.path().join("book.txt"), "some words of no meaning ".repeat(40)).unwrap();
    let first_step = "ours/step-000000000000";
    for line in [
        "train --from ours --steps 1 --grid x=1",
        "train --from ours --steps 1 --grid x=1 --data book.txt",
        &format!("eval --from {first_step} --data book.txt"),
        &format!("generate --from {first_step} --prompt some"),
        &format!("memorize --from {first_step} --data book.txt --seq-len 16 --generate-tokens 4"),
    ] {
        refused_in(folder.path(), line, &words);
    }
    // Files of tokens are not read by a tokenizer.
    train("data prepare book.txt --tokenizer bytes --out book");
    train("data prepare book.tokens --out pair --format megatron");
    train("train --from ours --steps 1 --grid x=1 --data pair.idx");
    train("train --from ours --out more --steps 1 --grid pipe=2 --tokenizer bytes");
    train("generate --from more --prompt some --max-tokens 2");
    printed(folder.path(), "convert --to-hf second more");
    let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
    assert_eq!(read_json(first.join("config.json"))["model_type"], "llama");
    assert_eq!(read_json(first.join("config.json")), read_json(second.join("config.json")));
    let before = tensors(&first);
    let after = tensors(&second);
    assert!(before.keys().eq(after.keys()));
    for (name, (dtype, shape, bytes)) in &after {
        let (dtype_before, shape_before, bytes_before) = &before[name];
        assert_eq!((dtype, shape), (dtype_before, shape_before), "{name}");
        assert!(bytes != bytes_before, "{name} has learned nothing");
    }
    // What reads patches is no model of the library.
    train("train --model vit-tiny --out patches --steps 1 --grid x=2");
    refused_in(
        folder.path(),
        "convert --to-hf third patches",
        &["patch_values = 30: the library's decoders read tokens"],
    );
}

#[test]
fn what_cannot_be_converted_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let llama = fixture("llama");
    let llama = llama.display();
    printed(folder.path(), &format!("convert --from-hf {llama} ours"));
    refused("convert ours", &["--from-hf", "--to-hf"]);
    refused("convert --from-hf missing other", &["cannot read missing/config.json"]);
    refused("convert --to-hf other missing", &["cannot read missing"]);
    let config = folder_with("config.json", fs::read(fixture("llama").join("config.json")).unwrap());
    refused_in(config.path(), "convert --from-hf . other", &["neither model.safetensors nor model.safetensors.index"]);
    let refused = |line: &str, words: &[&str]| refused_in(folder.path(), line, words);
    refused(&format!("convert --from-hf {llama} ours"), &["ours: there are files, and none is replaced"]);
    refused("convert --to-hf ours ours", &["ours: there are files"]);
    refused("convert --from-hf ours other", &["ours: there is no config.json"]);
    refused("convert --to-hf other .", &["is not a checkpoint"]);
    refused("convert --from-hf a --to-hf b ours", &["--from-hf", "cannot be used with"]);
    refused(&format!("convert --from-hf {llama} other --dtype f16"), &["--dtype", "--from-hf"]);
    refused("convert --to-hf other ours --set seq_len=4", &["--set", "--to-hf"]);
    refused("convert --to-hf other ours --dtype fp8", &["unknown type of stored weights 'fp8'; known: f32, f16, bf16"]);
    refused("convert --to-hf other ours --shard-size 5", &["--shard-size", "5GB or 500MB"]);
    refused(&format!("convert --from-hf {llama} other --set width=4"), &["unknown model field 'width'"]);
    refused(&format!("convert --from-hf {llama} other --set seq_len"), &["write it as key=value"]);
    // A model of other sizes than the weights'.
    let words = ["model.layers.2.input_layernorm.weight: it is missing"];
    refused(&format!("convert --from-hf {llama} other --set layers=3"), &words);
    let words = ["model.embed_tokens.weight: its shape is [97, 32], and by config.json it is [96, 32]"];
    refused(&format!("convert --from-hf {llama} other --set vocab=96"), &words);
    // Damage that shows only when numbers are read.
    let file = folder.path().join("ours/step-000000000000/rank-00000.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&file, bytes).unwrap();
    refused("convert --to-hf other ours", &["rank-00000.safetensors", "damaged"]);
}
