//! `--device emulated`: the kernels of GPUs train, evaluate and generate what the processor does, and go on from its checkpoints.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::run;

/// What a command prints on standard output; `None` where this build has no emulated device.
fn told(folder: &Path, line: &str) -> Option<String> {
    let output = run(folder, line);
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("this build has none") {
        eprintln!("SKIPPED: there is no C++ compiler, so no emulated device");
        return None;
    }
    assert!(output.status.success(), "{line}: {errors}");
    Some(String::from_utf8(output.stdout).unwrap())
}

/// The loss of every step of a run.
fn losses(folder: &Path, name: &str) -> Vec<f64> {
    let steps = fs::read_to_string(folder.join(name).join("steps.jsonl")).unwrap();
    steps.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["loss"].as_f64().unwrap()).collect()
}

fn assert_near(found: &[f64], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let off = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(off < 1e-11, "{what}: {found:?}, not {expected:?}");
}

/// A folder with a text, and a model of experts and one without.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let text: String = (0..200).map(|n| format!("{n} and {} make {}.\n", n % 7, n + n % 7)).collect();
    fs::write(folder.path().join("sums.txt"), text).unwrap();
    let model = "name = 'small'\nlayers = 2\nhidden = 8\nheads = 2\nvocab = 256\nseq_len = 12\n";
    fs::write(folder.path().join("dense.toml"), model).unwrap();
    fs::write(folder.path().join("experts.toml"), format!("{model}experts = 4\nexperts_per_token = 2\n")).unwrap();
    folder
}

const DATA: &str = "--data sums.txt --tokenizer bytes --validation 0.2";

#[test]
fn runs_go_on_on_either_device() {
    let folder = folder();
    let folder = folder.path();
    for (model, grid, other) in [("dense", "x=2,data=2", "y=2,pipe=2"), ("experts", "expert=2", "x=2")] {
        let begin = |out: &str, device: &str| {
            let line = format!(
                "train --model {model}.toml {DATA} --dtype f64 --grid {grid} --global-batch 8 --steps 2 --threads 1 \
                 --lr 1e-2 --out {out} --device {device}"
            );
            told(folder, &line)
        };
        let go_on = |from: &str, device: &str| {
            told(folder, &format!("train --resume {from} --steps 4 --grid {other} --device {device}"))
        };
        let [on_processor, on_device] = ["processor", "device"].map(|name| format!("{model}-{name}"));
        if begin(&on_device, "emulated").is_none() {
            return;
        }
        begin(&on_processor, "cpu");
        assert_near(&losses(folder, &on_device), &losses(folder, &on_processor), "two steps");
        go_on(&on_device, "cpu");
        go_on(&on_processor, "emulated");
        assert_near(&losses(folder, &on_device), &losses(folder, &on_processor), "two more on the other");
    }
}

#[test]
fn evaluations_and_generations_are_the_processors() {
    let folder = folder();
    let folder = folder.path();
    for model in ["dense", "experts"] {
        let train = format!(
            "train --model {model}.toml {DATA} --dtype f64 --grid data=2 --global-batch 8 --steps 20 --threads 1 --lr 1e-2 \
             --out {model}"
        );
        told(folder, &train);
        let evaluated = |device: &str| -> Option<Value> {
            let line = format!("eval --from {model} {DATA} --grid x=2 --samples 5 --device {device} --json");
            Some(serde_json::from_str(&told(folder, &line)?).unwrap())
        };
        let Some(document) = evaluated("emulated") else { return };
        let loss = |document: &Value| document["loss"].as_f64().unwrap();
        assert_near(&[loss(&document)], &[loss(&evaluated("cpu").unwrap())], "an evaluation");
        assert_eq!(document["ledger"]["equal"], true);
        let generated = |device: &str| {
            told(
                folder,
                &format!(
                    "generate --from {model} --prompt 12 --max-tokens 8 --temperature 0 --grid x=2 --device {device}"
                ),
            )
        };
        assert_eq!(generated("emulated"), generated("cpu"), "{model}");
    }
}

#[test]
fn a_step_is_measured_beside_the_devices_own_product() {
    let folder = folder();
    let line = "bench step --model dense.toml --grid x=2 --steps 1 --global-batch 2 --threads 1 --device emulated";
    let Some(text) = told(folder.path(), line) else { return };
    assert!(text.contains("GFLOP/s on 64x64x64 f32 on emulated device"), "{text}");
    let document: Value = serde_json::from_str(&told(folder.path(), &format!("{line} --json")).unwrap()).unwrap();
    assert_eq!(document["device"], "emulated device");
    assert!(document["gemm_gflops"].as_f64().unwrap() > 0.0 && document["scaling"].as_f64().unwrap() > 0.0);
}

#[test]
fn algorithms_of_products_are_kept_and_used_again() {
    let folder = folder();
    let folder = folder.path();
    let line = |more: &str| {
        format!(
            "train --model dense.toml --dtype f32 --grid x=2,data=2 --global-batch 4 --steps 2 --threads 1 --device emulated \
             --log log --json {more}"
        )
    };
    let cache = folder.join("cache");
    // What was tuned, and the norms of the gradients of all steps: they differ where losses round to the same.
    let trained = |more: &str| -> Option<(Value, Vec<f64>)> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quadrille"));
        let line = line(more);
        command.args(line.split_whitespace()).current_dir(folder).env("XDG_CACHE_HOME", &cache).stdin(Stdio::null());
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        if errors.contains("this build has none") {
            eprintln!("SKIPPED: there is no C++ compiler, so no emulated device");
            return None;
        }
        assert!(output.status.success(), "{more}: {errors}");
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let log = fs::read_to_string(folder.join("log")).unwrap();
        let norm = |line: &str| serde_json::from_str::<Value>(line).unwrap()["grad_norm"].as_f64().unwrap();
        Some((document["matmul"].clone(), log.lines().map(norm).collect()))
    };
    let Some(first) = trained("--tune-matmul") else { return };
    let chosen = &first.0["algorithms"];
    assert!(chosen["device"].as_str().unwrap().starts_with("emulated device"), "{chosen}");
    assert!(chosen["products"].as_array().unwrap().len() > 10);
    // A later run measures nothing: even the seconds are those of the first.
    assert_eq!(trained("--tune-matmul").unwrap(), first);

    // What is recorded is what runs: with sums in other parts the numbers are others in their last digits, and a file keeps both.
    let record = fs::read_dir(cache.join("quadrille/products")).unwrap().next().unwrap().unwrap().path();
    let with_parts = |parts: u32| {
        let mut document: Value = serde_json::from_str(&fs::read_to_string(&record).unwrap()).unwrap();
        for product in document["algorithms"]["products"].as_array_mut().unwrap() {
            let algorithm: Vec<u32> = (0..16).map(|word| if word == 0 { parts } else { 0 }).collect();
            product["algorithm"] = algorithm.into();
        }
        fs::write(&record, document.to_string()).unwrap();
        trained(&format!("--tune-matmul parts-{parts}.json")).unwrap()
    };
    let whole = with_parts(1);
    let halves = with_parts(2);
    assert_ne!(whole.1, halves.1);
    // Without tuning the library takes its first.
    assert_eq!(trained("").unwrap().1, whole.1);
    fs::remove_dir_all(&cache).unwrap();
    assert_eq!(trained("--tune-matmul parts-2.json").unwrap(), halves);
    assert!(!cache.exists(), "a file is replayed, and nothing measured");

    // They mean nothing elsewhere, nor do a processor's here.
    let refused = |line: &str, with: &[&str]| {
        let output = run(folder, line);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && with.iter().all(|part| errors.contains(part)), "{line}: {errors}");
    };
    let on_processor = |file: &str| line(&format!("--tune-matmul {file}")).replace("--device emulated", "--device cpu");
    refused(
        &on_processor("parts-2.json"),
        &["tuned on emulated device", "computes on the processor", "name another file"],
    );
    let mut unknown: Value = serde_json::from_str(&fs::read_to_string(folder.join("parts-2.json")).unwrap()).unwrap();
    unknown["choices"]["algorithms"]["products"][0]["algorithm"][0] = 3.into();
    fs::write(folder.join("unknown.json"), unknown.to_string()).unwrap();
    refused(&line("--tune-matmul unknown.json"), &["tuned on emulated device", "algorithms that are unknown there"]);
}

/// The emulated device as a cluster: measured, planned for, and its steps predicted and measured in bf16. Without such a file nothing
/// is predicted for it.
#[test]
fn a_device_is_calibrated_and_its_steps_are_predicted() {
    let folder = folder();
    let folder = folder.path();
    if told(folder, "calibrate --device emulated --ranks 2 --runs 1 --out gpus.toml").is_none() {
        return;
    }
    let local =
        "validate local --model dense.toml --ranks 2 --layouts 2 --steps 3 --dtype bf16 --device emulated --json";
    let document: Value =
        serde_json::from_str(&told(folder, &format!("{local} --cluster gpus.toml")).unwrap()).unwrap();
    assert_eq!(document["device"], "emulated device");
    let layouts = document["layouts"].as_array().unwrap();
    assert_eq!(layouts.len(), 2);
    for layout in layouts {
        assert!(layout["predicted_seconds"].as_f64().unwrap() > 0.0 && layout["ledger_equal"] == true, "{layout}");
        assert_eq!((&layout["layout"]["dtype"], &layout["layout"]["vocab_multiple"]), (&"bf16".into(), &4.into()));
    }
    let plan = "plan --cluster gpus.toml --framework quadrille --model dense.toml --dtype bf16 --gpus 2 --json";
    let plans: Value = serde_json::from_str(&told(folder, plan).unwrap()).unwrap();
    assert!(plans["plans"][0]["time_s"].as_f64().unwrap() > 0.0);
    let refused = run(folder, local);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && message.contains("--cluster local: it is a processor"), "{message}");
}
