//! `quadrille paper axonn plan`: counts of grids, the order of plans, and what prices scale with.

use serde_json::Value;

use crate::common::{json, run};

fn plans(document: &Value) -> &Vec<Value> {
    document["plans"].as_array().unwrap()
}

fn seconds(plan: &Value) -> f64 {
    plan["time_s"].as_f64().unwrap()
}

/// All that does not depend on the clock.
fn without_clock(mut document: Value) -> Value {
    document.as_object_mut().unwrap().remove("seconds").unwrap();
    document
}

#[test]
fn all_grids_are_considered_and_the_best_come_first() {
    // 2^n over four axes: n+3 choose 3 grids.
    for (ranks, grids) in [(1, 1), (8, 20), (32, 56)] {
        let document = json(&format!("paper axonn plan --model gpt-demo --gpus {ranks} --top 100"));
        assert_eq!(document["candidates"], grids);
        let feasible = document["feasible"].as_u64().unwrap() as usize;
        assert!((1..=grids).contains(&feasible) && document["seconds"].as_f64().unwrap() >= 0.0);
        assert_eq!(plans(&document).len(), feasible);
        // Prices that differ by rounding alone are ties.
        assert!(plans(&document).is_sorted_by(|a, b| seconds(a) <= seconds(b) * (1.0 + 1e-12)));
        for plan in plans(&document) {
            let grid = plan["layout"]["grid"].as_str().unwrap();
            let sizes = grid.split(',').map(|size| size.split_once('=').unwrap().1.parse::<usize>().unwrap());
            assert_eq!(sizes.product::<usize>(), ranks, "{grid}");
            let axes = plan["axes"].as_object().unwrap().values();
            let sum: f64 = axes.map(|axis| axis["time_s"].as_f64().unwrap()).sum();
            assert!((sum - seconds(plan)).abs() <= 1e-12 * sum, "{sum} and {plan}");
        }
    }
}

#[test]
fn top_cuts_the_list_and_repeats_are_identical() {
    let line = "paper axonn plan --model gpt-20b --gpus 32 --cluster frontier";
    let all = json(&format!("{line} --top 100"));
    let three = json(&format!("{line} --top 3"));
    assert_eq!(plans(&three)[..], plans(&all)[..3]);
    assert_eq!(without_clock(three), without_clock(json(&format!("{line} --top 3"))));
    assert_eq!(plans(&json(line)).len(), 10);
}

#[test]
fn rules_leave_grids_out() {
    // Three sequences: no data, no z, no scattered y of two.
    let document = json("paper axonn plan --model gpt-tiny --gpus 2 --global-batch 3");
    assert_eq!((&document["candidates"], &document["feasible"]), (&4.into(), &1.into()));
    assert_eq!(plans(&document)[0]["layout"]["grid"], "x=2,y=1,z=1,data=1");
    let replicated = json("paper axonn plan --model gpt-tiny --gpus 2 --global-batch 3 --activations replicated");
    assert_eq!(replicated["feasible"], 2);
}

/// 20 billion parameters do not fit into the 40 GB of a device by data parallelism alone: ranked, but marked.
#[test]
fn plans_that_exceed_the_memory_of_a_device_are_marked() {
    let of = |cluster: &str| json(&format!("paper axonn plan --model gpt-20b --gpus 32 --cluster {cluster} --top 100"));
    let bounded = of("perlmutter");
    let unbounded = of("local");
    assert_eq!(bounded["feasible"], unbounded["feasible"]);
    let fits = |document: &Value, grid: &str| {
        plans(document).iter().find(|plan| plan["layout"]["grid"] == grid).map(|plan| plan["fits"].clone())
    };
    assert_eq!(fits(&bounded, "x=1,y=1,z=1,data=32"), Some(false.into()));
    assert_eq!(fits(&bounded, "x=1,y=1,z=32,data=1"), Some(true.into()));
    assert_eq!(fits(&unbounded, "x=1,y=1,z=1,data=32"), Some(true.into()));
}

#[test]
fn wider_elements_cost_in_proportion() {
    let line = "paper axonn plan --model gpt-10b --gpus 16 --cluster alps --top 100";
    let times = |dtype: &str| {
        let document = json(&format!("{line} --dtype {dtype}"));
        plans(&document).iter().map(seconds).collect::<Vec<_>>()
    };
    let narrow = times("bf16");
    let wide = times("f64");
    assert_eq!(narrow.len(), wide.len());
    assert!(narrow.iter().zip(&wide).all(|(narrow, wide)| (4.0 * narrow - wide).abs() <= 1e-12 * wide));
}

/// No grid has a lower price than the one that is taken where it is left open.
#[test]
fn auto_is_the_cheapest_grid() {
    let line = "explain --model gpt-tiny --cluster perlmutter --global-batch 16 --activations replicated";
    let price = |grid: &str| {
        let document = json(&format!("{line} {grid} --price --framework quadrille"));
        (document["plan"]["time_s"].as_f64().unwrap(), document["plan"]["layout"]["grid"].clone())
    };
    let (best, grid) = price("--ranks 8");
    assert_eq!((best, grid), price("--ranks 8 --grid auto"));
    for other in ["y=8", "z=8", "data=8", "x=2,y=2,z=2", "x=4,data=2", "z=2,data=4"] {
        let (seconds, _) = price(&format!("--grid {other}"));
        assert!(best <= seconds, "{other}: {seconds}, and {best} left open");
    }
}

/// A network ten times as slow makes a plan that crosses it ten times as slow.
#[test]
fn a_cluster_file_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let time = |bandwidth: &str| {
        let file = folder.path().join("cluster.toml");
        let text = format!(
            "name='mine'\nsource='test'\nintra_node_bandwidth=1e12\ndevices_per_node=1\n\
             inter_node_bandwidth={bandwidth}\n"
        );
        std::fs::write(&file, text).unwrap();
        let document = json(&format!("paper axonn plan --model gpt-tiny --gpus 4 --cluster {}", file.display()));
        assert_eq!(document["cluster"], "mine");
        seconds(&plans(&document)[0])
    };
    let fast = time("1e10");
    let slow = time("1e9");
    assert!((slow / fast - 10.0).abs() < 1e-9, "{slow} and {fast}");
}

#[test]
fn people_read_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), "paper axonn plan --model gpt-20b --gpus 32 --cluster perlmutter --top 4");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && output.stderr.is_empty());
    for part in ["gpt-20b on perlmutter", "of 56 grids", "time", "x=1,y=1,z=32,data=1"] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    assert_eq!(text.lines().filter(|line| line.starts_with("x=")).count(), 4);
}
