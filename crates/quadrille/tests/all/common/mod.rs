//! The binary, run in a folder of its own.

mod run;

use serde_json::Value;

pub use run::run;

/// The one JSON document that a successful command prints on standard output: more, or less, does not parse.
pub fn json(line: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &format!("{line} --json"));
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{line}: {error}"))
}
