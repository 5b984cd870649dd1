//! One tokenizer per model: what a run has read is recorded, found again by `eval`, `generate` and `train`, and no other
//! will do.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::common;
use crate::common::{json as one_json, run};

fn succeed(folder: &Path, line: &str) {
    let output = run(folder, line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

fn json_in(folder: &Path, line: &str) -> Value {
    let output = run(folder, &format!("{line} --json"));
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn refused(folder: &Path, line: &str, words: &[&str]) {
    let output = run(folder, line);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{line}: {message}");
    for word in words {
        assert!(message.contains(word), "{line}: '{word}' is not in: {message}");
    }
}

/// A tokenizer of these words, in this order, between spaces.
fn tokenizer(words: &[&str]) -> String {
    let numbered = words.iter().enumerate().map(|(at, word)| ((*word).to_owned(), json!(at)));
    let vocabulary: serde_json::Map<String, Value> = numbered.collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
        "added_tokens": [], "decoder": null, "pre_tokenizer": { "type": "WhitespaceSplit" },
        "model": { "type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>" },
    })
    .to_string()
}

/// A folder with a text, its tokenizer under a name of its own, and another tokenizer under the usual name.
fn texts() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("w.txt"), "one two three two one ".repeat(200)).unwrap();
    fs::create_dir(folder.path().join("model")).unwrap();
    let words = ["<unk>", "one", "two", "three", "</s>"];
    fs::write(folder.path().join("model/tok.json"), tokenizer(&words)).unwrap();
    fs::write(folder.path().join("model/tokenizer_config.json"), r#"{ "eos_token": "</s>" }"#).unwrap();
    fs::write(folder.path().join("tokenizer.json"), tokenizer(&["<unk>", "three", "two", "one", "</s>"])).unwrap();
    folder
}

const TRAIN: &str = "train --model gpt-tiny --set vocab=256 --threads 1 --grid x=1 --steps 8 --lr 1e-2";

fn loss(document: &Value) -> f64 {
    document["loss"].as_f64().unwrap()
}

#[test]
fn the_built_in_tokenizer_of_a_run_is_recorded_and_taken() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let train = "train --model gpt-tiny --set vocab=50300 --threads 1 --grid x=1 --steps 2 --tokenizer bytes";
    let run = json_in(path, &format!("{train} --validation 0.01 --out run"));
    assert_eq!((&run["data"]["vocabulary"], &run["data"]["validation"]), (&json!("bytes"), &json!(0.01)));
    let eval = |more: &str| loss(&json_in(path, &format!("eval --from run --steps 1 {more}")));
    assert_eq!(eval(""), eval("--tokenizer bytes"));
    refused(path, "eval --from run --tokenizer gpt2", &["tokens of bytes", "of gpt2", "--tokenizer bytes"]);
    refused(path, "generate --from run --prompt a --tokenizer gpt2", &["tokens of bytes", "of gpt2"]);
    refused(path, "train --from run --tokenizer gpt2 --steps 1", &["tokens of bytes", "of gpt2"]);
    let generated = json_in(path, "generate --from run --prompt abc --max-tokens 1");
    assert_eq!(generated["sequences"][0]["prompt_tokens"], json!([97, 98, 99]));
    let next = json_in(path, "train --from run --steps 1 --grid x=1");
    assert_eq!(next["data"]["vocabulary"], "bytes");
    // What is too large for the model of a checkpoint is no reason to change the model.
    let small = one_json(&format!("{TRAIN} --out {}", path.join("small").display()));
    assert_eq!(small["data"]["vocabulary"], "bytes");
    let output = common::run(path, "eval --from small --tokenizer gpt2");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("use the --tokenizer that the model was trained with"), "{message}");
    assert!(!message.contains("--set"), "{message}");
}

#[test]
fn a_tokenizer_file_is_kept_with_the_run_and_found_there() {
    let folder = texts();
    let path = folder.path();
    let run = json_in(path, &format!("{TRAIN} --tokenizer model/tok.json --data w.txt --out run"));
    let name = run["data"]["vocabulary"].as_str().unwrap();
    assert!(name.starts_with("json-"), "{name}");
    for (kept, given) in [("tokenizer.json", "tok.json"), ("tokenizer_config.json", "tokenizer_config.json")] {
        let [kept, given] =
            [path.join("run").join(kept), path.join("model").join(given)].map(|path| fs::read(path).unwrap());
        assert_eq!(kept, given);
    }
    let eval = |more: &str| loss(&json_in(path, &format!("eval --from run --data w.txt --steps 1 {more}")));
    assert_eq!(eval(""), eval("--tokenizer model/tok.json"));
    refused(path, "eval --from run --data w.txt --tokenizer bytes", &[name, "of bytes"]);
    refused(path, "eval --from run --data w.txt --tokenizer tokenizer.json", &[name, "(tokenizer.json)"]);
    let prompt_tokens = |from: &str| {
        let document = json_in(path, &format!("generate --from {from} --prompt one --max-tokens 1"));
        document["sequences"][0]["prompt_tokens"].clone()
    };
    assert_eq!(prompt_tokens("run"), json!([1]));
    assert_eq!(prompt_tokens("run/checkpoints/step-000000000008"), json!([1]));
    // A run that begins with its parameters has its tokenizer too, and so does one that goes on.
    let next = json_in(path, "train --from run --threads 1 --grid x=1 --steps 2 --data w.txt --out next");
    assert_eq!(next["data"]["vocabulary"], name);
    assert_eq!(prompt_tokens("next"), json!([1]));
    fs::remove_dir_all(path.join("run")).unwrap();
    succeed(path, "train --resume next --steps 3");
    // Without the file the run is still known to have had one.
    fs::remove_file(path.join("next/tokenizer.json")).unwrap();
    let words = [name, "of bytes", "tokenizer.json", "--tokenizer"];
    refused(path, "generate --from next --prompt one", &words);
    refused(path, "eval --from next --data w.txt", &words);
}

#[test]
fn what_lies_in_the_working_directory_is_not_of_the_checkpoint() {
    let folder = texts();
    let path = folder.path();
    // Tokens of a file that does not say whose they are: nothing is recorded.
    succeed(path, "data prepare w.txt --out own --tokenizer bytes");
    succeed(path, "data prepare own.tokens --out m --format megatron");
    let run = json_in(path, &format!("{TRAIN} --data m --out run"));
    assert_eq!(run["data"]["vocabulary"], Value::Null);
    fs::rename(path.join("run/checkpoints/step-000000000008"), path.join("alone")).unwrap();
    for from in ["alone", "./alone"] {
        let document = json_in(path, &format!("generate --from {from} --prompt one --max-tokens 1"));
        assert_eq!(document["sequences"][0]["prompt_tokens"], json!([111, 110, 101]), "{from}");
    }
}

#[test]
fn another_tokenizer_in_the_run_s_folder_is_not_written_over() {
    let folder = texts();
    let path = folder.path();
    fs::create_dir(path.join("run")).unwrap();
    fs::copy(path.join("tokenizer.json"), path.join("run/tokenizer.json")).unwrap();
    let line = format!("{TRAIN} --tokenizer model/tok.json --data w.txt --out run");
    refused(path, &line, &["run/tokenizer.json: it differs from model/tok.json", "--out"]);
    assert!(!path.join("run/run.json").exists());
}

/// The library that reads such files panics at these: one when it reads, one when it encodes, one when it decodes.
#[test]
fn a_tokenizer_file_that_does_not_work_is_named() {
    let folder = texts();
    let path = folder.path();
    fs::write(path.join("plain.txt"), "a b ".repeat(100)).unwrap();
    let written = |name: &str, change: &dyn Fn(&mut Value)| {
        let mut document = json!({
            "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
            "added_tokens": [], "pre_tokenizer": { "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true,
                "use_regex": true }, "decoder": null,
            "model": { "type": "BPE", "dropout": null, "unk_token": "a", "continuing_subword_prefix": "##",
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
                "vocab": { "a": 0, "</s>": 1, "##b": 2, "ab": 3 }, "merges": [["a", "##b"]] },
        });
        change(&mut document);
        fs::write(path.join(name), document.to_string()).unwrap();
    };
    let pattern = json!({ "type": "Replace", "pattern": { "String": "" }, "content": "a" });
    written("reading.json", &|file| file["model"]["merges"] = json!([["a", "a"]]));
    written("encoding.json", &|file| file["normalizer"] = pattern.clone());
    written("decoding.json", &|file| {
        file["decoder"] = json!({ "type": "Strip", "content": "a", "start": 0, "stop": 9 })
    });
    json_in(path, &format!("{TRAIN} --tokenizer decoding.json --data plain.txt --out run"));
    for (line, name) in [
        ("data prepare plain.txt --out x --tokenizer reading.json".to_owned(), "reading.json"),
        // Without --json the files that are read are printed before they are.
        ("data prepare plain.txt --out x --tokenizer encoding.json --json".to_owned(), "encoding.json"),
        (format!("{TRAIN} --tokenizer reading.json --data plain.txt"), "reading.json"),
        (format!("{TRAIN} --tokenizer encoding.json --data plain.txt"), "encoding.json"),
        ("generate --from run --prompt a --max-tokens 2".to_owned(), "tokenizer.json"),
    ] {
        refused(path, &line, &["cannot use the tokenizer", name]);
        let message = String::from_utf8(run(path, &line).stderr).unwrap();
        assert!(message.starts_with("error: ") && !message.contains("panicked"), "{line}: {message}");
    }
}
