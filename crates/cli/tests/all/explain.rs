//! `quadrille explain`: the document's shape, and numbers that can be counted by hand.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::{Map, Value, json as value};

use crate::common::{json, run};
use crate::refusals::refused;

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

/// A run is told as it is, and priced for another framework as that pads.
#[test]
fn a_run_is_priced_with_the_padding_of_a_framework() {
    let folder = tempfile::tempdir().unwrap();
    assert!(
        run(folder.path(), "train --model gpt-tiny --set vocab=256 --ranks 1 --steps 1 --out run").status.success()
    );
    let multiple = |more: &str| {
        let output = run(folder.path(), &format!("explain --price --from run --cluster dgx-a100 --json {more}"));
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        document["plan"]["layout"]["vocab_multiple"].clone()
    };
    for (more, padded) in [("", 1), ("--framework megatron", 128), ("--framework megatron --vocab-multiple 64", 64)] {
        assert_eq!(multiple(more), padded, "{more}");
    }
}

/// Programs and ledgers are of products that a named device has.
#[test]
fn products_that_a_named_device_has_not_are_refused() {
    let of = |more: &str| format!("explain --model gpt-tiny --grid x=2 --framework megatron {more}");
    for told in ["--ledger", "--program", ""] {
        refused(
            &of(&format!("--products nvfp4 --cluster dgx-a100 {told}")),
            &["products = nvfp4: a100-80 has no", "peak.fp4"],
        );
        assert!(!text(&of(&format!("--products nvfp4 {told}"))).is_empty(), "of no machine in particular");
    }
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

/// What is told is of one rank: where each of the most that a grid can have was looked at, it took minutes and gigabytes.
#[cfg(unix)]
#[test]
fn millions_of_ranks_are_explained_in_the_memory_of_few() {
    let limited = |line: &str| {
        let mut command = Command::new("sh");
        // So many KiB of addresses: one list with a word for each rank would not fit.
        command.args(["-c", "ulimit -v 120000; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_quadrille")]);
        command.args(line.split_whitespace()).env("RAYON_NUM_THREADS", "2").env("MALLOC_ARENA_MAX", "2");
        let output = command.output().unwrap();
        (output.status.code(), [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()))
    };
    for (grid, more) in [
        ("data=16777216", "--global-batch 16777216 --microbatch 1"),
        (
            "x=4,z=8,data=131072,pipe=4",
            "--set layers=4 --global-batch 1048576 --microbatch 8 --order data,x,y,z,pipe --per-node 8",
        ),
        ("x=2,data=8388608", "--global-batch 8388608 --microbatch 1 --cluster dgx-h100"),
    ] {
        let line = format!("explain --model gpt-tiny --grid {grid} {more}");
        let (code, [told, error]) = limited(&line);
        assert!(code == Some(0) && told.contains("16777216 ranks"), "{line}: {told} {error}");
        let (code, [told, error]) = limited(&format!("{line} --rank 16777215 --json"));
        assert_eq!(code, Some(0), "{line}: {error}");
        let document: Value = serde_json::from_str(&told).unwrap();
        assert_eq!((ranks(&document).len(), &document["lesson"]["mesh"]["ranks"]), (1, &value!(16_777_216)));
        for all in ["--json", "--ledger"] {
            let (code, [_, error]) = limited(&format!("{line} {all}"));
            assert!(
                code == Some(2) && error.contains("at most 65536; ask for one with --rank N"),
                "{line} {all}: {error}"
            );
        }
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
fn axes_of_one_rank_are_left_out() {
    for line in [
        "explain --model gpt-tiny --grid x=2,y=2,data=2",
        "explain --model llama3-8b --grid x=4,z=2,context=2,data=4,pipe=4 --per-node 8 --global-batch 512 --zero 1",
        "explain --model gpt2-124m --grid data=512,pipe=2 --global-batch 1024 --per-node 8",
        "explain --model gpt-demo --set layers=8 --grid pipe=4 --schedule interleaved --chunks 2 --global-batch 64 --timeline",
        "explain --model moe-tiny --grid x=2,expert=2",
    ] {
        let told = text(line);
        assert!(!told.contains("=1,") && !told.contains("=1 ("), "{line}:\n{told}");
    }
    let told = text("explain --model gpt-tiny --grid x=2");
    let words = || told.split(|letter: char| !letter.is_alphanumeric());
    assert!(words().all(|word| !["y", "z", "pipe"].contains(&word)), "{told}");
}

#[test]
fn a_layer_and_a_rank_narrow_what_is_told() {
    let line = "explain --model gpt-tiny --set layers=4 --grid x=2,pipe=2 --program";
    let headings = |more: &str| {
        let told = text(&format!("{line} {more}"));
        let of = |part: &str| told.lines().filter(|line| line.starts_with(part)).count();
        ["stage 0", "stage 1", "block 1 ·", "block 2 ·", "embedding ·"].map(of)
    };
    assert_eq!(headings(""), [1, 1, 5, 5, 5]);
    assert_eq!(headings("--layer 2"), [0, 1, 0, 3, 0]);
    assert_eq!(headings("--rank 1"), [1, 0, 5, 0, 5]);
    let chosen = json("explain --model gpt-tiny --set layers=4 --grid x=2,pipe=2 --layer 3");
    assert_eq!([&chosen["lesson"]["layer"], &chosen["lesson"]["rank"]], [&value!("block 3"), &value!(2)]);
    for (more, reason) in [
        ("--layer 4", "--layer 4: the blocks of gpt-tiny are 0 to 3"),
        ("--layer 3 --rank 0", "--layer 3: block 3 lies on stage 1, and rank 0 on stage 0"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let output = run(folder.path(), &format!("{line} {more}"));
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && told.contains(reason), "{more}: {told}");
    }
}

#[test]
fn a_collective_of_the_program_says_why_it_is_there() {
    let printed = text("explain --model gpt-tiny --set layers=1 --grid x=2,y=2 --program");
    let lines: Vec<&str> = printed.lines().collect();
    let issues = lines.iter().enumerate().filter(|(_, line)| line.contains(" issue "));
    let told = |at: usize| lines.get(at + 1).is_some_and(|line| line.trim_start().starts_with("why: "));
    assert!(issues.clone().count() > 20);
    // Over axes of one rank nothing is sent.
    for (at, line) in issues {
        assert_eq!(told(at), !line.contains("(x1)"), "{line}");
    }
}

#[test]
fn a_cluster_says_how_much_is_hidden() {
    let line = "explain --model gpt2-124m --grid x=2,data=4 --dtype bf16 --global-batch 32";
    let hidden = |more: &str| {
        let document = json(&format!("{line} {more}"));
        let moves = document["lesson"]["moves"].as_array().unwrap().clone();
        moves.iter().map(|told| told["hidden"].clone()).collect::<Vec<_>>()
    };
    assert!(hidden("").iter().all(|hidden| hidden.get("seconds").is_none()));
    let simulated = hidden("--cluster dgx-a100");
    let times = simulated.iter().filter_map(|hidden| Some([hidden["seconds"].as_f64()?, hidden["hidden_s"].as_f64()?]));
    let times: Vec<_> = times.collect();
    assert!(times.len() > simulated.len() / 2, "{simulated:?}");
    assert!(times.iter().all(|[all, hidden]| *all > 0.0 && *hidden >= 0.0 && *hidden <= all * (1.0 + 1e-9)));
    let whole = |hidden: &[Value]| hidden.iter().filter_map(|each| each["hidden_s"].as_f64()).sum::<f64>();
    assert!(whole(&simulated) > whole(&hidden("--cluster dgx-a100 --overlap none")));
}

#[test]
fn people_read_a_summary_and_the_ledger_of_a_rank() {
    let summary = text("explain --model gpt-tiny --grid x=2,z=2");
    for part in [
        "gpt-tiny: 2 layers",
        "grid    x=2,z=2 (4 ranks",
        "with rank 0",
        "the product contracts over the weight's inputs, which x cuts",
        "lives then",
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

/// A stage sends a microbatch of 16 rows of 48 elements on, and gets its gradient back.
#[test]
fn stages_send_activations_and_receive_gradients() {
    let document = json("explain --model gpt-tiny --set layers=4 --grid pipe=2 --global-batch 6");
    let boundary = 6 * 16 * 48 * 4;
    for rank in ranks(&document) {
        let pipe = &rank["axes"]["pipe"];
        assert_eq!(pipe["send"], value!({ "calls": 6, "payload_bytes": boundary, "wire_bytes": boundary }));
        assert_eq!(pipe["receive"], value!({ "calls": 6, "payload_bytes": boundary, "wire_bytes": 0 }));
    }
    assert_eq!(document["stages"], value!([0, 1]));
    let serial = json("explain --model gpt-tiny --set layers=4 --grid x=1 --global-batch 6");
    let parts: u64 = ranks(&document).iter().map(flops).sum();
    assert_eq!(parts, flops(&ranks(&serial)[0]));
    // One block on the first stage, three on the second.
    let uneven = json("explain --model gpt-tiny --set layers=4 --grid pipe=2 --global-batch 6 --stage-blocks 1,3");
    let attention = |rank: usize| ranks(&uneven)[rank]["flops"]["attention_forward"].as_u64().unwrap();
    assert_eq!(attention(1), 3 * attention(0));
}

#[test]
fn contexts_share_the_tokens() {
    let document = json("explain --model gpt-tiny --grid x=2,context=2 --global-batch 4");
    let serial = json("explain --model gpt-tiny --grid x=1 --global-batch 4");
    let forward = |rank: &Value| rank["flops"]["gemm_forward"].as_u64().unwrap();
    let sum: u64 = ranks(&document).iter().map(forward).sum();
    // The vocabulary of 67 is padded to 68 for x = 2.
    assert_eq!(sum, forward(&ranks(&serial)[0]) + 2 * 64 * 48);
    assert!(!object(&ranks(&document)[0]["axes"]["context"]).is_empty());
}

#[test]
fn documents_name_every_choice_of_the_layout() {
    let fields =
        |line: &str| json(&format!("explain --model gpt-tiny --set layers=4 --rank 0 {line}"))["layout"].clone();
    let usual = fields("--grid x=2");
    for (field, expected) in [
        ("linear", value!("pmm")),
        ("schedule", value!("1f1b")),
        ("chunks", value!(1)),
        ("stage_blocks", value!([4])),
        ("recompute", value!("none")),
        ("cac", value!(false)),
        ("zero", value!(0)),
        ("keep_weights", value!("use")),
        ("overlap", value!("all")),
        ("overlap_chunks", value!(1)),
        ("dtype", value!("f32")),
    ] {
        assert_eq!(usual[field], expected, "{field}");
    }
    assert!(usual.get("summa_panels").is_none() && usual.get("microbatch_group").is_none());
    let pipeline = fields(
        "--grid data=2,pipe=2 --schedule interleaved --chunks 2 --microbatch-group 3 --stage-blocks 1,1,1,1 --zero 2 \
         --recompute full:2 --cac --keep-weights step --overlap-chunks 2 --global-batch 24 --microbatch 2",
    );
    for (field, expected) in [
        ("grid", value!("x=1,y=1,z=1,data=2,pipe=2")),
        ("schedule", value!("interleaved")),
        ("chunks", value!(2)),
        ("microbatch_group", value!(3)),
        ("stage_blocks", value!([1, 1, 1, 1])),
        ("zero", value!(2)),
        ("recompute", value!("full:2")),
        ("cac", value!(true)),
        ("keep_weights", value!("step")),
        ("overlap_chunks", value!(2)),
    ] {
        assert_eq!(pipeline[field], expected, "{field}");
    }
    let summa = fields("--grid x=2,y=2 --linear summa --summa-panels 4");
    assert_eq!((&summa["linear"], &summa["summa_panels"]), (&value!("summa"), &value!(4)));
}

/// GPipe keeps an input of every microbatch: it pays to keep fewer.
#[test]
fn the_interval_of_the_least_memory_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let deep = "explain --model gpt-tiny --set layers=16 --schedule gpipe --global-batch 128 --microbatch 1";
    let document = |line: &str| {
        let output = run(folder.path(), &format!("{deep} {line} --json"));
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let allocated = |document: &Value| {
        let ranks = ranks(document).iter().map(|rank| rank["memory"]["allocated"].as_u64().unwrap());
        ranks.max().unwrap()
    };
    let chosen = document("--grid pipe=2 --recompute full:auto");
    assert_ne!(chosen["layout"]["recompute"], "full");
    let of = |every| allocated(&document(&format!("--grid pipe=2 --recompute full:{every}")));
    assert_eq!(allocated(&chosen), (1..=8).map(of).min().unwrap());
    std::fs::write(folder.path().join("layout.toml"), "grid = \"pipe=2\"\nrecompute = \"full:auto\"\n").unwrap();
    assert_eq!(document("--layout layout.toml")["layout"]["recompute"], chosen["layout"]["recompute"]);
}

#[test]
fn a_layout_file_is_its_flags_and_flags_win_over_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("layout.toml");
    let lines = "grid = 'x=2,pipe=2'\norder = 'y,x,z,data'\nschedule = 'zb-h1'\nstage_blocks = [1, 3]\nzero = 1\n\
                 recompute = 'full:2'\ncac = true\nglobal_batch = 8\nmicrobatch = 2\nseq_len = 8\ndtype = 'f64'\n\
                 overlap = 'oar'\nkeep_weights = 'step'\n";
    std::fs::write(&file, lines).unwrap();
    let explain = |more: &str| json(&format!("explain --model gpt-tiny --set layers=4 {more}"));
    let from_file = |more: &str| explain(&format!("--layout {} {more}", file.display()));
    let flags = "--grid x=2,pipe=2 --order y,x,z,data --schedule zb-h1 --stage-blocks 1,3 --zero 1 --recompute full:2 \
                 --cac --global-batch 8 --microbatch 2 --seq-len 8 --dtype f64 --overlap oar --keep-weights step";
    assert_eq!(from_file(""), explain(flags));
    let other = &from_file("--schedule gpipe --cac=false --dtype f32 --grid pipe=4 --stage-blocks 1,1,1,1")["layout"];
    assert_eq!((&other["grid"], &other["order"]), (&value!("x=1,y=1,z=1,data=1,pipe=4"), &value!("y,x,z,data")));
    assert_eq!((&other["schedule"], &other["cac"]), (&value!("gpipe"), &value!(false)));
    assert_eq!((&other["dtype"], &other["zero"]), (&value!("f32"), &value!(1)));
}

/// The published optimum beside the bytes of our own programs: those of `explain` with this choice.
#[test]
fn recomputation_is_weighed_for_every_divisor() {
    let line = "explain --model gpt-tiny --set layers=24 --grid pipe=2 --global-batch 4 --rank 1";
    let document = json(&format!("{line} --recompute full:3"));
    let table = &document["recomputation"];
    assert_eq!([&table["layers"], &table["blocks"], &table["rank"]], [&value!(24), &value!(12), &value!(1)]);
    // sqrt(24) = 4.9.
    assert_eq!(table["optimum"], 4);
    let choices = table["choices"].as_array().unwrap();
    let every: Vec<_> = choices.iter().map(|choice| choice["every"].as_u64().unwrap()).collect();
    assert_eq!(every, [1, 2, 3, 4, 6, 12]);
    let equations: Vec<_> = choices.iter().map(|choice| choice["equation"].as_f64().unwrap()).collect();
    assert_eq!(equations, [26.0, 15.0, 12.0, 11.0, 11.0, 15.0]);
    for choice in choices {
        let own = json(&format!("{line} --recompute full:{}", choice["every"]));
        let memory = &ranks(&own)[0]["memory"];
        assert_eq!((&choice["activations_bytes"], &choice["peak_bytes"]), (&memory["activations"], &memory["peak"]));
        assert_eq!(choice["chosen"], choice["every"] == 3);
    }
    let least = choices.iter().min_by_key(|choice| choice["activations_bytes"].as_u64()).unwrap();
    assert_eq!(table["least"], least["recompute"]);
    // Without recomputation the layout itself is among them; where there is no pipeline, nothing is weighed.
    let kept = json(line)["recomputation"]["choices"].clone();
    assert_eq!((&kept[0]["recompute"], &kept[0]["chosen"]), (&value!("none"), &value!(true)));
    assert_eq!(kept.as_array().unwrap().len(), choices.len() + 1);
    assert!(json("explain --model gpt-tiny --grid x=2").get("recomputation").is_none());
    assert!(text(line).contains("optimum of the equation"));
}

#[test]
fn people_read_stages_and_what_is_unusual_only() {
    let plain = text("explain --model gpt-tiny --grid x=2");
    assert!(["stages ", "also ", " stage "].iter().all(|word| !plain.contains(word)), "{plain}");
    let line = "explain --model gpt-tiny --set layers=4 --grid x=2,pipe=2 --zero 1 --recompute full --cac --rank 3";
    let unusual = text(line);
    for part in
        ["2, 1f1b, pieces of 2,2 blocks", "recompute full, outputs of collectives kept, ZeRO 1", "in stage 1 of 2"]
    {
        assert!(unusual.contains(part), "{part}:\n{unusual}");
    }
}

#[test]
fn a_simulation_accounts_for_the_time_of_every_stage() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.json");
    let line = "explain --model gpt-tiny --set layers=4 --grid x=2,pipe=2 --global-batch 8 --rank 0";
    let document = json(&format!("{line} --timeline --trace {}", file.display()));
    let simulation = &document["simulation"];
    let step = simulation["step_s"].as_f64().unwrap();
    assert_eq!(simulation["stages"].as_array().unwrap().len(), 2);
    for stage in simulation["stages"].as_array().unwrap() {
        let collectives = object(&stage["waiting_on_collectives_s"]).values().map(|time| time.as_f64().unwrap());
        let named = ["busy_s", "waiting_on_host_s", "waiting_on_stages_s"].map(|field| stage[field].as_f64().unwrap());
        let sum = collectives.sum::<f64>() + named.iter().sum::<f64>();
        assert!(named[0] > 0.0 && (sum / step - 1.0).abs() < 1e-6, "{sum} of {step}: {stage}");
    }
    let trace: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert!(trace["traceEvents"].as_array().unwrap().iter().any(|event| event["ph"] == "X"));
    let drawn = text(&format!("{line} --timeline"));
    assert!(drawn.contains("stage 1 |") && drawn.contains("waits for stages"), "{drawn}");
    // Ten times as slow a device, without start-up times and messages to speak of: nearly ten times as long.
    let at = |gflops: &str| {
        let more = format!("--timeline --device-gflops {gflops} --memory-gb-s 1e9 --latency-us 0");
        json(&format!("{line} {more}"))["simulation"]["stages"][0]["busy_s"].as_f64().unwrap()
    };
    assert!((at("1") / at("10") - 10.0).abs() < 0.01, "{} and {}", at("1"), at("10"));
}

/// What a layout of duplicates is compared with has scattered activations, of which there are none.
#[test]
fn layouts_that_send_duplicates_have_a_price() {
    let line = "explain --model moe-tiny --grid x=2,expert=2 --global-batch 8 --activations replicated --dispatch duplicated \
                --price --framework quadrille --cluster dgx-h100";
    assert!(text(line).contains("what binds"));
}

/// All operations of such a step would take gigabytes; its passes do not.
#[test]
fn a_step_that_is_too_long_to_be_followed_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let line = "explain --model gpt-tiny --grid pipe=2 --global-batch 131072 --microbatch 1";
    for more in ["--html page.html", "--trace trace.json", "--cluster dgx-a100", "--timeline --json"] {
        let output = run(folder.path(), &format!("{line} {more}"));
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{more}: {error}");
        assert!(error.contains("operations on all stages") && error.contains("--microbatch"), "{more}: {error}");
    }
    let output = run(folder.path(), &format!("{line} --timeline"));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("middle, where all repeats"), "{text}");
    // Ledgers show nothing that is simulated.
    assert!(run(folder.path(), &format!("{line} --ledger --cluster dgx-a100")).status.success());
}
