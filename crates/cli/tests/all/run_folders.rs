//! Folders of runs.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::run;

/// A small model in f64, whose runs differ in no bit.
pub const TINY: &str = "train --model gpt-tiny --set vocab=256 --threads 1 --dtype f64";

/// Runs a command that must succeed.
pub fn succeed(folder: &Path, line: &str) {
    let output = run(folder, line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Step and loss of every whole line.
pub fn losses(folder: &Path) -> Vec<(u64, f64)> {
    let text = fs::read_to_string(folder.join("steps.jsonl")).unwrap_or_default();
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let records = whole.map(|line| serde_json::from_str::<Value>(line).unwrap());
    records.map(|record| (record["step"].as_u64().unwrap(), record["loss"].as_f64().unwrap())).collect()
}

/// A run's folder as it was when it was killed: with the checkpoint of one step alone.
pub fn copy_run(from: &Path, to: &Path, step: u64) {
    let name = format!("checkpoints/step-{step:012}");
    fs::create_dir_all(to.join(&name)).unwrap();
    for entry in fs::read_dir(from.join(&name)).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(&name).join(entry.file_name())).unwrap();
    }
    for file in ["run.json", "steps.jsonl", "events.jsonl"] {
        fs::copy(from.join(file), to.join(file)).unwrap();
    }
}
