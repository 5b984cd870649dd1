//! `quadrille report`: what the page of a run holds.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::common::page_document;

const TINY: &str = "train --model gpt-tiny --set vocab=256 --threads 1";

fn run(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quadrille"));
    command.args(words).current_dir(folder).stdin(Stdio::null()).output().unwrap()
}

fn succeed(folder: &Path, line: &str) -> String {
    let output = run(folder, &line.split_whitespace().collect::<Vec<_>>());
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What it says; it must be about input.
fn refused(folder: &Path, line: &str) -> String {
    let output = run(folder, &line.split_whitespace().collect::<Vec<_>>());
    assert_eq!(output.status.code(), Some(2), "{line}");
    String::from_utf8(output.stderr).unwrap()
}

/// The document of the page at `path`.
fn shown(path: &Path) -> Value {
    page_document(&fs::read_to_string(path).unwrap())
}

/// How many numbers each curve of the document has: loss, gradient norm, learning rate, speed.
fn curves(document: &Value) -> [usize; 4] {
    ["loss", "grad_norm", "lr", "tokens_per_second"].map(|name| {
        let points = document["curves"][name].as_array().unwrap();
        points.iter().filter(|point| point[1].is_number()).count()
    })
}

/// The entry with this name.
fn named<'a>(entries: &'a Value, name: &str) -> &'a Value {
    entries.as_array().unwrap().iter().find(|entry| entry["name"] == name).unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn a_page_shows_the_whole_run() {
    let folder = tempfile::tempdir().unwrap();
    let line = "--grid x=2,pipe=2 --microbatch 1 --steps 9 --validation 0.1 --validate-every 4 --validation-batches 2";
    succeed(folder.path(), &format!("{TINY} {line} --checkpoint-every 5 --out a<b&c"));
    // Of a machine that nobody has measured nothing is predicted.
    succeed(folder.path(), "report a<b&c --out plain.html");
    let plain = shown(&folder.path().join("plain.html"));
    let told = plain["breakdown"]["told"][0].as_str().unwrap();
    assert!(told.contains("not predicted on the cluster local: nobody has measured it") && told.contains("--cluster"));
    assert!(plain["breakdown"]["step"]["predicted_s"].is_null());
    let told = succeed(folder.path(), "report a<b&c --cluster selene");
    let path = folder.path().join("a<b&c/report.html");
    assert_eq!(Path::new(told.trim()), Path::new("a<b&c/report.html"));
    // What users name is text.
    let page = fs::read_to_string(&path).unwrap();
    assert!(page.contains("<title>a&lt;b&amp;c: gpt-tiny</title>") && !page.contains("a<b"));
    let document = page_document(&page);
    assert_eq!((&document["run"], &document["steps"]), (&json!("a<b&c"), &json!(9)));
    // Validation after steps 4, 8 and 9.
    assert_eq!((curves(&document), document["curves"]["validation"].as_array().map(Vec::len)), ([9; 4], Some(3)));
    // The built-in corpus has a floor, and the run has more.
    let summary: Value =
        serde_json::from_str(&fs::read_to_string(folder.path().join("a<b&c/summary.json")).unwrap()).unwrap();
    assert_eq!(document["curves"]["floor"], summary["floor"]);
    let breakdown = &document["breakdown"];
    let told = breakdown["told"][0].as_str().unwrap();
    assert!(told.contains("predicted: the step's program simulated") && told.contains("on the cluster selene"));
    let groups = &breakdown["groups"];
    let kind = |group: &str, name: &str| named(&named(groups, group)["kinds"], name).clone();
    for entry in [
        named(groups, "products").clone(),
        kind("products", "gemm"),
        kind("element-wise", "adamw"),
        breakdown["step"].clone(),
    ] {
        assert!(["measured_s", "predicted_s"].iter().all(|side| entry[side].as_f64() > Some(0.0)), "{entry}");
    }
    let ledger = &document["ledger"];
    assert_eq!(
        (&ledger["told"], &ledger["equal"]),
        (&json!("bytes, FLOPs and memory of all 4 ranks as predicted, as integers, in every step"), &json!(true))
    );
    let scatter = named(&ledger["transfers"], "x reduce-scatter");
    assert!(["calls", "payload", "wire"].iter().all(|field| scatter[field][0] == scatter[field][1]), "{scatter}");
    let calls: u64 = summary["ledger"]["counted"]["ranks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rank| rank["axes"]["x"]["reduce_scatter"]["calls"].as_u64().unwrap_or(0))
        .sum();
    assert_eq!(scatter["calls"][0], calls);
    assert_eq!(named(&document["checkpoints"], "step-000000000009")["step"], 9);
    let events = document["events"].to_string();
    assert!(events.contains("checkpoint of step 5") && events.contains("validation loss"), "{events}");
}

#[test]
fn steps_that_stand_out_are_marked_and_losses_may_be_no_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let line = "--grid x=1 --set warmup_steps=0 --steps 4 --lr 1e30 --on-divergence skip --out run";
    succeed(folder.path(), &format!("{TINY} {line}"));
    succeed(folder.path(), "report run --out page.html");
    let document = shown(&folder.path().join("page.html"));
    let marks = document["curves"]["marks"].as_array().unwrap();
    assert_eq!(marks.len(), 3);
    assert!(marks.iter().all(|mark| mark["kind"] == "not applied" && mark["loss"].is_null()), "{marks:?}");
    // Loss and gradient norm have one point, learning rate and speed four.
    assert_eq!(curves(&document), [1, 1, 4, 4]);
    assert!(document["events"].as_array().unwrap().iter().any(|event| event["kind"] == "skipped"));
    assert!(!folder.path().join("run/report.html").exists());
}

#[test]
fn a_run_without_an_end_is_shown_as_far_as_it_got() {
    let folder = tempfile::tempdir().unwrap();
    succeed(folder.path(), &format!("{TINY} --grid data=2 --steps 6 --out run"));
    let of_run = |name: &str| folder.path().join("run").join(name);
    let summary = fs::read(of_run("summary.json")).unwrap();
    fs::remove_file(of_run("summary.json")).unwrap();
    let steps = fs::read_to_string(of_run("steps.jsonl")).unwrap();
    // As a killed process may leave it.
    fs::write(of_run("steps.jsonl"), &steps[..steps.len() - 20]).unwrap();
    succeed(folder.path(), "report run --cluster selene");
    let document = shown(&of_run("report.html"));
    assert_eq!(curves(&document), [5; 4]);
    let notes = document["notes"].as_array().unwrap();
    assert_eq!(notes[0], "There is no summary.json: the run goes on, or was cut off before its end.");
    assert!(notes[1].as_str().unwrap().starts_with("The last line of steps.jsonl is cut off"));
    let step = &document["breakdown"]["step"];
    let reduce = named(&document["ledger"]["transfers"], "data all-reduce");
    assert!(step["measured_s"].is_null() && step["predicted_s"].is_number(), "{step}");
    assert!(reduce["calls"][0].is_number() && reduce["calls"][1].is_null(), "{reduce}");

    // A summary of an earlier part is not taken for one of the whole.
    fs::write(of_run("summary.json"), summary).unwrap();
    let next = steps.lines().last().unwrap().replace("\"step\":6", "\"step\":7");
    fs::write(of_run("steps.jsonl"), format!("{steps}{next}\n")).unwrap();
    succeed(folder.path(), "report run");
    let notes = shown(&of_run("report.html"))["notes"].to_string();
    assert!(notes.contains("summary.json is of another part of the run, which ended after step 6"), "{notes}");
}

#[test]
fn what_no_run_writes_is_named() {
    let folder = tempfile::tempdir().unwrap();
    succeed(folder.path(), &format!("{TINY} --grid x=1 --steps 4 --out run"));
    let of_run = |name: &str| folder.path().join("run").join(name);
    let steps = fs::read_to_string(of_run("steps.jsonl")).unwrap();
    let lines: Vec<&str> = steps.lines().collect();
    let damaged = |name: &str, text: &str| {
        let whole = fs::read(of_run(name)).unwrap();
        fs::write(of_run(name), text).unwrap();
        let message = refused(folder.path(), "report run");
        fs::write(of_run(name), whole).unwrap();
        message
    };
    let torn = steps.replace(lines[1], &lines[1][..30]);
    let message = damaged("steps.jsonl", &torn);
    assert!(message.contains("steps.jsonl, line 2, column ") && !message.contains("line 1"), "{message}");
    let message = damaged("steps.jsonl", &format!("{}\n{}\n", lines[2], lines[1]));
    assert!(message.contains("steps.jsonl, line 2: step 2 follows step 3; steps ascend"), "{message}");
    let message = damaged("events.jsonl", "{\"step\":1}\n");
    assert!(message.contains("events.jsonl, line 1, column ") && message.contains("missing field"), "{message}");
    let message = damaged("summary.json", "{}");
    assert!(message.contains("summary.json: missing field"), "{message}");
    let message = damaged("run.json", &fs::read_to_string(of_run("run.json")).unwrap().replace("\"x=1", "\"x=3"));
    assert!(message.contains("run.json: layout: "), "{message}");
    for (line, part) in [
        ("report nothing", "nothing holds no run.json"),
        ("report run --out run/steps.jsonl", "would be written over or into the run's "),
        ("report run --out nowhere/page.html", "cannot write --out nowhere/page.html"),
        ("report run --cluster moon", "moon"),
    ] {
        let message = refused(folder.path(), line);
        assert!(message.contains(part), "{line}: {message}");
    }
    assert_eq!(fs::read_to_string(of_run("steps.jsonl")).unwrap(), steps);
}

#[test]
fn a_folder_is_one_document() {
    let folder = tempfile::tempdir().unwrap();
    let train = format!("{TINY} --grid x=2 --global-batch 4 --steps 4 --checkpoint-every 2 --out a --json");
    let summary: Value = serde_json::from_str(&succeed(folder.path(), &train)).unwrap();
    let told: Value = serde_json::from_str(&succeed(folder.path(), "report a --json")).unwrap();
    for field in ["model", "layout", "steps", "floor"] {
        assert_eq!(told[field], summary[field], "{field}");
    }
    assert_eq!((&told["ledger"]["equal"], &told["ledger"]["counted"]), (&true.into(), &summary["ledger"]["counted"]));
    let stored: Vec<_> = told["checkpoints"].as_array().unwrap().iter().map(|stored| stored["step"].as_u64()).collect();
    assert_eq!(
        (stored, told["last"].as_u64(), told["unfinished"].as_u64()),
        (vec![Some(2), Some(4)], Some(4), Some(0))
    );
    // 2 blocks of 48 columns, 256 tokens of vocabulary, sequences of 16: Megatron-LM counts half of the attention.
    let rate = |convention: &str| {
        let line = format!("report a --json --flops-convention {convention}");
        let told: Value = serde_json::from_str(&succeed(folder.path(), &line)).unwrap();
        assert_eq!(told["flops_convention"], convention);
        told["tflops_per_device"].as_f64().unwrap()
    };
    let [native, megatron] = ["native", "megatron"].map(rate);
    let products = 6.0 * (2.0 * (4.0 * 48.0 * 48.0 + 2.0 * 48.0 * 192.0) + 256.0 * 48.0);
    let attention = 2.0 * 12.0 * 48.0 * 16.0;
    let ratio = (products + attention) / (products + attention / 2.0);
    assert!(native > 0.0 && (native / megatron / ratio - 1.0).abs() < 1e-9, "{native} and {megatron}");
    assert_eq!(told["tflops_per_device"].as_f64(), Some(native));
    // No page is written, and none is asked for beside it.
    assert!(!folder.path().join("a/report.html").exists());
    assert!(refused(folder.path(), "report a --json --out b.html").contains("cannot be used with"));
    fs::remove_file(folder.path().join("a/summary.json")).unwrap();
    let cut: Value = serde_json::from_str(&succeed(folder.path(), "report a --json")).unwrap();
    assert!(cut["unsummed"].as_str().unwrap().contains("summary.json") && cut["ledger"]["counted"].is_null());
    assert_eq!(cut["ledger"]["predicted"], summary["ledger"]["predicted"]);
}
