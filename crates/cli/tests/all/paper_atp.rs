//! `quadrille paper atp plan`: meshes ranked on the paper's interconnects and on those of files.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::{json, run};
use crate::refusals::{folder_with, refused, refused_in};

/// Two nodes of two devices: links of 100 GB/s in a node, of 10 GB/s between nodes.
const NODES: &str = "name = 'nodes'\nsource = 'a test'\n\
                     [[layers]]\np2p = [[0.0, 10e9], [10e9, 0.0]]\ngroup = [10e9, 10e9]\n\
                     [[layers]]\np2p = [[0.0, 100e9], [100e9, 0.0]]\ngroup = [100e9, 100e9]\n";

fn printed(folder: &Path, line: &str) -> String {
    let output = run(folder, line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn seconds(document: &Value, d1: u64) -> f64 {
    let plans = document["plans"].as_array().unwrap();
    number(&plans.iter().find(|plan| plan["layout"]["d1"] == d1).unwrap()["time_s"])
}

#[test]
fn people_read_a_table() {
    let folder = tempfile::tempdir().unwrap();
    insta::assert_snapshot!(printed(folder.path(), "paper atp plan --interconnect ic6 --model gpt2-124m --top 2"));
}

/// Equation 2, 4 sequences of 2048 tokens in 96 layers of 12288: 14h/d1 elements over d2 and 4h/d2 over d1.
#[test]
fn both_counts_are_equation_2() {
    let elements = 4.0 * 2048.0 * 96.0 * 12_288.0 * 2.0;
    for (counts, over_d2) in [("", 14.0), ("--counts paper", 14.0), ("--counts exact", 12.0)] {
        let document = json(&format!("paper atp plan --interconnect ic3 --model gpt3-175b {counts}"));
        assert_eq!(document["counts"], counts.strip_prefix("--counts ").unwrap_or("paper"));
        for plan in document["plans"].as_array().unwrap() {
            let [first, second] = [0, 1].map(|at| &plan["dimensions"][at]);
            let [d1, d2] = [first, second].map(|dimension| number(&dimension["size"]));
            let expect = |dimension: &Value, size: f64, bytes: f64| {
                let bytes = if size == 1.0 { 0.0 } else { bytes };
                assert!((number(&dimension["bytes"]) - bytes).abs() <= 1e-12 * bytes, "{plan}");
                assert_eq!(dimension["bandwidth"].is_null(), size == 1.0);
                if size == 8.0 {
                    // Equation 4 of the 600 GB/s that a device has for itself.
                    assert!((number(&dimension["bandwidth"]) / (8.0 / 14.0 * 600e9) - 1.0).abs() < 1e-12, "{plan}");
                }
            };
            expect(first, d1, 4.0 * elements / d2);
            expect(second, d2, over_d2 * elements / d1);
            let sum = number(&first["time_s"]) + number(&second["time_s"]);
            assert!((sum / number(&plan["time_s"]) - 1.0).abs() < 1e-12);
            assert_eq!(plan["layout"]["grid"], format!("x={d1},y={d2}"));
        }
    }
}

/// Section 5.3: 46 % less communication on DeviceMesh(2,4) than on DeviceMesh(8,1) of IC1; 45.5 by equation 2.
#[test]
fn measured_bandwidths_choose_the_published_mesh() {
    let document = json("paper atp plan --interconnect ic1 --model gpt3-175b");
    assert_eq!(
        (&document["gpus"], &document["all_reduce"], &document["candidates"]),
        (&8.into(), &Value::Null, &2.into())
    );
    assert_eq!(document["plans"][0]["layout"]["grid"], "x=2,y=4");
    let less = 1.0 - seconds(&document, 2) / seconds(&document, 8);
    assert!((less - 0.455).abs() < 5e-4, "{less}");
}

#[test]
fn time_follows_batch_type_and_bandwidth() {
    let of = |more: &str| seconds(&json(&format!("paper atp plan --interconnect ic2 --model gpt2-124m {more}")), 4);
    let base = of("");
    for (more, times) in [("--global-batch 12", 3.0), ("--dtype f64", 4.0), ("--set seq_len=256", 0.25)] {
        assert!((of(more) / base / times - 1.0).abs() < 1e-12, "{more}");
    }
    // Of equation 4, 2 (d-1)/d of either dimension.
    let links = of("--all-reduce links");
    assert!(links < base && links > base / 2.0);
}

#[test]
fn interconnects_come_from_files() {
    let folder = folder_with("nodes.toml", NODES);
    let line = "paper atp plan --interconnect nodes.toml --model gpt2-124m --csv meshes.csv --json";
    let document: Value = serde_json::from_str(&printed(folder.path(), line)).unwrap();
    assert_eq!(
        (&document["interconnect"], &document["source"], &document["gpus"]),
        (&"nodes".into(), &"a test".into(), &4.into())
    );
    assert_eq!(document["refusals"], Value::Array(Vec::new()));
    let text = fs::read_to_string(folder.path().join("meshes.csv")).unwrap();
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines[0].join(","), "rank,d1,d2,time_s,time_1_s,time_2_s,b1_bytes_per_s,b2_bytes_per_s,bytes_1,bytes_2");
    let plans = document["plans"].as_array().unwrap();
    assert_eq!((lines.len(), plans.len()), (4, 3));
    for (plan, line) in plans.iter().zip(&lines[1..]) {
        assert_eq!(
            (line[1], line[3]),
            (plan["layout"]["d1"].to_string().as_str(), plan["time_s"].to_string().as_str())
        );
    }
    // Dimension 2 lies in the nodes: 100 GB/s by equation 4, d2 = 2.
    let mesh = plans.iter().find(|plan| plan["layout"]["d2"] == 2).unwrap();
    assert_eq!(mesh["dimensions"][1]["bandwidth"], 100e9);
    assert_eq!(mesh["dimensions"][0]["bandwidth"], 5e9);
}

#[test]
fn meshes_that_the_model_does_not_allow_are_named() {
    let document = json("paper atp plan --interconnect ic4 --model gpt2-124m");
    assert_eq!((&document["candidates"], &document["feasible"]), (&5.into(), &3.into()));
    let rules: Vec<_> =
        document["refusals"].as_array().unwrap().iter().map(|refusal| refusal["rule"].as_str().unwrap()).collect();
    assert_eq!(rules.len(), 2);
    assert!(rules.iter().all(|rule| rule.contains("does not divide heads = 12")), "{rules:?}");
    let top = json("paper atp plan --interconnect ic4 --model gpt2-124m --top 1");
    assert_eq!((&top["plans"][0], top["plans"].as_array().unwrap().len()), (&document["plans"][0], 1));
    assert_eq!(top["feasible"], 3);
}

#[test]
fn what_cannot_be_planned() {
    let ic2 = "paper atp plan --interconnect ic2 --model gpt3-175b";
    refused("paper atp plan --model gpt3-175b", &["required arguments", "--interconnect <NAME|FILE>"]);
    refused("paper atp plan --interconnect ic7", &["unknown interconnect 'ic7'", "figure-7a", "ic6"]);
    refused("paper atp plan --interconnect no.toml", &["cannot read no.toml"]);
    refused(&format!("{ic2} --counts 14h"), &["--counts", "unknown counts '14h'", "paper, exact"]);
    refused(&format!("{ic2} --all-reduce ring"), &["--all-reduce", "rabenseifner, links"]);
    refused(&format!("{ic2} --global-batch 0"), &["--global-batch 0", "1 to 2^24"]);
    refused(
        "paper atp plan --interconnect ic1 --all-reduce links",
        &["--all-reduce", "ic1 were measured", "leave it out"],
    );
    refused("paper atp plan --interconnect ic2 --model llama2-7b", &["activation = swiglu", "equation 2", "gelu"]);
    let odd = "name = 'odd'\nlayers = 2\nhidden = 21\nheads = 7\nvocab = 64\nseq_len = 64\nffn = 63\n";
    refused_in(
        folder_with("odd.toml", odd).path(),
        "paper atp plan --interconnect ic3 --model odd.toml",
        &["odd cannot be cut by any mesh of ic3", "does not divide"],
    );
    // Options of other commands.
    for option in [
        "--gpus 8",
        "--ranks 8",
        "--cluster selene",
        "--strategy 1d",
        "--nvs 8",
        "--per-node 4",
        "--seq-len 128",
        "--grid x=8",
        "--zero 1",
    ] {
        let (name, _) = option.split_once(' ').unwrap();
        refused(&format!("{ic2} {option}"), &[&format!("unexpected argument '{name}'")]);
    }
    for option in ["--interconnect ic2", "--counts exact", "--all-reduce links"] {
        let (name, _) = option.split_once(' ').unwrap();
        for other in ["axonn plan", "lbnl plan --strategy 1d --cluster b200 --gpus 8", "megatron plan --gpus 8"] {
            refused(&format!("paper {other} {option}"), &[&format!("unexpected argument '{name}'")]);
        }
    }
}

#[test]
fn interconnect_files_with_faults_name_layer_and_entry() {
    let line = "paper atp plan --model gpt2-124m --interconnect bad.toml";
    for (from, to, words) in [
        ("group = [100e9, 100e9]", "group = [100e9, 1e9]", ["layers[1].group[1]", "fastest link"]),
        ("[[0.0, 10e9]", "[[1.0, 10e9]", ["layers[0].p2p[0][0]", "no link to itself"]),
        ("[10e9, 0.0]]", "[9e9, 0.0]]", ["layers[0].p2p", "symmetric"]),
        ("source = 'a test'\n", "", ["bad.toml", "source"]),
        ("name = 'nodes'\n", "name = 'nodes'\ncolour = 1\n", ["bad.toml", "colour"]),
    ] {
        assert!(NODES.contains(from));
        refused_in(folder_with("bad.toml", NODES.replacen(from, to, 1)).path(), line, &words);
    }
    let folder = folder_with("nodes.toml", NODES);
    let onto = "paper atp plan --model gpt2-124m --interconnect nodes.toml --csv nodes.toml";
    refused_in(folder.path(), onto, &["--csv", "--interconnect", "name another file"]);
}
