//! `quadrille verify`: what it compares, and that it says no.

use serde_json::Value;

use crate::common::{json, run};

fn grids(document: &Value) -> &Vec<Value> {
    document["grids"].as_array().unwrap()
}

fn check(report: &Value, tolerance: f64) {
    for field in ["loss_diff", "grad_diff", "norm_diff", "weight_diff", "evaluation_diff"] {
        let difference = report[field].as_f64().unwrap();
        assert!((0.0..=tolerance).contains(&difference), "{field} = {difference} on {}", report["grid"]);
    }
    assert_eq!((&report["ledger_equal"], &report["ok"]), (&true.into(), &true.into()), "{report}");
}

#[test]
fn every_grid_of_four_ranks_equals_the_serial_model() {
    let document = json("verify --model gpt-tiny --all-grids --ranks 4 --steps 2 --global-batch 4 --seed 7");
    assert_eq!(grids(&document).len(), 10);
    grids(&document).iter().for_each(|report| check(report, 1e-11));
    let mut names: Vec<_> = grids(&document).iter().map(|report| report["grid"].as_str().unwrap()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 10, "no grid twice: {names:?}");
}

#[test]
fn grids_that_the_batch_does_not_allow_are_named_with_the_reason() {
    let document = json("verify --model gpt-tiny --all-grids --ranks 2 --steps 1 --global-batch 3");
    let skipped: Vec<_> = document["skipped"].as_array().unwrap().iter().map(|grid| &grid["grid"]).collect();
    assert_eq!((grids(&document).len(), skipped.len()), (1, 3), "{skipped:?}");
    assert_eq!(grids(&document)[0]["grid"], "x=2,y=1,z=1,data=1");
    assert!(document["skipped"][0]["reason"].as_str().unwrap().contains("2 or 4"));
}

#[test]
fn one_layout_of_every_option() {
    let line = "verify --model gpt-tiny --grid x=2,y=2,z=2 --activations replicated --order z,data,y,x --overlap ors \
                --global-batch 8 --microbatch 4 --seq-len 9 --steps 2 --set dropout=0.1 --set tied_head=false";
    let document = json(line);
    let report = &grids(&document)[0];
    assert_eq!(
        (report["grid"].as_str(), report["activations"].as_str()),
        (Some("x=2,y=2,z=2,data=1"), Some("replicated"))
    );
    check(report, 1e-11);
}

#[test]
fn single_precision_is_close() {
    let document = json("verify --model gpt-tiny --grid y=2,data=2 --dtype f32 --steps 2");
    check(&grids(&document)[0], 5e-5);
    // Updated by the same gradients, weights differ by their rounding alone.
    assert!((1e-12..1e-6).contains(&grids(&document)[0]["weight_diff"].as_f64().unwrap()), "{document}");
    assert!(grids(&document)[0]["grad_diff"].as_f64().unwrap() > 1e-12, "f32 rounds");
}

#[test]
fn people_read_a_line_per_grid() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), "verify --model gpt-tiny --all-grids --ranks 3 --steps 1 --global-batch 3");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    let lines: Vec<_> = text.lines().filter(|line| line.starts_with("x=")).collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(lines.iter().all(|line| line.ends_with("ok") && line.contains("equal")), "{text}");
    assert!(text.contains("\n4 of 4 ok\n"), "{text}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is written");
}

/// No rank can be awaited for a nanosecond: the run fails, which is not the user's input.
#[test]
fn a_job_that_stops_exits_with_one() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), "verify --model gpt-tiny --grid x=2,y=2 --timeout 1e-9 --json");
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{message}");
    assert!(message.starts_with("error: ") && message.contains("late: rank "), "{message}");
    assert!(!message.contains("panicked"), "{message}");
}

#[test]
fn other_axes_are_enumerated_when_asked_for() {
    let line = "verify --model gpt-tiny --all-grids --ranks 4 --steps 1 --global-batch 4 --axes x,context,pipe";
    let document = json(line);
    grids(&document).iter().for_each(|report| check(report, 1e-11));
    let skipped: Vec<_> = document["skipped"].as_array().unwrap().iter().map(|grid| &grid["grid"]).collect();
    let names: Vec<_> = grids(&document).iter().map(|report| report["grid"].as_str().unwrap()).collect();
    // 2^2 over three axes; two layers in four stages leave the first and the last without a block.
    assert_eq!((names.len(), skipped.len()), (6, 0), "{skipped:?}");
    for name in ["x=1,y=1,z=1,data=1,pipe=4", "x=1,y=1,z=1,context=2,data=1,pipe=2", "x=4,y=1,z=1,data=1"] {
        assert!(names.contains(&name), "{name} is not in {names:?}");
    }
    let one = json("verify --model gpt-tiny --all-grids --ranks 8 --steps 1 --axes pipe,context");
    let reasons: Vec<_> =
        one["skipped"].as_array().unwrap().iter().map(|grid| grid["reason"].as_str().unwrap()).collect();
    assert_eq!((grids(&one).len(), reasons.len()), (3, 1));
    assert!(reasons[0].contains("has a block"), "{reasons:?}");
}

#[test]
fn pipelines_of_every_option() {
    let line = "verify --model gpt-tiny --set layers=4 --steps 2 --set dropout=0.1 --global-batch 8";
    for layout in [
        "--grid x=2,pipe=2 --schedule zb-h1 --stage-blocks 1,3",
        "--grid y=2,pipe=2 --schedule interleaved --chunks 2 --microbatch-group 2",
        "--grid z=2,pipe=2 --schedule message-driven --keep-weights step",
        "--grid data=2,pipe=2 --schedule gpipe --zero 2 --recompute full:2 --cac",
        "--grid x=2,y=2 --linear summa --summa-panels 4 --recompute selective",
        "--grid context=2,data=2 --zero 1 --overlap-chunks 2",
    ] {
        check(&grids(&json(&format!("{line} {layout}")))[0], 1e-11);
    }
}
