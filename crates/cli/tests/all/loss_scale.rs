//! `train --loss-scale`: of values in f16 alone, kept by the run's folder, and told where it was too large.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::common::run;
use crate::refusals::{refused, refused_in};
use crate::run_folders::{copy_run, succeed};

const TINY: &str = "train --model gpt-tiny --set vocab=256 --threads 1";
/// Weight gradients of so few targets, in f16 as well, are above its largest number at the first scale.
const LARGE: &str = "--dtype f16 --gradients f16 --grid x=1 --global-batch 1 --seq-len 2";

/// The records of a run without what is different each time.
fn steps(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("steps.jsonl")).unwrap();
    let step = |line: &str| {
        let mut step: Value = serde_json::from_str(line).unwrap();
        let fields = step.as_object_mut().unwrap();
        fields.retain(|name, _| !["seconds", "tokens_per_second"].contains(&name.as_str()));
        step
    };
    text.lines().map(step).collect()
}

fn scales(folder: &Path) -> Vec<Value> {
    steps(folder).iter().map(|step| step["loss_scale"].clone()).collect()
}

fn decided(folder: &Path) -> Value {
    let description: Value = serde_json::from_slice(&fs::read(folder.join("run.json")).unwrap()).unwrap();
    description["spec"]["loss_scale"].clone()
}

#[test]
fn what_is_no_power_of_two_or_of_another_type_is_refused() {
    for text in ["3", "0", "-8", "0.5", "dynamic"] {
        refused(
            &format!("{TINY} --steps 4 --dtype f16 --loss-scale {text}"),
            &["--loss-scale", "auto, or a power of two"],
        );
    }
    for (dtype, choice) in [("f32", "auto"), ("f64", "1024"), ("bf16", "1")] {
        let words = ["--loss-scale ", choice, dtype, "keep their range; leave it out, or use --dtype f16"];
        refused(&format!("{TINY} --dtype {dtype} --loss-scale {choice}"), &words);
    }
    let folder = tempfile::tempdir().unwrap();
    succeed(folder.path(), &format!("{TINY} --steps 4 --out run"));
    refused_in(folder.path(), "train --resume run --steps 5 --loss-scale auto", &["--loss-scale auto", "--dtype f16"]);
}

#[test]
fn a_run_keeps_its_scale_and_finds_another_with_another_type() {
    let folder = tempfile::tempdir().unwrap();
    let run_folder = folder.path().join("run");
    succeed(folder.path(), &format!("{TINY} --steps 4 --dtype f16 --grid x=2,data=2 --out run"));
    assert_eq!((decided(&run_folder), scales(&run_folder)), (json!("auto"), vec![json!(65536); 4]));
    let mut expected = scales(&run_folder);
    for (change, choice, scale) in [
        ("--loss-scale 1024", json!({ "fixed": 1024 }), json!(1024)),
        ("--lr 1e-4", json!({ "fixed": 1024 }), json!(1024)),
        ("--dtype f32", Value::Null, Value::Null),
        ("--dtype f16", json!("auto"), json!(65536)),
    ] {
        expected.push(scale);
        succeed(folder.path(), &format!("train --resume run --steps {} {change}", expected.len()));
        assert_eq!((decided(&run_folder), scales(&run_folder)), (choice, expected.clone()), "{change}");
    }
    let table = fs::read_to_string(run_folder.join("steps.csv")).unwrap();
    let ends: Vec<_> = table.lines().map(|row| row.rsplitn(11, ',').collect::<Vec<_>>()[7..10].join(",")).collect();
    assert_eq!(ends[0], "overflow,loss_scale,spike");
    assert_eq!((ends[4].as_str(), ends[7].as_str()), ("false,65536,false", "false,,false"));
}

#[test]
fn a_skipped_step_is_told_and_no_failure_and_a_resumed_run_has_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let [whole, resumed] = ["whole", "resumed"].map(|name| folder.path().join(name));
    let line = format!("{TINY} {LARGE} --steps 12 --checkpoint-every 1 --keep 20 --out whole");
    let output = run(folder.path(), &line);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    let skipped =
        "step 1 is not applied: its gradient is not finite at the loss scale 65536, which is 32768 from here on\n";
    assert!(told.contains(skipped), "{told}");
    let all = steps(&whole);
    assert_eq!(
        (&all[0]["overflow"], &all[0]["applied"], &all[0]["grad_norm"]),
        (&json!(true), &json!(false), &json!(null))
    );
    assert!(all.iter().any(|step| step["applied"] == true && step["overflow"] == false), "{all:?}");
    copy_run(&whole, &resumed, 1);
    succeed(folder.path(), "train --resume resumed");
    assert_eq!(steps(&resumed), all);
    let fails = run(folder.path(), &format!("{TINY} {LARGE} --steps 4 --loss-scale 65536"));
    let message = String::from_utf8_lossy(&fails.stderr);
    assert!(fails.status.code() == Some(1) && message.contains("the gradient norm of step 1 is "), "{message}");
    assert!(message.contains("were multiplied by 65536: take a smaller --loss-scale, or auto"), "{message}");
}

/// In f16 by a scale that is too large, in f32 by weights that have left every range: no end with success, nothing learned.
#[test]
fn a_run_that_skips_one_step_after_the_other_ends_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let ends = |name: &str, line: &str, words: &[&str]| {
        let output = run(folder.path(), &format!("{TINY} --steps 70 --on-divergence skip --out {name} {line}"));
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(words.iter().all(|words| message.contains(words)), "{message}");
        let all = steps(&folder.path().join(name));
        let applied = all.iter().filter(|step| step["applied"] == true).count();
        assert!(all[applied..].iter().all(|step| step["applied"] == false), "{all:?}");
        assert_eq!(all.len(), applied + 50);
        let events = fs::read_to_string(folder.path().join(name).join("events.jsonl")).unwrap();
        assert!(events.lines().last().unwrap().contains("diverged"), "{events}");
    };
    let scale = [
        "50 steps in a row were skipped, up to step 50",
        "at the loss scale 2147483648",
        "a smaller --loss-scale, or auto",
    ];
    ends("fixed", &format!("{LARGE} --loss-scale 2147483648"), &scale);
    let rate = ["50 steps in a row were skipped, up to step ", "the last loss is NaN; lower the learning rate"];
    ends("wide", "--dtype f32 --grid x=1 --lr 1e30 --set warmup_steps=0 --global-batch 1 --seq-len 8", &rate);
}

#[test]
fn resume_rejects_a_run_of_another_version() {
    let folder = tempfile::tempdir().unwrap();
    let run_folder = folder.path().join("run");
    succeed(folder.path(), &format!("{TINY} --steps 4 --dtype f16 --out run"));
    let mut description: Value = serde_json::from_slice(&fs::read(run_folder.join("run.json")).unwrap()).unwrap();
    description["spec"]["version"] = json!(1);
    fs::write(run_folder.join("run.json"), description.to_string()).unwrap();
    refused_in(folder.path(), "train --resume run --steps 5", &["run.json: version 1", "reads version 2"]);
}
