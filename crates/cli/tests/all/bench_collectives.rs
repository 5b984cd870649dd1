//! `quadrille bench collectives`: its documents, tables and pages, and what it refuses. No test asserts a speed.

use std::fs;

use serde_json::Value;

use crate::common::{json, page_document, run};
use crate::refusals::{folder_with, refused, refused_in};

const CLUSTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/small_cluster.toml");

/// A field that is a number above zero.
fn number(value: &Value, field: &str) -> f64 {
    let number = value[field].as_f64().unwrap_or_else(|| panic!("no number {field} in {value}"));
    assert!(number > 0.0, "{field} = {number}");
    number
}

fn assert_close(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-9 * b.abs(), "{a} and {b}");
}

fn rows(document: &Value) -> &Vec<Value> {
    document["collectives"].as_array().unwrap()
}

#[test]
fn collectives_have_the_bandwidths_of_nccl_tests() {
    let document =
        json("bench collectives --ranks 2,3 --sizes 4KiB,1 --runs 2 --collective all-to-all,broadcast,all-reduce");
    // Three collectives on two numbers of ranks at two sizes by three algorithms.
    assert_eq!(rows(&document).len(), 36);
    let mut native = 0.0;
    for row in rows(&document) {
        let ranks = number(row, "ranks");
        let others = (ranks - 1.0) / ranks;
        let factor = match row["collective"].as_str().unwrap() {
            "all-reduce" => 2.0 * others,
            "all-to-all" => others,
            "broadcast" => 1.0,
            other => panic!("{other} was not asked for"),
        };
        let algorithm = number(row, "bytes") / number(row, "seconds") / 1e9;
        assert_close(number(row, "algorithm_gb_s"), algorithm);
        assert_close(number(row, "bus_gb_s"), factor * algorithm);
        assert_close(number(row, "ratio_to_copy"), number(row, "bus_gb_s") / number(row, "copy_gb_s"));
        assert_close(number(row, "copy_total_gb_s"), ranks * number(row, "copy_gb_s"));
        assert_eq!((number(row, "runs"), number(row, "per_node")), (2.0, ranks));
        if row["algorithm"] == "native" {
            native = number(row, "seconds");
        }
        assert_close(number(row, "ratio_to_native"), native / number(row, "seconds"));
        assert!(row.get("predicted_seconds").is_none());
    }
    // Three ranks share 1024 elements unequally: one is left out.
    assert!(rows(&document).iter().any(|row| row["ranks"] == 3 && row["bytes"] == 4092));
}

#[test]
fn two_levels_are_measured_on_nodes_and_predicted_on_a_cluster() {
    let line = "bench collectives --collective all-gather --ranks 2,4 --sizes 64KiB --runs 1";
    let algorithms = |document: &Value, ranks: u64| -> Vec<String> {
        let of_ranks = rows(document).iter().filter(|row| row["ranks"] == ranks);
        of_ranks.map(|row| row["algorithm"].as_str().unwrap().to_owned()).collect()
    };
    let document = json(&format!("{line} --per-node 2"));
    assert_eq!(algorithms(&document, 2), ["native", "ring", "recursive"]);
    assert_eq!(algorithms(&document, 4), ["native", "ring", "recursive", "hierarchical"]);
    let document = json(&format!("{line} --cluster {CLUSTER} --algorithms ring"));
    assert_eq!(algorithms(&document, 4), ["native", "ring"]);
    for row in rows(&document) {
        let ranks = number(row, "ranks");
        let seconds = number(row, "predicted_seconds");
        // On one node, a latency of 2 us a step and links of 200 GB/s of which 0.7 are reached.
        assert_close(seconds, (ranks - 1.0) * 2e-6 + (ranks - 1.0) / ranks * 65536.0 / 140e9);
        assert_close(row["predicted_error"].as_f64().unwrap(), seconds / number(row, "seconds") - 1.0);
    }
}

#[test]
fn tables_and_pages_show_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let line = "bench collectives --ranks 2,3 --sizes 4KiB..64KiB --runs 1 --csv times.csv --html speedups.html";
    let output = run(folder.path(), line);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(["reduce-scatter", "of native", "recursive", "16.0 KiB"].iter().all(|word| text.contains(word)), "{text}");
    let mut reader = csv::Reader::from_path(folder.path().join("times.csv")).unwrap();
    let header: Vec<String> = reader.headers().unwrap().iter().map(str::to_owned).collect();
    assert_eq!(header[..7], ["collective", "ranks", "per_node", "algorithm", "bytes", "runs", "seconds"]);
    // Three collectives on two numbers of ranks at three sizes by three algorithms.
    assert_eq!(reader.records().map(Result::unwrap).count(), 54);
    let document = page_document(&fs::read_to_string(folder.path().join("speedups.html")).unwrap());
    assert_eq!(rows(&document).len(), 54);
    // Three ranks share 1024 elements unequally: what was asked for is one row of a heat map all the same.
    assert!(rows(&document).iter().any(|row| row["size"] == 4096 && row["bytes"] == 4092));
    // Files are replaced, and nothing is left beside them.
    assert!(run(folder.path(), line).status.success());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn what_cannot_be_measured_is_refused() {
    for (arguments, words) in [
        ("--ranks 1", ["--ranks", "1"].as_slice()),
        ("--sizes 0", &["--sizes = 0", "at least one f32, 4 B"]),
        ("--sizes 2B", &["--sizes = 2B", "4KiB..64MiB"]),
        ("--sizes 8B --ranks 4", &["--sizes 8B on --ranks 4", "16 B", "fewer ranks"]),
        ("--sizes 1MiB..4KiB", &["ascends"]),
        ("--sizes 1048576 --ranks 1024", &["of memory are available", "smaller size"]),
        ("--algorithms tree", &["unknown algorithm 'tree'", "recursive"]),
        ("--collective gather", &["unknown collective 'gather'", "all-to-all"]),
        ("--ranks 6 --per-node 4", &["--per-node = 4", "--ranks 6", "--per-node 3"]),
        ("--algorithms hierarchical", &["--algorithms = hierarchical", "--per-node 2"]),
        ("--cluster local", &["--cluster = local", "[[tiers]]"]),
        ("--cluster nowhere", &["nowhere"]),
        ("--csv missing/times.csv", &["--csv missing/times.csv"]),
        ("--csv both --html both", &["--html", "--csv", "another file"]),
        ("--runs 0", &["--runs"]),
    ] {
        refused(&format!("bench collectives {arguments}"), words);
    }
    let folder = folder_with("cluster.toml", fs::read(CLUSTER).unwrap());
    let over = "bench collectives --cluster cluster.toml --csv cluster.toml";
    refused_in(folder.path(), over, &["--csv", "--cluster", "another file"]);
    fs::create_dir(folder.path().join("page.html")).unwrap();
    refused_in(folder.path(), "bench collectives --html page.html", &["--html page.html"]);
}
