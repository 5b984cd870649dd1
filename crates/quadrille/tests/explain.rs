//! `quadrille explain`: the document's shape, and numbers that can be counted by hand.

mod common;

use std::collections::BTreeMap;

use common::{json, run};
use serde_json::{Map, Value, json as value};

const COUNTS: [&str; 3] = ["calls", "payload_bytes", "wire_bytes"];

fn ranks(document: &Value) -> &Vec<Value> {
    document["ranks"].as_array().unwrap()
}

fn object(value: &Value) -> &Map<String, Value> {
    value.as_object().unwrap_or_else(|| panic!("no object: {value}"))
}

/// Sum of the fields of a rank's `flops`.
fn flops(rank: &Value) -> u64 {
    ["gemm_forward", "gemm_input_gradient", "gemm_weight_gradient", "attention_forward", "attention_backward"]
        .into_iter()
        .map(|field| rank["flops"][field].as_u64().unwrap_or_else(|| panic!("no {field} in {}", rank["flops"])))
        .sum()
}

fn text(line: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), line);
    assert!(output.status.success() && output.stderr.is_empty(), "{line}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_rank_has_a_ledger_and_axes_of_size_one_are_there_and_empty() {
    let document = json("explain --model gpt-tiny --grid x=2,data=2 --activations replicated");
    assert_eq!(document["layout"]["grid"], "x=2,y=1,z=1,data=2");
    assert_eq!(ranks(&document).len(), 4);
    for (number, rank) in ranks(&document).iter().enumerate() {
        assert_eq!(rank["rank"], number);
        for axis in ["y", "z"] {
            assert_eq!(rank["axes"][axis], value!({}), "{axis} has one rank");
        }
        for axes in ["x", "data", "world"] {
            let transfer = &rank["axes"][axes]["all_reduce"];
            assert!(COUNTS.iter().all(|count| transfer[count].as_u64().unwrap() > 0), "{axes}: {transfer}");
        }
        let memory = object(&rank["memory"]);
        for class in ["parameters", "gradients", "optimizer", "activations"] {
            assert!(memory[class].as_u64().unwrap() > 0, "{class}");
            assert!(memory[class].as_u64() < memory["peak"].as_u64());
        }
    }
}

#[test]
fn layers_sum_to_axes() {
    let document = json("explain --model gpt-tiny --grid x=2,y=2,z=2,data=2 --microbatch 8");
    for rank in ranks(&document) {
        let layers = rank["layers"].as_array().unwrap();
        let names: Vec<_> = layers.iter().map(|layer| layer["layer"].as_str().unwrap()).collect();
        assert!(names.len() >= 4 && names.starts_with(&["embedding", "block 0", "block 1"]), "{names:?}");
        let mut sums: BTreeMap<(&str, &str, &str), u64> = BTreeMap::new();
        for layer in layers {
            for (axes, kinds) in object(&layer["axes"]) {
                for (kind, transfer) in object(kinds) {
                    for count in COUNTS {
                        *sums.entry((axes, kind, count)).or_default() += transfer[count].as_u64().unwrap();
                    }
                }
            }
        }
        let mut total = BTreeMap::new();
        for (axes, kinds) in object(&rank["axes"]) {
            for (kind, transfer) in object(kinds) {
                COUNTS.iter().for_each(|count| {
                    total.insert((axes.as_str(), kind.as_str(), *count), transfer[count].as_u64().unwrap());
                });
            }
        }
        assert_eq!(sums, total);
    }
}

/// Ring algorithms on p ranks: (p-1)/p of the buffer is sent to gather or to reduce-scatter, twice that to all-reduce.
#[test]
fn bytes_on_the_wire_follow_from_the_payload() {
    for (grid, size) in [("x=4", 4), ("y=4", 4), ("z=4", 4), ("data=4", 4), ("x=3", 3)] {
        let document = json(&format!("explain --model gpt-tiny --grid {grid} --global-batch 12 --rank 1"));
        let (axis, _) = grid.split_once('=').unwrap();
        let kinds = object(&ranks(&document)[0]["axes"][axis]);
        assert!(!kinds.is_empty(), "{grid}");
        for (kind, transfer) in kinds {
            let once = transfer["payload_bytes"].as_u64().unwrap() * (size - 1) / size;
            let expected = if kind == "all_reduce" { 2 * once } else { once };
            assert_eq!(transfer["wire_bytes"], expected, "{grid} {kind}");
        }
    }
}

/// gpt-tiny: 2 layers, hidden 48, vocabulary 67 (68 when cut by x*y = 4), 16 positions, f32.
#[test]
fn flops_and_parameters_are_those_counted_by_hand() {
    let products = |vocabulary: u64| 2 * 128 * (2 * 12 * 48 * 48 + vocabulary * 48);
    for (grid, vocabulary) in [("x=1", 67), ("x=2,y=2", 68), ("z=2,data=2", 67)] {
        let document = json(&format!("explain --model gpt-tiny --grid {grid} --global-batch 8"));
        for product in ["gemm_forward", "gemm_input_gradient", "gemm_weight_gradient"] {
            let sum: u64 = ranks(&document).iter().map(|rank| rank["flops"][product].as_u64().unwrap()).sum();
            assert_eq!(sum, products(vocabulary), "{grid} {product}");
        }
    }
    let serial = json("explain --model gpt-tiny --grid x=1");
    let parameters = 2 * (12 * 48 * 48 + 13 * 48) + (67 + 16) * 48 + 2 * 48;
    let memory = &ranks(&serial)[0]["memory"];
    assert_eq!([&memory["parameters"], &memory["optimizer"]], [4 * parameters, 8 * parameters]);
    assert!(object(&ranks(&serial)[0]["axes"]).values().all(|kinds| object(kinds).is_empty()));
}

#[test]
fn types_scale_bytes_overlap_changes_none_and_microbatches_repeat_calls() {
    let line = "explain --model gpt-tiny --grid x=2,y=2,z=2 --global-batch 16 --rank 0";
    let axes = |more: &str| ranks(&json(&format!("{line} {more}")))[0]["axes"].clone();
    let x = |axes: &Value, count: &str| axes["x"]["all_gather"][count].as_u64().unwrap();
    let base = axes("");
    assert_eq!(x(&axes("--dtype f64"), "wire_bytes"), 2 * x(&base, "wire_bytes"));
    assert_eq!(axes("--overlap none"), base);
    assert_eq!(axes("--overlap oar,oag"), base);
    let four = axes("--microbatch 4");
    assert_eq!(x(&four, "calls"), 4 * x(&base, "calls"));
    assert_eq!(x(&four, "payload_bytes"), x(&base, "payload_bytes"));
}

#[test]
fn the_order_of_axes_moves_ranks_and_not_bytes() {
    let line = "explain --model gpt-tiny --grid x=2,y=2,data=2";
    let other = json(&format!("{line} --order data,z,y,x --per-node 4"));
    assert_eq!(
        (other["layout"]["order"].as_str(), other["layout"]["per_node"].as_u64()),
        (Some("data,z,y,x"), Some(4))
    );
    let total = |document: &Value| ranks(document).iter().map(flops).sum::<u64>();
    assert_eq!(total(&other), total(&json(line)));
    assert_eq!(ranks(&other)[0]["axes"], ranks(&json(line))[0]["axes"]);
}

#[test]
fn a_model_file_with_overrides_is_a_preset_with_overrides() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml");
    std::fs::write(&file, "name='gpt-tiny'\nlayers=1\nhidden=48\nheads=12\nvocab=6_7\nseq_len=16\n").unwrap();
    let mine = json(&format!("explain --model {} --set layers=3 --grid x=2", file.display()));
    assert_eq!(mine, json("explain --model gpt-tiny --set layers=3 --grid x=2"));
}

#[test]
fn the_program_is_printed_operation_by_operation() {
    let line = "explain --model gpt-tiny --set layers=1 --grid x=2,y=2 --program";
    let printed = text(line);
    for part in ["embedding · forward", "block 0 · backward", "attention", "all-gather x", "reduce-scatter y", "frees"]
    {
        assert!(printed.contains(part), "{part}:\n{printed}");
    }
    let document = json(line);
    assert_eq!(document["program"].as_array().unwrap().len(), printed.lines().count());
    assert!(document.get("ranks").is_none());
    let both = json(&format!("{line} --ledger --rank 3"));
    assert_eq!((&both["program"], &both["ranks"][0]["rank"]), (&document["program"], &value!(3)));
}

#[test]
fn people_read_a_summary_and_the_ledger_of_a_rank() {
    let summary = text("explain --model gpt-tiny --grid x=2,z=2");
    for part in [
        "gpt-tiny: 2 layers",
        "x=2,y=1,z=2,data=1",
        "rank 0",
        "reduce-scatter",
        "on the wire",
        "at peak, in buffers of",
    ] {
        assert!(summary.contains(part), "{part}:\n{summary}");
    }
    assert_eq!(text("explain --model gpt-tiny --grid x=2,z=2 --ledger").matches(", one step").count(), 4);
    assert!(text("explain --model gpt-tiny --grid x=1").contains("no communication"));
}
