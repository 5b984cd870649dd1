//! The binary, run in a folder of its own.

mod run;

use serde_json::Value;

pub use run::run;

/// The document that a page draws. It is one file that loads nothing.
pub fn page_document(page: &str) -> Value {
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n") && page.len() < 1_000_000);
    assert!(page.contains("default-src 'none'") && !page.contains("src=\"") && !page.contains("<link"));
    let data = page.split("id=\"data\">").nth(1).and_then(|rest| rest.split("</script>").next()).unwrap();
    serde_json::from_str(data).unwrap()
}

/// The one JSON document that a successful command prints on standard output: more, or less, does not parse.
pub fn json(line: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &format!("{line} --json"));
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{line}: {error}"))
}
