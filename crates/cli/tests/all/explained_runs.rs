//! `quadrille explain --from`: runs and checkpoints, in their own layout and in others.

use std::path::Path;

use serde_json::Value;

use crate::common::run;
use crate::refusals::refused_in;
use crate::run_folders::succeed;

fn json(folder: &Path, line: &str) -> Value {
    let output = run(folder, &format!("{line} --json"));
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn described(folder: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(folder.join("run.json")).unwrap()).unwrap()
}

const TRAIN: &str = "train --model gpt-tiny --set vocab=256 --set layers=4 --threads 1 --steps 1";

#[test]
fn a_run_is_explained_in_its_own_layout_to_the_byte() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    succeed(at, &format!("{TRAIN} --grid x=2,pipe=2 --dtype f64 --zero 1 --global-batch 8 --microbatch 2 --out run"));
    let recorded = described(&at.join("run"));
    let explained = json(at, "explain --from run");
    assert_eq!([&explained["model"], &explained["layout"]], [&recorded["model"], &recorded["layout"]]);
    assert_eq!(explained["ranks"], recorded["predicted"]["ranks"]);
    assert_eq!(explained["framework"], "quadrille");
    let text = String::from_utf8(run(at, "explain --from run").stdout).unwrap();
    assert!(text.contains("x=2,pipe=2 (4 ranks") && text.contains("ZeRO 1"), "{text}");
    // The checkpoint says the same.
    for place in ["run/checkpoints", "run/checkpoints/step-000000000001"] {
        let explained = json(at, &format!("explain --from {place}"));
        assert_eq!((&explained["layout"], &explained["ranks"]), (&recorded["layout"], &recorded["predicted"]["ranks"]));
    }
    // Another cluster takes it as it is, and prices this program's engine.
    let moved = json(at, "explain --from run --cluster dgx-a100 --rank 0");
    assert_eq!(moved["layout"], recorded["layout"]);
    let priced = json(at, "explain --from run --cluster dgx-a100 --price");
    assert_eq!(
        (&priced["framework"], &priced["plan"]["layout"]["grid"]),
        (&"quadrille".into(), &recorded["layout"]["grid"])
    );
}

#[test]
fn flags_change_what_they_name_of_a_run_and_what_follows_from_it() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    succeed(at, &format!("{TRAIN} --ranks 4 --global-batch 8 --out run"));
    let before = described(&at.join("run"))["layout"].clone();
    let layout = |more: &str| json(at, &format!("explain --from run {more}"))["layout"].clone();
    // No grid was named. It stays all the same, unless other ranks are.
    assert_eq!(layout("--cluster selene")["grid"], before["grid"]);
    let mut changed = layout("--zero 1");
    assert_eq!(changed["zero"], 1);
    changed["zero"] = before["zero"].clone();
    assert_eq!(changed, before);
    assert_eq!(layout("--grid pipe=2")["stage_blocks"], Value::from(vec![2, 2]));
    assert_eq!(layout("--grid pipe=2")["global_batch"], 8);
    let two: quadrille_spec::Grid = layout("--ranks 2")["grid"].as_str().unwrap().parse().unwrap();
    assert_eq!(two.ranks(), 2);
    assert_eq!(json(at, "explain --from run --set layers=2 --rank 0")["layout"]["stage_blocks"], Value::from(vec![2]));
    std::fs::write(at.join("mine.toml"), "grid = \"y=2\"\nglobal_batch = 6\n").unwrap();
    assert_eq!(
        [&layout("--layout mine.toml")["grid"], &layout("--layout mine.toml")["global_batch"]],
        [&Value::from("x=1,y=2,z=1,data=1"), &6.into()]
    );
    refused_in(at, "explain --from run --model gpt-tiny", &["--from", "--model"]);
    refused_in(at, "explain --from nothing", &["nothing"]);
    refused_in(at, "explain --from run --html run/run.json", &["--html", "run/run.json", "name another file"]);
    refused_in(at, "explain --from run --grid x=5", &["x=5", "heads"]);
}

#[test]
fn a_pruned_run_is_explained_as_far_as_it_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    succeed(at, &format!("{TRAIN} --grid x=1 --out dense"));
    succeed(at, "prune --from dense --sparsity 0.75 --out pruned");
    succeed(at, "train --from pruned --steps 1 --threads 1 --grid x=2 --out run");
    let recorded = described(&at.join("run"));
    let explained = json(at, "explain --from run");
    assert!(recorded["known"]["kept"].is_object(), "{recorded}");
    assert_eq!(explained["ranks"], recorded["predicted"]["ranks"]);
    for line in ["explain --from run --grid x=4", "explain --from pruned"] {
        refused_in(at, line, &["--from", "pruned", "--sparsity 0.9"]);
        let output = run(at, &format!("{line} --sparsity 0.75"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    for framework in ["megatron", "fsdp"] {
        let line = format!("explain --from run --framework {framework}");
        refused_in(at, &line, &["--from", framework, "trains no pruned models", "--framework quadrille"]);
    }
    refused_in(at, "explain --from run --price --cluster selene", &["--price", "--sparsity 0.9"]);
}

#[test]
fn types_of_a_run_are_those_of_its_engine_alone() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    succeed(at, &format!("{TRAIN} --grid x=1 --dtype bf16 --gradients bf16 --out run"));
    let types = |line: &str| {
        let explained = json(at, &format!("explain --from run {line} --rank 0"));
        ["dtype", "gradients"].map(|field| explained["layout"][field].as_str().unwrap().to_owned())
    };
    assert_eq!(types(""), ["bf16", "bf16"]);
    assert_eq!(types("--gradients bf16"), ["bf16", "bf16"]);
    assert_eq!(types("--gradients f32"), ["bf16", "f32"]);
    assert_eq!(types("--dtype f64"), ["f64", "f64"]);
    refused_in(at, "explain --from run --dtype f32 --gradients bf16", &["gradients = bf16", "values in f32"]);
    // Another framework says itself how it stores values, as of a layout that is typed.
    let typed = json(at, "explain --model gpt-tiny --set vocab=256 --set layers=4 --grid x=1 --framework megatron");
    for framework in ["megatron", "fsdp"] {
        let line = format!("--framework {framework}");
        assert_eq!(
            types(&line),
            ["dtype", "gradients"].map(|field| typed["layout"][field].as_str().unwrap()),
            "{line}"
        );
    }
    refused_in(
        at,
        "explain --from run --framework megatron --dtype bf16",
        &["--dtype", "megatron stores values in a type of its own"],
    );
}

#[test]
fn what_follows_in_the_layout_of_a_checkpoint_follows_anew() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    succeed(at, &format!("{TRAIN} --grid x=2,pipe=2 --schedule interleaved --chunks 2 --global-batch 16 --out run"));
    let layout = |from: &str, more: &str| json(at, &format!("explain --from {from} {more} --rank 0"))["layout"].clone();
    for (more, field, value) in [
        ("--schedule 1f1b --chunks 1", "stage_blocks", Value::from(vec![2, 2])),
        ("--schedule 1f1b --chunks 1 --grid x=2", "stage_blocks", Value::from(vec![4])),
        ("--schedule 1f1b --chunks 1 --grid data=16 --cluster dgx-a100", "per_node", 8.into()),
    ] {
        let of_checkpoint = layout("run/checkpoints", more);
        assert_eq!(of_checkpoint[field], value, "{more}");
        assert_eq!(of_checkpoint, layout("run", more), "{more}");
    }
    // What does not follow was chosen.
    succeed(at, &format!("{TRAIN} --grid x=2,pipe=2 --stage-blocks 1,3 --out uneven"));
    assert_eq!(layout("uneven/checkpoints", "--zero 1")["stage_blocks"], Value::from(vec![1, 3]));
}

#[test]
fn files_of_a_checkpoint_are_not_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    succeed(at, &format!("{TRAIN} --grid x=1 --out run"));
    let checkpoint = "run/checkpoints/step-000000000001";
    for (from, flag) in [(checkpoint, "--html"), (checkpoint, "--trace"), ("run/checkpoints", "--html")] {
        let line = format!("explain --from {from} {flag} {checkpoint}/manifest.json");
        refused_in(at, &line, &[flag, "manifest.json", &format!("--from {from}"), "name another file"]);
    }
    // A damaged run is no checkpoint.
    std::fs::remove_file(at.join("run/run.json")).unwrap();
    std::os::unix::fs::symlink("nowhere", at.join("run/run.json")).unwrap();
    let output = run(at, "explain --from run");
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && output.stdout.is_empty() && message.contains("run.json"), "{message}");
}

#[test]
fn too_many_ledgers_leave_no_trace() {
    let folder = tempfile::tempdir().unwrap();
    let line =
        "explain --model gpt-tiny --grid data=131072 --global-batch 131072 --microbatch 1 --ledger --trace t.json";
    refused_in(folder.path(), line, &["at most 65536", "--rank N"]);
}

#[test]
fn a_run_is_explained_on_its_own_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let preset = concat!(env!("CARGO_MANIFEST_DIR"), "/../spec/presets/clusters/dgx-a100.toml");
    std::fs::copy(preset, at.join("mine.toml")).unwrap();
    succeed(at, &format!("{TRAIN} --grid x=2 --cluster mine.toml --out run"));
    let explained = json(at, "explain --from run --rank 0");
    assert!(!explained["lesson"]["timeline"].is_null(), "{}", explained["lesson"]);
    assert_eq!(explained, json(at, "explain --from run --rank 0 --cluster mine.toml"));
    assert!(json(at, "explain --from run --rank 0 --grid x=2 --cluster local")["lesson"].is_object());
    std::fs::remove_file(at.join("mine.toml")).unwrap();
    let words = ["the run's cluster mine.toml", "cannot read", "--cluster names another in its place"];
    refused_in(at, "explain --from run --ledger", &words);
    assert!(json(at, "explain --from run --cluster dgx-a100 --rank 0")["layout"].is_object());
}
