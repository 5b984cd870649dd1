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
    let (recorded, explained) = (described(&at.join("run")), json(at, "explain --from run"));
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
    let (recorded, explained) = (described(&at.join("run")), json(at, "explain --from run"));
    assert!(recorded["known"]["kept"].is_object(), "{recorded}");
    assert_eq!(explained["ranks"], recorded["predicted"]["ranks"]);
    for line in ["explain --from run --grid x=4", "explain --from pruned"] {
        refused_in(at, line, &["--from", "pruned", "--sparsity 0.9"]);
        let output = run(at, &format!("{line} --sparsity 0.75"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    refused_in(at, "explain --from run --price --cluster selene", &["--price", "--sparsity 0.9"]);
}
