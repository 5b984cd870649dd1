//! What `quadrille plan` refuses: constraints, models, clusters, and what does not fit.

use std::fs;

use crate::common::json;
use crate::plan_native::{CLUSTER, line};
use crate::refusals::{folder_with, refused, refused_in};

#[test]
fn bad_constraints_name_value_rule_and_remedy() {
    for (flags, words) in [
        ("--fix x=3", &["x = 3", "divides the 8 devices", "x=2 or x=4"][..]),
        ("--fix x=8", &["no legal layout", "1 grid is refused", "x=8 does not divide heads = 12; try x=4"]),
        ("--fix w=2", &["'w'", "known: x, y, z"]),
        ("--fix x", &["'x'", "key=value"]),
        ("--fix x=2 --max x=1", &["--max x = 1", "x=2", "leave one of them out"]),
        ("--max schedule=1f1b", &["--max schedule = 1f1b", "--fix schedule=1f1b"]),
        ("--fix x=2,y=2,z=2,data=2", &["all axes multiply to the 8 devices", "fewer axes"]),
        ("--zero 1 --fix zero=2", &["--fix zero = 2", "zero=1"]),
        ("--memory-reserve 200%", &["--memory-reserve", "200%", "5%"]),
        ("--memory-reserve 9GB", &["9000000000", "8000000000", "reserve less"]),
        ("--framework torch", &["unknown framework 'torch'", "megatron-stored"]),
        ("--search-limit 0", &["--search-limit", "0"]),
        ("--tokens -1", &["--tokens = -1", "300e9"]),
        ("--grid x=2", &["--grid", "--fix x=2"]),
        ("--fix overlap=oar,ors", &["'ors'", "overlap=oar+ors"]),
        ("--fix microbatch=3", &["microbatch = 3", "divides the sequences of a data rank"]),
        ("--min pipe=16", &["pipe = at least 16", "divides the 8 devices"]),
        ("--order x,y,z,data", &["--order", "every order"]),
        ("--stage-blocks 6,6", &["--stage-blocks", "leave it out"]),
        ("--strategy 1d", &["unexpected argument '--strategy'"]),
        ("--dtype f32", &["--dtype", "--framework"]),
        ("--ranks 8", &["--gpus 8 and --ranks 8", "leave one"]),
        ("--csv layout.toml --out layout.toml", &["--out", "--csv", "another file"]),
    ] {
        refused(&line(flags), words);
    }
    refused(&line("--gpus 2,4").replace("--gpus 8 ", ""), &["several numbers of devices", "--pareto"]);
    refused("plan --cluster local", &["local", "how fast a device computes", "e.g. selene"]);
    refused("paper axonn plan --fix x=2", &["unexpected argument '--fix'"]);
    refused("paper axonn plan --ranks 8", &["unexpected argument '--ranks'"]);
    // Twice that many pieces cannot be counted.
    refused(&line("--fix pipe=2,schedule=interleaved,chunks=9223372036854775808"), &["no legal layout", "piece"]);
}

#[test]
fn bad_models_and_clusters_name_value_rule_and_remedy() {
    refused("plan --model gpt5", &["unknown model 'gpt5'", "gpt3-175b"]);
    refused("plan --cluster sumit", &["unknown cluster 'sumit'", "summit"]);
    refused(&line("--set heads=7"), &["heads", "7", "768"]);
    refused(&line("--global-batch 0").replace("--global-batch 32 ", ""), &["global-batch = 0", "1 to 16777216"]);
    refused(&line("--seq-len 2048"), &["seq-len = 2048", "1024 positions", "--set seq_len"]);
    refused(&line("--per-node 0"), &["per-node = 0", "at least 1"]);
    refused("plan --cluster selene --nvs 0", &["--nvs", "0"]);
    // Groups of y in nodes of 8 would straddle them.
    refused(
        "explain --price --cluster selene --model gpt2-124m --set hidden=768 --grid y=3,data=16 --global-batch 48",
        &["per-node = 8", "straddle nodes", "use --per-node 6 or another --order"],
    );
    // Nodes have as many devices as they have.
    let of_selene = |command: &str, more: &str| format!("{command} --model gpt2-124m --cluster selene {more}");
    let [priced, explained] = ["explain --price", "explain"];
    for (command, more, words) in [
        (priced, "--grid data=64 --global-batch 64 --per-node 64", ["per-node = 64", "use --per-node 8"]),
        (explained, "--grid data=64 --global-batch 64 --per-node 16", ["per-node = 16", "use --per-node 8"]),
        (priced, "--grid x=3,data=4 --global-batch 12 --per-node 12", ["per-node = 12", "use --per-node 6"]),
        (
            "export --to megatron",
            "--grid data=64 --global-batch 64 --per-node 64",
            ["per-node = 64", "use --per-node 8"],
        ),
        ("plan", "--gpus 16 --global-batch 16 --per-node 64", ["per-node = 64", "use --per-node 8"]),
    ] {
        refused(&of_selene(command, more), &[words[0], "a node of selene has 8 devices", words[1]]);
    }
    let twelve = of_selene(priced, "--grid x=3,data=4 --global-batch 12");
    let eight = format!("{twelve} --per-node 8");
    refused(&eight, &["per-node=8 does not divide the number of ranks = 12; try --per-node 6\n"]);
    assert_eq!(json(&twelve)["plan"]["layout"]["per_node"], 6);
    let cluster = fs::read_to_string(CLUSTER).unwrap().replace("links = 4", "devices = 16");
    let folder = folder_with("small.toml", cluster);
    refused_in(
        folder.path(),
        "plan --model gpt2-124m --gpus 64 --cluster small.toml",
        &["devices = 64", "networks of small join 16 devices", "add a tier"],
    );
    let cluster = fs::read_to_string(CLUSTER).unwrap();
    for (before, after, words) in [
        ("memory_bandwidth = 1e12", "memory_bandwidth = -1", &["memory_bandwidth = -1", "1..=1e18", "25e9"][..]),
        ("[[tiers]]", "[[tears]]", &["tears"]),
        ("latency = ", "latency = -", &["tiers[0].latency = -", "in 0..=1 seconds"]),
    ] {
        assert!(cluster.contains(before), "{before} in {cluster}");
        let folder = folder_with("bad.toml", cluster.replacen(before, after, 1));
        refused_in(folder.path(), "plan --model gpt2-124m --gpus 8 --cluster bad.toml", words);
    }
}

#[test]
fn what_does_not_fit_tells_the_smallest() {
    refused(
        &line("--set layers=500 --gpus 2").replace("--gpus 8 ", ""),
        &[
            "no layout of 2 devices fits into 7.25 GiB",
            "parameters, gradients and optimizer states alone need at least",
            "bytes for each of",
            "16 devices have a layout that fits",
        ],
    );
    let folder = tempfile::tempdir().unwrap();
    // Files are looked at before layouts.
    for (flags, words) in [
        (
            "--fix x=8 --out nowhere/layout.toml",
            ["cannot write --out nowhere/layout.toml", "make the folder nowhere first"],
        ),
        ("--fix x=8 --csv nowhere/rows.csv", ["cannot write --csv nowhere/rows.csv", "make the folder nowhere first"]),
        ("--fix x=8 --html .", ["cannot write --html .", "name a file in it"]),
    ] {
        refused_in(folder.path(), &line(flags), &words);
    }
}
