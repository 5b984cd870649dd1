//! Types of values: what is planned in 16 bits is written, priced again and trained as it was planned, and runs go on in
//! other types.

use std::path::Path;

use serde_json::Value;

use crate::common::run;

/// The document of a command that succeeds in a folder.
fn document(folder: &Path, line: &str) -> Value {
    let output = run(folder, &format!("{line} --json"));
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

const PLANNED: &str = "--model gpt2-124m --cluster dgx-a100 --framework quadrille";

#[test]
fn a_plan_in_16_bits_is_written_with_its_types_and_has_one_price() {
    let folder = tempfile::tempdir().unwrap();
    let plan = |words: &str| {
        document(folder.path(), &format!("plan {PLANNED} --ranks 4 --top 1 --exotic --out best.toml {words}"))
    };
    let planned = plan("--dtype bf16 --gradients bf16");
    let best = &planned["plans"][0];
    assert_eq!((&best["layout"]["dtype"], &best["layout"]["gradients"]), (&"bf16".into(), &"bf16".into()));
    let written = std::fs::read_to_string(folder.path().join("best.toml")).unwrap();
    assert!(written.contains("dtype = \"bf16\"") && written.contains("gradients = \"bf16\""), "{written}");
    // The file says the types; nothing else does.
    let priced = document(folder.path(), &format!("explain {PLANNED} --layout best.toml --price"));
    assert_eq!(priced["plan"]["time_s"], best["time_s"]);
    assert_eq!(priced["plan"]["memory"], best["memory"]);
    // In f32 the same layout takes longer; what is planned in f32 says no type.
    let wider =
        document(folder.path(), &format!("explain {PLANNED} --layout best.toml --price --dtype f32 --gradients f32"));
    let seconds = |document: &Value| document["plan"]["time_s"].as_f64().unwrap();
    assert!(seconds(&wider) > seconds(&priced));
    plan("");
    let written = std::fs::read_to_string(folder.path().join("best.toml")).unwrap();
    assert!(!written.contains("dtype") && !written.contains("gradients"), "{written}");
}

#[test]
fn runs_go_on_in_other_types() {
    let folder = tempfile::tempdir().unwrap();
    // A run whose counted ledger differs from the predicted one fails.
    let train = |words: &str| document(folder.path(), &format!("train {words}"));
    let tiny = "--model gpt-tiny --set vocab=256 --threads 1 --grid z=2 --global-batch 4 --out run --steps 2";
    let begun = train(&format!("{tiny} --dtype bf16 --gradients bf16"));
    // Its gradients are of a type that f32 does not have: nobody has to leave it out.
    let wider = train("--resume run --steps 4 --dtype f32");
    let narrower = train("--resume run --steps 6 --dtype f16");
    let bytes =
        |document: &Value, class: &str| document["ledger"]["counted"]["ranks"][0]["memory"][class].as_u64().unwrap();
    // Of the 16-bit gradients nothing is left; values take half the bytes again.
    assert!(bytes(&begun, "gradients") < bytes(&wider, "gradients"));
    assert_eq!(bytes(&narrower, "gradients"), bytes(&wider, "gradients"));
    assert!(bytes(&narrower, "activations") < bytes(&wider, "activations"));
}
