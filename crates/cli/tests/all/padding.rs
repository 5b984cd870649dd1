//! Padding is no token to routers of experts, and ignored targets are tokens: equal documents and texts give equal losses, norms and
//! loads at any length of samples, in every layout, whichever targets count.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::run;
use crate::run_folders::succeed;

/// A mixture that drops nothing and whose first update is applied at once.
const MIXTURE: &str =
    "train --model moe-tiny --set vocab=256 --dtype f64 --set clip=none --set warmup_steps=0 --threads 1";

/// Numbers of the steps of a run by field, and of its routers by field.
struct Steps(Vec<Value>);

impl Steps {
    fn of(folder: &Path, run: &str) -> Self {
        let text = fs::read_to_string(folder.join(run).join("steps.jsonl")).unwrap();
        Self(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    }

    fn numbers(&self, pointer: &str) -> Vec<f64> {
        self.0.iter().map(|step| step.pointer(pointer).and_then(Value::as_f64).unwrap()).collect()
    }

    #[track_caller]
    fn assert_near(&self, other: &Self, what: &str) {
        for pointer in ["/loss", "/grad_norm", "/router/balance", "/router/z", "/router/dropped", "/router/most"] {
            for (a, b) in self.numbers(pointer).into_iter().zip(other.numbers(pointer)) {
                assert!((a - b).abs() <= 1e-10 * a.abs().max(1e-3), "{what}: {pointer} {a} {b}");
            }
        }
    }
}

/// Sixteen documents of six tokens, the last of which ends the document.
fn write_documents(folder: &Path) {
    let text = |document: usize| -> String {
        (0..5).map(|at| char::from(b'a' + (document * document + 3 * at) as u8 % 23)).collect()
    };
    let lines: Vec<String> =
        (0..16).map(|document| serde_json::json!({ "text": text(document) }).to_string()).collect();
    fs::write(folder.join("documents.jsonl"), lines.join("\n")).unwrap();
}

#[test]
fn documents_train_alike_at_any_length_of_samples() {
    let folder = tempfile::tempdir().unwrap();
    write_documents(folder.path());
    let train = |run: &str, flags: &str| {
        let data = "--data documents.jsonl --tokenizer bytes --documents respected --global-batch 16 --steps 3";
        succeed(folder.path(), &format!("{MIXTURE} --set seq_len=64 {data} {flags} --out {run}"));
        Steps::of(folder.path(), run)
    };
    for (name, settings) in [
        ("dropless", "--set capacity=0 --set router_z_loss=0.1 --set balance_loss=1"),
        ("batch", "--set capacity=0 --set experts=8 --set balance=batch --set balance_loss=1"),
        ("biased", "--set capacity=0 --set router=sigmoid --set balance=none --set router_bias_rate=0.05"),
    ] {
        let short = train(&format!("{name}-short"), &format!("{settings} --seq-len 5 --grid x=1"));
        for (number, layout) in [
            "--seq-len 5 --grid z=2,data=2",
            "--seq-len 64 --grid x=1",
            "--seq-len 64 --grid expert=4",
            "--seq-len 64 --grid x=2,context=2,expert=2 --experts-over x,expert",
            "--seq-len 16 --grid pipe=2,z=4 --microbatch 16",
        ]
        .into_iter()
        .enumerate()
        {
            let long = train(&format!("{name}-{number}"), &format!("{settings} {layout}"));
            short.assert_near(&long, &format!("{name} {layout}"));
        }
    }
}

/// A group of positions has places for its tokens alone.
#[test]
fn padding_brings_no_places() {
    let folder = tempfile::tempdir().unwrap();
    write_documents(folder.path());
    let train = |run: &str, flags: &str| {
        let data = "--data documents.jsonl --tokenizer bytes --documents respected --global-batch 16 --steps 3";
        let of = "--set seq_len=64 --set balance_loss=1";
        succeed(folder.path(), &format!("{MIXTURE} {of} {data} {flags} --out {run}"));
        Steps::of(folder.path(), run)
    };
    for drop in ["choice", "score"] {
        let settings = |group: usize| format!("--set capacity=0.8 --set drop={drop} --set capacity_group={group}");
        let short = train(&format!("{drop}-short"), &format!("{} --seq-len 8 --grid x=1", settings(8)));
        assert!(short.numbers("/router/dropped").iter().all(|dropped| *dropped > 0.1), "choices are dropped");
        for (number, (group, layout)) in [
            (8, "--seq-len 64 --grid context=2,expert=2"),
            (16, "--seq-len 16 --grid x=1"),
            (32, "--seq-len 64 --grid x=2,z=2"),
            (64, "--seq-len 64 --grid data=2,pipe=2"),
        ]
        .into_iter()
        .enumerate()
        {
            let long = train(&format!("{drop}-{number}"), &format!("{} {layout}", settings(group)));
            short.assert_near(&long, &format!("{drop} {layout} in groups of {group}"));
        }
    }
}

/// Eight ranks whose experts get as much padding as tokens have room for: only tokens are counted.
#[test]
fn padding_needs_no_room_at_experts() {
    let folder = tempfile::tempdir().unwrap();
    write_documents(folder.path());
    let of = "--set experts=8 --set capacity=0 --set seq_len=64 --seq-len 64 --global-batch 16 --steps 1";
    let data = "--data documents.jsonl --tokenizer bytes --documents respected";
    succeed(folder.path(), &format!("{MIXTURE} {of} {data} --grid expert=8 --expert-rows 1 --out run"));
    assert_eq!(Steps::of(folder.path(), "run").numbers("/router/dropped"), [0.0]);
}

/// The search for the first number that is not finite reads as many rows as experts have got.
#[test]
fn operations_of_experts_with_padding_are_named_where_numbers_overflow() {
    let folder = tempfile::tempdir().unwrap();
    write_documents(folder.path());
    let data = "--data documents.jsonl --tokenizer bytes --documents respected --seq-len 16 --global-batch 4";
    for flags in ["--grid expert=2", "--grid x=2,expert=2", "--grid data=2,z=2"] {
        let line = format!(
            "train --model moe-tiny --set vocab=256 --set capacity=0 --threads 1 --steps 2 --dtype f16 \
             --loss-scale 2147483648 {data} {flags}"
        );
        let output = run(folder.path(), &line);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{flags}: {message}");
        assert!(message.contains("operation ") && !message.contains("panicked"), "{flags}: {message}");
    }
}

#[test]
fn ignored_targets_leave_the_losses_of_routers_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let of = "--set capacity=0 --set balance_loss=10000 --steps 1 --seq-len 16 --global-batch 16";
    let run = |name: &str, flags: &str| {
        succeed(folder.path(), &format!("{MIXTURE} {of} {flags} --out {name}"));
        Steps::of(folder.path(), name)
    };
    let all = run("all", "--grid x=1");
    for (name, layout) in
        [("one", "x=1"), ("two", "z=2,data=2"), ("four", "x=2,pipe=2"), ("eight", "context=2,expert=4")]
    {
        let some = run(name, &format!("--grid {layout} --goldfish k=2,h=3"));
        assert_eq!(some.numbers("/router/balance").len(), 1);
        let [a, b] = [&all, &some].map(|steps| steps.numbers("/router/balance")[0]);
        assert!((a - b).abs() < 1e-9 * a, "{layout}: {a} {b}");
        // The loss of tokens has a gradient of less than 3.
        let [a, b] = [&all, &some].map(|steps| steps.numbers("/grad_norm")[0]);
        assert!((a - b).abs() < 3.0, "{layout}: {a} {b}");
    }
}
