//! What files say comes to a terminal escaped and cut: whatever is in them, a message has no control characters and fits a
//! screen or two.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::{Value, json as value};

use crate::common::{json, run};

/// Clears a screen, rings, returns, begins a sequence in one character, turns what follows.
const WILD: &str = "\u{1b}[2J\u{7}\r\u{9b}31m\u{202e}\u{2066}";

/// The same in a string of TOML or JSON.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

fn is_plain(text: &str) -> bool {
    let turns = |c| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !text.chars().any(|c| (c.is_control() && c != '\n' && c != '\t') || turns(c))
}

/// The refusal of `line` is plain and short, and speaks of what the file says.
fn assert_plain(folder: &Path, line: &str) {
    let Output { status, stderr, stdout } = run(folder, line);
    let message = String::from_utf8(stderr).unwrap();
    let shown: String = message.chars().take(3000).collect();
    assert_eq!(status.code(), Some(2), "{line}: {shown:?}");
    assert!(stdout.is_empty() && message.starts_with("error: "), "{line}: {shown:?}");
    assert!(is_plain(&message) && message.len() < 4096, "{line}: {} bytes: {shown:?}", message.len());
}

/// Files with `wild` for a key, a value or a line, and the commands that read them.
fn cases(wild: &str) -> Vec<(&'static str, String, &'static str)> {
    let text = quoted(wild);
    let model = "layers=1\nhidden=12\nheads=3\nvocab=17\nseq_len=8\n";
    let tokenizer = value!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
        "added_tokens": [], "decoder": null, "pre_tokenizer": null, "model": { "type": wild },
    });
    vec![
        ("m.toml", wild.to_owned(), "explain --model m.toml"),
        ("m.toml", format!("name={text}\n{model}"), "explain --model m.toml"),
        ("m.toml", format!("name='a'\n{model}{text}=3\n"), "explain --model m.toml"),
        ("m.toml", format!("name='a'\n{model}norm={text}\n"), "explain --model m.toml"),
        ("l.toml", format!("schedule={text}\n"), "explain --layout l.toml"),
        ("l.toml", format!("grid={text}\n"), "train --layout l.toml"),
        ("c.toml", format!("name='c'\nsource='s'\ndevice={text}\n"), "plan --cluster c.toml"),
        ("c.toml", format!("name={text}\nsource='s'\n"), "plan --cluster c.toml"),
        ("i.toml", format!("name={text}\n"), "paper atp plan --interconnect i.toml"),
        ("h.json", value!({ "model_type": wild }).to_string(), "explain --from-hf h.json"),
        ("h.json", value!({ "model_type": "gpt2", wild: 1, "n_layer": wild }).to_string(), "explain --from-hf h.json"),
        ("t.csv", format!("{}\n1\n", text.replace("\\r", "")), "paper lbnl estimate --csv t.csv"),
        ("t.csv", format!("{wild}\n"), "validate published --csv t.csv"),
        ("t.json", value!({ "version": 1, wild: 1 }).to_string(), "train --set vocab=256 --tune-matmul t.json"),
        ("t.json", tokenizer.to_string(), "train --tokenizer t.json"),
        ("d.jsonl", value!({ wild: "x" }).to_string(), "train --set vocab=256 --data d.jsonl"),
        ("n.log", format!("# nThread 1 {wild}\n 8 2 float sum -1 {wild} 1 1 0\n"), NCCL),
        ("run/run.json", value!({ "version": wild }).to_string(), "report run"),
        ("run/run.json", value!({ "version": 2, wild: 1 }).to_string(), "report run"),
        ("run/run.json", described(value!({ "version": 2, wild: 1 })), "train --resume run"),
        ("run/run.json", described(value!({ "version": 2, "model": { "name": wild, wild: 1 } })), "train --resume run"),
        ("run/manifest.json", value!({ wild: wild }).to_string(), "checkpoint info run"),
        ("run/manifest.json", wild.to_owned(), "eval --from run"),
    ]
}

const NCCL: &str = "calibrate --cluster selene --out o.toml --from-nccl-tests n.log";

/// A run's description with this specification.
fn described(spec: Value) -> String {
    value!({ "version": 2, "command": [], "spec": spec, "model": {}, "layout": {}, "predicted": {}, "known": {} })
        .to_string()
}

#[test]
fn escapes_and_long_values_in_files_come_out_plain_and_short() {
    // Before and after what is long: both ends of a message are shown.
    for wild in [WILD.to_owned(), format!("{WILD}{}{WILD}", "x".repeat(1 << 20)), WILD.repeat(1 << 16)] {
        for (name, content, line) in cases(&wild) {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir(folder.path().join("run")).unwrap();
            fs::write(folder.path().join(name), content).unwrap();
            assert_plain(folder.path(), line);
        }
    }
}

#[cfg(unix)]
#[test]
fn names_of_files_come_out_plain() {
    let folder = tempfile::tempdir().unwrap();
    let name = format!("{WILD}.txt").replace('\r', "");
    assert_plain(folder.path(), &format!("explain --model ./{name}"));
    let path = folder.path().join(&name);
    fs::write(&path, "text").unwrap();
    for line in ["data info .", "data info . --json"] {
        let shown = String::from_utf8(run(folder.path(), line).stdout).unwrap();
        assert!(shown.contains(".txt") && is_plain(&shown), "{shown:?}");
    }
    // The document says the same in other words.
    let document = json(&format!("data info {}", folder.path().display()));
    assert!(document["files"][0]["path"].as_str().unwrap().ends_with(&name), "{document}");
}
