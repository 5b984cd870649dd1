//! `--from-hf`: a Hugging Face configuration wherever a model is taken.

use serde_json::Value;

use crate::common::{json, run};
use crate::refusals::{folder_with, refused, refused_in};

const LLAMA: &str = r#"{"model_type": "llama", "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 12, "num_key_value_heads": 4, "vocab_size": 67, "max_position_embeddings": 16,
    "rms_norm_eps": 1e-05, "_name_or_path": "someone/small-llama"}"#;

#[test]
fn a_configuration_is_the_model_that_its_fields_say() {
    let folder = folder_with("config.json", LLAMA);
    let document = |line: &str| -> Value {
        let output = run(folder.path(), line);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let grid = "--grid x=2,data=2";
    let read = document(&format!("explain --from-hf config.json {grid} --json"));
    let preset = json(&format!("explain --model llama-tiny {grid}"));
    assert_eq!(read["model"]["name"], "small-llama");
    assert_eq!((&read["ranks"], &read["layout"]), (&preset["ranks"], &preset["layout"]));
    let set = document(&format!("explain --from-hf config.json --set layers=3 {grid} --json"));
    assert_eq!(set["model"]["layers"], 3);
    let plan = document("plan --from-hf config.json --ranks 4 --cluster perlmutter --json");
    assert_eq!(plan["model"], "small-llama");
}

/// Few train on all that a long context holds: where nobody has said how much of it is meant, that is told.
#[test]
fn long_contexts_that_nobody_asked_for_are_told() {
    let long = LLAMA.replace("\"max_position_embeddings\": 16", "\"max_position_embeddings\": 131072");
    let folder = folder_with("config.json", long);
    let told = |line: &str| {
        let output = run(folder.path(), line);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stderr).unwrap()
    };
    let note = "note: sequences have 131072 tokens, the most of the configuration; models are mostly trained with fewer, e.g. \
                --seq-len 8192\n";
    let price = "explain --price --from-hf config.json --grid data=2 --cluster perlmutter";
    assert_eq!(told(price), note);
    for said in ["--seq-len 4096", "--seq-len 131072", "--json"] {
        assert_eq!(told(&format!("{price} {said}")), "", "{said}");
    }
    let sweep = "sweep --from-hf config.json --global-batch 4 --fix x=1 --cluster perlmutter";
    assert_eq!(told(&format!("{sweep} --vary gpus=1,2")), note);
    for said in ["--vary gpus=1,2 --seq-len 4096", "--vary seq-len=4096,131072 --gpus 2"] {
        assert_eq!(told(&format!("{sweep} {said}")), "", "{said}");
    }
}

/// A small GPT-2 as transformers would write it, proved like any other model.
#[test]
fn a_configuration_is_verified() {
    let gpt2 = r#"{"model_type": "gpt2", "n_embd": 24, "n_head": 4, "n_layer": 1, "n_positions": 8, "vocab_size": 29,
        "embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0}"#;
    let folder = folder_with("config.json", gpt2);
    let verified = run(folder.path(), "verify --from-hf config.json --grid x=2 --steps 1");
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
}

#[test]
fn what_cannot_be_used_is_refused() {
    let folder =
        folder_with("config.json", LLAMA.replace("1e-05", "1e-05, \"rope_scaling\": {\"rope_type\": \"yarn\"}"));
    refused_in(folder.path(), "explain --from-hf config.json", &["config.json: rope_scaling = ", "linear", "llama3"]);
    refused_in(folder.path(), "explain --from-hf config.json --model gpt-tiny", &["--from-hf", "--model"]);
    refused("explain --from-hf missing.json", &["cannot read missing.json"]);
    refused_in(folder.path(), "explain --from-hf .", &["cannot read .: it is a directory"]);
    refused_in(folder.path(), "train --from-hf config.json --set width=4", &["unknown field 'width'"]);
    let log = "train --from-hf config.json --log config.json";
    let folder = folder_with("config.json", LLAMA);
    refused_in(folder.path(), log, &["--log", "--from-hf", "name another file"]);
}
