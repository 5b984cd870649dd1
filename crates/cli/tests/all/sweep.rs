//! `quadrille sweep`: tables and pages over one or two numbers.

use std::fs;

use crate::common::{json, page_document, run};
use crate::refusals::{folder_with, refused, refused_in};

const CLUSTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/small_cluster.toml");

/// The header and rows that a sweep prints, and the files that it writes.
fn sweep(more: &str) -> (Vec<String>, Vec<Vec<String>>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let line = format!("sweep --model gpt2-124m --cluster {CLUSTER} --global-batch 32 {more}");
    let output = run(folder.path(), &line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    let mut reader = csv::Reader::from_reader(output.stdout.as_slice());
    let header = reader.headers().unwrap().iter().map(str::to_owned).collect();
    let rows = reader.records().map(|row| row.unwrap().iter().map(str::to_owned).collect()).collect();
    (header, rows, folder)
}

fn column(header: &[String], rows: &[Vec<String>], name: &str) -> Vec<String> {
    let at = header.iter().position(|known| known == name).unwrap_or_else(|| panic!("{name} in {header:?}"));
    rows.iter().map(|row| row[at].clone()).collect()
}

fn numbers(header: &[String], rows: &[Vec<String>], name: &str) -> Vec<f64> {
    column(header, rows, name).iter().map(|cell| cell.parse().unwrap()).collect()
}

#[test]
fn more_gpus_are_faster() {
    let (header, rows, folder) = sweep("--vary gpus=1..8 --html scaling.html");
    assert_eq!(column(&header, &rows, "vary_gpus"), ["1", "2", "4", "8"]);
    assert_eq!(numbers(&header, &rows, "devices"), [1.0, 2.0, 4.0, 8.0]);
    assert!(numbers(&header, &rows, "time_s").is_sorted_by(|a, b| a > b));
    assert!(column(&header, &rows, "reason").iter().all(String::is_empty));
    let document = page_document(&fs::read_to_string(folder.path().join("scaling.html")).unwrap());
    let points = document["points"].as_array().unwrap();
    let of = |at: usize| points[at]["plan"]["time_s"].as_f64().unwrap();
    assert_eq!(points.len(), 4);
    let times = numbers(&header, &rows, "time_s");
    assert!((0..4).all(|at| (of(at) - times[at]).abs() <= 1e-9 * times[at]), "the page has the rows of the table");
}

#[test]
fn two_numbers_vary_on_a_page() {
    let (header, rows, folder) =
        sweep("--vary tiers.1.bandwidth=1e9,1e10 --vary gpus=2,8 --tokens 1e9 --html page.html");
    assert_eq!(
        column(&header, &rows, "vary_tiers.1.bandwidth"),
        ["1000000000", "1000000000", "10000000000", "10000000000"]
    );
    assert_eq!(column(&header, &rows, "vary_gpus"), ["2", "8", "2", "8"]);
    let times = numbers(&header, &rows, "time_s");
    assert!(times[1] > times[3], "a slower network: {times:?}");
    assert!((times[0] - times[2]).abs() < 1e-9 * times[0], "two GPUs share a node");
    let document = page_document(&fs::read_to_string(folder.path().join("page.html")).unwrap());
    let names = |at: usize| document["variables"][at]["name"].as_str();
    assert_eq!((names(0), names(1)), (Some("tiers.1.bandwidth"), Some("gpus")));
    let points = document["points"].as_array().unwrap();
    assert!(points.len() == 4 && points.iter().all(|point| point["plan"]["days"].as_f64() > Some(0.0)));
}

#[test]
fn every_kind_of_number_varies() {
    for (vary, column_name, values) in [
        ("batch=32,64", "global_batch", ["32", "64"]),
        ("seq-len=512,1024", "seq_len", ["512", "1024"]),
        ("nvs=2,4", "per_node", ["2", "4"]),
    ] {
        let (header, rows, _) = sweep(&format!("--vary {vary} --gpus 4"));
        assert_eq!(column(&header, &rows, column_name), values, "{vary}");
    }
    let (header, rows, _) = sweep("--vary device.peak.half=5e13..2e14:3 --gpus 4");
    assert_eq!(rows.len(), 3);
    assert!(numbers(&header, &rows, "time_s").is_sorted_by(|a, b| a > b));
}

/// Twice as many sequences as there are devices would be more than a step can have.
#[test]
fn a_batch_that_varies_has_no_usual_value() {
    let folder = tempfile::tempdir().unwrap();
    let line = format!(
        "sweep --model gpt2-124m --cluster {CLUSTER} --vary gpus=16777216 --vary batch=64 --fix x=3 --search-limit 1000"
    );
    let output = run(folder.path(), &line);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("\n16777216,64,"), "{text}");
}

#[test]
fn points_are_the_best_of_plan() {
    let (header, rows, _) = sweep("--vary tiers.1.bandwidth=2e9,2e10 --gpus 8");
    let cluster = fs::read_to_string(CLUSTER).unwrap();
    let folder = folder_with("other.toml", cluster.replace("bandwidth = 12.5e9", "bandwidth = 2e9"));
    let file = folder.path().join("other.toml");
    let line = format!("plan --model gpt2-124m --gpus 8 --global-batch 32 --top 1 --cluster {}", file.display());
    let best = json(&line)["plans"][0].clone();
    let first = numbers(&header, &rows, "time_s")[0];
    assert!((first - best["time_s"].as_f64().unwrap()).abs() <= 1e-9 * first, "{first} and {best}");
    assert_eq!(column(&header, &rows, "grid")[0], best["layout"]["grid"].as_str().unwrap());
    refused_in(folder.path(), "sweep --vary gpus=2 --cluster other.toml --out other.toml", &["--out", "--cluster"]);
    let nowhere = "sweep --vary gpus=2 --cluster other.toml --out no/rows.csv";
    refused_in(folder.path(), nowhere, &["cannot write --out no/rows.csv", "make the folder no first"]);
}

#[test]
fn a_point_without_a_layout_says_why() {
    let (header, rows, folder) = sweep("--vary gpus=3,4 --fix x=4 --html page.html");
    let reasons = column(&header, &rows, "reason");
    assert!(reasons[0].contains("divides the 3 devices") && reasons[1].is_empty(), "{reasons:?}");
    assert_eq!(column(&header, &rows, "time_s")[0], "");
    let document = page_document(&fs::read_to_string(folder.path().join("page.html")).unwrap());
    let [none, some] = [0, 1].map(|at| &document["points"][at]);
    assert!(none["plan"].is_null() && none["reason"].as_str() == Some(&reasons[0]), "{none}");
    assert!(some["plan"].is_object() && some["reason"].is_null());
}

#[test]
fn bad_sweeps_are_refused() {
    let cluster = format!("--cluster {CLUSTER}");
    for (flags, words) in [
        ("", &["--vary"][..]),
        ("--vary gpus", &["'gpus'", "gpus=64..4096"]),
        ("--vary gpus=8..4", &["8..4", "ascends"]),
        ("--vary gpus=2.5", &["2.5", "whole"]),
        ("--vary speed=1", &["unknown variable 'speed'", "gpus, nodes, nvs, batch, seq-len", "device.peak.half"]),
        ("--vary device.memory_efficiency=2", &["memory_efficiency = 2", "(0, 1]"]),
        ("--vary seq-len=2048", &["seq-len = 2048", "1024 positions"]),
        ("--vary gpus=2 --gpus 4", &["--vary gpus", "leave --gpus"]),
        ("--vary gpus=2 --vary gpus=4", &["vary = gpus", "twice"]),
        ("--vary batch=8 --vary global-batch=16", &["vary = global-batch", "twice"]),
        ("--vary nvs=2 --vary tiers.0.devices=4", &["vary = tiers.0.devices", "twice"]),
        ("--vary gpus=2 --vary nvs=2 --vary batch=2", &["at most two"]),
        ("--vary gpus=2 --html missing/page.html", &["--html missing/page.html"]),
    ] {
        refused(&format!("sweep --model gpt2-124m {cluster} {flags}"), words);
    }
}
