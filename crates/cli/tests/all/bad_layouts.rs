//! Layouts that cannot be used, flag by flag and in files: exit code 2, and a message that names value, rule and remedy.

use std::fs;

use crate::common::json;
use crate::refusals::{folder_with, refused, refused_in};

const COMMANDS: [&str; 3] = ["explain", "verify", "train --set vocab=256"];

/// Refused by every command that runs or explains a layout of gpt-tiny with four layers.
fn layout_refused(layout: &str, words: &[&str]) {
    for command in COMMANDS {
        refused(&format!("{command} --model gpt-tiny --set layers=4 {layout}"), words);
    }
}

#[test]
fn names_that_are_not_known() {
    for (flag, words) in [
        ("--linear dense", ["--linear", "'dense'", "pmm, summa"]),
        ("--schedule 2f2b", ["--schedule", "'2f2b'", "gpipe, 1f1b, interleaved, zb-h1, message-driven"]),
        ("--recompute some", ["--recompute", "'some'", "none, selective, full"]),
        ("--recompute full:0", ["--recompute", "'full:0'", "at least 1, e.g. 'full:2'"]),
        ("--recompute full:two", ["--recompute", "'full:two'", "at least 1, e.g. 'full:2'"]),
        ("--zero 3", ["--zero", "'3'", "0, 1, 2"]),
        ("--keep-weights long", ["--keep-weights", "'long'", "use, step"]),
        ("--cac=maybe", ["--cac", "'maybe'", "true, false"]),
        ("--grid w=2", ["unknown axis", "'w'", "x, y, z, context, expert, data, pipe"]),
    ] {
        layout_refused(flag, &words);
    }
    for flag in ["--summa-panels", "--chunks", "--microbatch-group", "--overlap-chunks"] {
        layout_refused(&format!("{flag} two"), &[flag, "'two'"]);
        layout_refused(&format!("{flag}=-1"), &[flag, "'-1'"]);
    }
    layout_refused("--stage-blocks 2,two", &["--stage-blocks", "'two'"]);
    refused("verify --all-grids --axes x,w", &["--axes", "'w'", "x, y, z, context, expert, data, pipe"]);
    refused("verify --axes x", &["--all-grids"]);
    refused("verify --all-grids --recompute full:auto", &["--recompute full:auto", "for one layout", "give full:K"]);
}

/// A program with an operation for every bucket has to fit into memory.
#[test]
fn buckets() {
    refused(
        "explain --model gpt2-124m --grid x=1 --offload host --bucket 1",
        &["bucket = 1", "124439808 parameters are cut into at most 100000 buckets", "--bucket 1245"],
    );
    layout_refused("--grid x=2 --bucket 7", &["bucket = 7", "only states outside the device", "leaving --bucket out"]);
    layout_refused("--grid x=2 --offload host --bucket 0", &["bucket = 0", "--bucket"]);
    refused("plan --model gpt-tiny --gpus 8 --recompute full:auto", &["--recompute = full:auto", "give full:K"]);
    refused("explain --grid x=2 --offload host --timeline --cluster frontier", &["host_bandwidth", "offload"]);
    layout_refused(
        "--grid x=2 --optimizer-overlap",
        &["optimizer-overlap = true", "only states outside the device", "leaving --optimizer-overlap out"],
    );
    layout_refused("--grid x=2 --offload disk", &["--offload", "'disk'", "none, host"]);
}

/// A layout's file says nothing of its model, and which is taken where none is named is told with what it refuses.
#[test]
fn a_model_that_nobody_named_is_told_with_what_it_refuses() {
    let folder = folder_with("l.toml", "grid = 'x=2'\nglobal_batch = 4\nseq_len = 8192\n");
    for (command, model) in [
        ("explain --price --cluster selene", "gpt-demo"),
        ("explain", "gpt-demo"),
        ("export --to megatron", "gpt-demo"),
        ("train", "gpt-demo"),
        ("verify", "gpt-tiny"),
    ] {
        let told = format!("error: no --model is given, so it is {model}: seq-len = 8192: ");
        refused_in(folder.path(), &format!("{command} --layout l.toml"), &[&told]);
        let line = format!("{command} --layout l.toml --model {model}");
        refused_in(folder.path(), &line, &["error: seq-len = 8192: "]);
    }
}

#[test]
fn pipelines() {
    let pipeline =
        |more: &str, words: &[&str]| layout_refused(&format!("--grid pipe=2 --global-batch 6 {more}"), words);
    pipeline("--chunks 2", &["chunks = 2", "only the interleaved schedule", "--schedule interleaved"]);
    pipeline("--chunks 0", &["chunks = 0", "1 to 6", "--chunks 1"]);
    pipeline(
        "--stage-blocks 2,3",
        &["stage-blocks = 2,3", "2 pieces", "the model's 4 layers", "leaving --stage-blocks out"],
    );
    pipeline("--stage-blocks 4", &["stage-blocks = 4", "2 pieces", "leaving --stage-blocks out"]);
    pipeline("--stage-blocks 18446744073709551615,5", &["stage-blocks", "the model's 4 layers"]);
    pipeline(
        "--schedule interleaved --microbatch-group 5",
        &["microbatch-group = 5", "at least pipe=2", "--microbatch-group 4 or 6"],
    );
    pipeline(
        "--schedule interleaved --microbatch-group 0",
        &["microbatch-group = 0", "at least pipe=2", "--microbatch-group 2"],
    );
    pipeline("--schedule interleaved --microbatch 6", &["microbatch = 6", "at least pipe=2", "--microbatch 3"]);
    pipeline(
        "--microbatch-group 2",
        &["microbatch-group = 2", "only the interleaved", "leaving --microbatch-group out"],
    );
    layout_refused("--grid pipe=16", &["pipe = 16", "has a block", "at most 6 pieces"]);
    pipeline("--schedule interleaved --chunks 18446744073709551615", &["chunks = 18446744073709551615", "1 to 6"]);
    layout_refused("--grid x=3,pipe=2 --activations replicated", &["microbatch = 1", "16 token rows over x=3"]);
}

#[test]
fn contexts_and_linear_layers() {
    layout_refused("--grid context=3", &["seq-len = 16", "context=3", "6 equal pieces", "--seq-len 12"]);
    let summa = |more: &str, words: &[&str]| layout_refused(&format!("--linear summa {more}"), words);
    summa("--grid x=2,y=2 --activations replicated", &["activations = replicated", "SUMMA", "--activations scattered"]);
    summa("--grid x=2,y=2 --summa-panels 3", &["summa-panels = 3", "x=2", "--summa-panels 2 or 4"]);
    summa("--grid x=2,y=2 --summa-panels 0", &["summa-panels = 0", "x=2", "--summa-panels 2"]);
    summa("--grid x=2,y=2 --summa-panels 10", &["summa-panels=10", "hidden = 48", "--summa-panels 8 or 12"]);
    summa("--grid x=5", &["x=5", "heads = 12", "x=4 or 6"]);
    refused("paper axonn plan --linear summa", &["unexpected argument '--linear'"]);
    layout_refused("--grid x=2 --summa-panels 2", &["summa-panels = 2", "only SUMMA", "leaving --summa-panels out"]);
}

/// Seven positions: a context of three needs fewer, and 12 would be more than there are.
#[test]
fn no_more_tokens_are_suggested_than_the_model_takes() {
    let line = "verify --model gpt-tiny --set seq_len=7 --grid context=3";
    refused(line, &["seq-len = 7", "context=3", "6 equal pieces", "; try --seq-len 6\n"]);
    assert!(json("explain --model gpt-tiny --set seq_len=7 --grid context=3 --seq-len 6").is_object());
}

/// With the grid changes the usual batch, two sequences a rank: 6 ranks of x cut twelve sequences, not ten.
#[test]
fn what_follows_from_the_ranks_follows_from_those_of_a_remedy() {
    refused("explain --model gpt-tiny --grid x=5", &["x=5 does not divide heads = 12", "try x=4 or 6"]);
    refused("explain --model gpt-tiny --grid x=5 --global-batch 10", &["x=5 does not divide heads = 12", "try x=4\n"]);
    for grid in ["x=4", "x=6", "x=4 --global-batch 10"] {
        assert!(json(&format!("explain --model gpt-tiny --grid {grid}")).is_object());
    }
}

#[test]
fn a_list_without_pieces_is_told_by_its_rule() {
    let folder = folder_with("l.toml", "grid = 'pipe=2'\nstage_blocks = []");
    let words = &["stage-blocks = ", "2 pieces", "leaving --stage-blocks out"];
    refused_in(folder.path(), "explain --layout l.toml", words);
}

/// Nodes that follow from the cluster hide no other fault.
#[test]
fn nodes_that_nobody_typed_are_not_blamed() {
    let line = "explain --model gpt-tiny --cluster dgx-a100 --grid x=5,data=2";
    refused(line, &["x=5 does not divide heads = 12", "try x=4 or 6"]);
}

#[test]
fn memory_and_overlap() {
    layout_refused("--grid x=2 --cac", &["cac = on", "nothing is recomputed", "--recompute selective"]);
    layout_refused("--grid x=1 --overlap-chunks 0", &["overlap-chunks = 0", "1 to 2", "--overlap-chunks 1"]);
    layout_refused("--grid x=1 --overlap-chunks 3 --global-batch 4", &["microbatch = 4", "3 overlap chunks", "3 or 6"]);
}

#[test]
fn files_with_faults_name_file_and_line() {
    for (text, words) in [
        ("hello", vec!["layout.toml", "line 1"]),
        ("grid = 'x=2'\npipes = 2", vec!["layout.toml", "pipes = 2", "line 2", "expected one of `grid`"]),
        ("chunks = 'two'", vec!["layout.toml", "line 1", "invalid type: string"]),
        ("chunks = -1", vec!["layout.toml", "line 1"]),
        ("# mine\ngrid = 'x=2'\n\nschedule = '2f2b'", vec!["layout.toml, line 4", "'2f2b'", "gpipe, 1f1b"]),
        ("stage_blocks = [\n 2,\n 2\n]\ngrid = 'w=2'", vec!["layout.toml, line 5", "axis 'w'", "pipe"]),
        ("zero = 3", vec!["layout.toml, line 1", "'3'", "0, 1, 2"]),
        ("order = 'x,y'", vec!["layout.toml, line 1", "x,y", "x,y,z,data"]),
        ("grid = 'x=2'\nchunks = 2", vec!["chunks = 2", "interleaved"]),
    ] {
        for command in COMMANDS {
            let folder = folder_with("layout.toml", text);
            refused_in(folder.path(), &format!("{command} --model gpt-tiny --layout layout.toml"), &words);
        }
    }
    refused("explain --layout missing.toml", &["missing.toml", "No such file"]);
    refused("explain --layout .", &["cannot read .", "directory"]);
    refused_in(folder_with("l.toml", [0xff; 99]).path(), "explain --layout l.toml", &["l.toml", "UTF-8"]);
    let folder = folder_with("l.toml", "grid = 'x=2,pipe=2'");
    refused_in(folder.path(), "explain --layout l.toml --ranks 8", &["--ranks 8", "x=2", "pipe=2", "4 ranks"]);
    let line = "train --model gpt-tiny --set vocab=256 --layout l.toml --log l.toml";
    refused_in(folder.path(), line, &["--log", "l.toml", "--layout", "another file"]);
    assert_eq!(fs::read_to_string(folder.path().join("l.toml")).unwrap(), "grid = 'x=2,pipe=2'");
}

#[test]
fn machines_to_simulate_on() {
    refused(
        "explain --grid x=2 --timeline --cluster perlmutter --latency-us 5",
        &["perlmutter", "--device-gflops", "give it"],
    );
    for value in ["0", "-1", "nan", "inf"] {
        refused(&format!("explain --grid x=2 --timeline --device-gflops {value}"), &["--device-gflops", "positive"]);
        refused(&format!("explain --grid x=2 --timeline --memory-gb-s {value}"), &["--memory-gb-s", "positive"]);
    }
    for value in ["-1", "nan", "inf"] {
        refused(&format!("explain --grid x=2 --timeline --latency-us {value}"), &["--latency-us", "at least 0"]);
    }
    let line = "explain --grid x=2 --timeline --cluster perlmutter --framework megaton";
    refused(line, &["megaton", "unknown framework", "megatron"]);
    refused("explain --grid x=2 --framework fsdp --dtype f64", &["--dtype", "--framework"]);
    refused("explain --grid x=2 --trace missing/trace.json", &["missing/trace.json", "No such file"]);
    let folder = folder_with("l.toml", "grid = 'x=2'");
    refused_in(
        folder.path(),
        "explain --layout l.toml --trace l.toml",
        &["--trace", "--layout l.toml", "another file"],
    );
}

/// Many stages and microbatches are only numbers to `explain`.
#[test]
fn long_pipelines_are_explained() {
    let document = json("explain --model gpt-tiny --set layers=64 --grid pipe=64 --global-batch 512 --rank 63");
    assert_eq!(document["ranks"][0]["axes"]["pipe"]["send"]["calls"], 512);
}
