//! The binary, run in a folder of its own.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Runs `quadrille` with the words of `line` in `folder`, with nothing on standard input.
pub fn run(folder: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quadrille"));
    command.args(line.split_whitespace()).current_dir(folder).stdin(Stdio::null()).output().unwrap()
}

/// The one JSON document that a successful command prints on standard output: more, or less, does not parse.
pub fn json(line: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &format!("{line} --json"));
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{line}: {error}"))
}
