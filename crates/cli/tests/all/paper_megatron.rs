//! `quadrille paper megatron plan`: what the takeaways advise, and why.

use std::fs;

use serde_json::Value;

use crate::common::{json, run};
use crate::refusals::{folder_with, refused, refused_in};

const LINE: &str = "paper megatron plan --model megatron-39.1b --gpus 512 --cluster selene --global-batch 1536";

/// Made-up, round numbers, so that the snapshot changes only with the planner.
const CLUSTER: &str = "name = 'small'
source = 'made up for tests'
[device]
name = 'toy'
source = 'made up for tests'
memory = 40_000_000_000
memory_bandwidth = 1e12
memory_efficiency = 0.8
peak = { half = 100e12, single = 50e12, double = 10e12 }
vector_rate = 10e12
launch_seconds = 4e-6
products = { kind = 'curve', ceiling = 0.8, half_m = 100, half_n = 100, half_k = 100 }
attention = { kind = 'constant', fraction = 0.5 }
[[tiers]]
name = 'inner'
devices = 4
bandwidth = 200e9
efficiency = 0.7
latency = 2e-6
[[tiers]]
name = 'outer'
bandwidth = 12.5e9
efficiency = 0.7
latency = 5e-6
";

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn people_read_sizes_and_reasons() {
    let folder = folder_with("small.toml", CLUSTER);
    let line = "paper megatron plan --model megatron-18.4b --gpus 64 --cluster small.toml --global-batch 256";
    let output = run(folder.path(), line);
    assert!(output.status.success());
    insta::assert_snapshot!(String::from_utf8(output.stdout).unwrap());
}

/// Table 1 has tensor and pipeline sizes of these models on Selene.
#[test]
fn published_sizes_are_advised() {
    for (model, gpus, batch, tensor, pipeline) in [
        ("megatron-18.4b", 256, 1024, 8, 1),
        ("megatron-39.1b", 512, 1536, 8, 2),
        ("megatron-76.1b", 1024, 1792, 8, 4),
        ("megatron-145.6b", 1536, 2304, 8, 8),
    ] {
        let line = format!("paper megatron plan --model {model} --gpus {gpus} --cluster selene --global-batch {batch}");
        let document = json(&line);
        let layout = &document["plans"][0]["layout"];
        assert_eq!((&layout["tensor"], &layout["pipeline"]), (&tensor.into(), &pipeline.into()), "{model}");
        assert_eq!(layout["data"], gpus / (tensor * pipeline));
    }
}

#[test]
fn documents_hold_together() {
    let document = json(LINE);
    for (field, value) in [("model", "megatron-39.1b"), ("cluster", "selene"), ("cost", "megatron")] {
        assert_eq!(document[field], value);
    }
    for (field, value) in [("gpus", 512), ("per_node", 8), ("global_batch", 1536)] {
        assert_eq!(document[field], value);
    }
    let plan = &document["plans"][0];
    let size = |field: &str| number(&plan["layout"][field]);
    let [t, p, d, b, v] = ["tensor", "pipeline", "data", "microbatch", "chunks"].map(size);
    assert_eq!(t * p * d, 512.0);
    let microbatches = number(&plan["microbatches"]);
    assert_eq!(microbatches * b * d, 1536.0);
    // Sections 2.2.1 and 2.2.2.
    assert!((number(&plan["bubble"]) - (p - 1.0) / (v * microbatches)).abs() < 1e-12);
    let seconds = microbatches * number(&plan["pass_s"]) * (1.0 + number(&plan["bubble"]));
    assert!((number(&plan["time_s"]) / seconds - 1.0).abs() < 1e-12);
    let memory: f64 = plan["memory"].as_object().unwrap().values().map(number).sum();
    assert!((number(&plan["memory_bytes"]) / memory - 1.0).abs() < 1e-12);
    assert!(number(&plan["memory_bytes"]) <= number(&document["device_memory_bytes"]));
    // Section 3.2, half precision: 8 b s h (t-1)/t a layer, and b s h for each chunk; section 4.1: a t-th of it.
    let boundary = 2.0 * b * 2048.0 * 8192.0;
    let sent = &plan["sent_bytes"];
    assert!((number(&sent["tensor"]) / (48.0 / p * 8.0 * boundary * (t - 1.0) / t) - 1.0).abs() < 1e-12);
    assert_eq!((number(&sent["stage"]), number(&sent["stage_scattered"])), (v * boundary, v * boundary / t));
    for name in ["tensor", "pipeline", "data", "microbatch", "chunks"] {
        assert!(plan["reasons"][name].as_str().unwrap().starts_with(&format!("{name}=")), "{plan}");
    }
    // No faster than the device can: 312 TFLOP/s.
    assert!((1e14..312e12).contains(&number(&plan["flop_per_s"])));
}

#[test]
fn nodes_and_memory_decide() {
    let layout = |more: &str| json(&format!("{LINE} {more}"))["plans"][0]["layout"].clone();
    let wide = layout("");
    let narrow = layout("--per-node 4");
    assert_eq!((&wide["tensor"], &narrow["tensor"]), (&8.into(), &4.into()));
    assert!(number(&narrow["pipeline"]) > number(&wide["pipeline"]));
    // One stage: nothing is sent to a next one.
    let one = json("paper megatron plan --model megatron-1.7b --gpus 32 --cluster selene --global-batch 512");
    assert_eq!((&one["gpus"], &one["plans"][0]["layout"]["pipeline"]), (&32.into(), &1.into()));
    assert_eq!((number(&one["plans"][0]["sent_bytes"]["stage"]), number(&one["plans"][0]["bubble"])), (0.0, 0.0));
}

#[test]
fn the_advice_is_written_as_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &format!("{LINE} --csv advice.csv --json"));
    assert!(output.status.success());
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let plan = &document["plans"][0];
    let text = fs::read_to_string(folder.path().join("advice.csv")).unwrap();
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!((lines.len(), lines[0].len(), lines[1].len()), (2, 15, 15));
    for (name, value) in lines[0].iter().zip(&lines[1]) {
        let found = [&plan["layout"][name], &plan[name], &plan["memory"][name]];
        let found = found.into_iter().find(|found| !found.is_null()).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(value.parse::<f64>().unwrap(), number(found), "{name}");
    }
}

#[test]
fn what_cannot_be_advised() {
    let with = |more: &str| format!("paper megatron plan --model megatron-18.4b --cluster selene {more}");
    refused(&with("--global-batch 64"), &["required arguments", "--gpus <N>"]);
    refused(&with("--gpus 64"), &["required arguments", "--global-batch <N|TOKENS>"]);
    refused("paper megatron plan --gpus 64 --global-batch 64", &["required arguments", "--cluster <NAME|FILE>"]);
    refused(
        "paper megatron plan --gpus 64 --global-batch 64 --cluster local",
        &["--cluster local", "speed and the memory", "selene"],
    );
    refused(&with("--gpus 97 --global-batch 64"), &["devices = 97", "power of two"]);
    refused(&with("--gpus 1 --global-batch 64"), &["device_memory = 85.9 GB", "use more devices"]);
    refused(&with("--gpus 64 --global-batch 0"), &["batch = 0"]);
    refused(&with("--gpus 0 --global-batch 8"), &["--gpus", "from 1 to 16777216"]);
    refused(&with("--gpus 64 --global-batch 64 --per-node 16"), &["per-node = 16", "8 devices"]);
    let llama = "paper megatron plan --model llama2-7b --gpus 8 --global-batch 8 --cluster selene";
    refused(llama, &["activation = swiglu", "GPT's family"]);
    refused(&with("--gpus 256 --global-batch 1024 --csv no/advice.csv"), &["cannot write --csv no/advice.csv"]);
    // A cluster of links alone.
    let links = "name = 'links'\nsource = 'a test'\nintra_node_bandwidth = 1e11\ndevice_memory = 80000000000\n";
    let folder = folder_with("links.toml", links);
    let line = "paper megatron plan --gpus 8 --global-batch 8 --cluster links.toml";
    refused_in(folder.path(), line, &["--cluster links", "names its device"]);
    refused_in(folder.path(), &format!("{line} --csv links.toml"), &["--csv", "--cluster", "name another file"]);
    // Options of other commands.
    for option in [
        "--ranks 64",
        "--dtype f32",
        "--strategy 1d",
        "--nvs 8",
        "--microbatch 1",
        "--chunks 2",
        "--seq-len 128",
        "--zero 1",
    ] {
        let (name, _) = option.split_once(' ').unwrap();
        refused(&with(&format!("--gpus 64 --global-batch 64 {option}")), &[&format!("unexpected argument '{name}'")]);
    }
}
