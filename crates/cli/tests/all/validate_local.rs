//! `quadrille validate local`: predicted beside measured steps, as text, JSON, CSV and a page.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::common::{json, page_document, run};
use crate::refusals::{folder_with, refused, refused_in};

const CLUSTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/small_cluster.toml");

fn number(value: &Value, field: &str) -> f64 {
    value[field].as_f64().unwrap_or_else(|| panic!("{field} in {value}"))
}

/// Runs the command with `--json` and more flags; its document and its folder.
fn validated(more: &str) -> (Value, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let line = format!("validate local --model gpt-tiny --json {more}");
    let output = run(folder.path(), &line);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && message.is_empty(), "{line}: {message}");
    (serde_json::from_slice(&output.stdout).unwrap(), folder)
}

#[test]
fn every_grid_of_two_ranks_with_a_page_and_a_table() {
    let (document, folder) =
        validated("--set vocab=256 --ranks 2 --all-grids --steps 4 --html local.html --csv local.csv");
    let layouts = document["layouts"].as_array().unwrap();
    assert_eq!((layouts.len(), document["legal_layouts"].as_u64()), (4, Some(4)));
    assert_eq!(document["measured_steps"], 2);
    assert!(document["assumed"].as_str().unwrap().contains("assumed, not measured"));
    let mut before = 0.0;
    for (layout, place) in layouts.iter().zip(1..) {
        let [predicted, measured] = ["predicted", "measured"].map(|side| {
            let seconds = number(layout, &format!("{side}_seconds"));
            let parts = ["compute", "exposed", "other"].map(|part| number(layout, &format!("{side}_{part}_seconds")));
            assert!((parts.iter().sum::<f64>() - seconds).abs() < 1e-12, "{side} {parts:?} of {seconds}");
            assert!(parts[0] > 0.0 && parts[1] > 0.0 && parts[2] >= 0.0, "two ranks wait for each other: {parts:?}");
            seconds
        });
        let axes = ["x", "y", "z", "context", "data", "pipe", "bubble"];
        let exposed: f64 = axes.iter().map(|axis| number(layout, &format!("predicted_exposed_{axis}_seconds"))).sum();
        assert!((exposed - number(layout, "predicted_exposed_seconds")).abs() < 1e-12);
        assert!((number(layout, "error_percent") - 100.0 * (predicted / measured - 1.0)).abs() < 1e-9);
        let each: Vec<f64> =
            layout["measured_seconds_each"].as_array().unwrap().iter().map(|step| step.as_f64().unwrap()).collect();
        assert_eq!(each.len(), 2);
        assert!(((each[0] + each[1]) / 2.0 - measured).abs() < 1e-12);
        let deviation = (each[0] - each[1]).abs() / 2.0_f64.sqrt();
        assert!((number(layout, "measured_deviation_seconds") - deviation).abs() < 1e-12);
        assert_eq!((layout["measured_place"].as_u64(), &layout["ledger_equal"]), (Some(place), &true.into()));
        assert!(measured >= before, "the fastest first");
        before = measured;
    }
    let places: BTreeSet<_> = layouts.iter().map(|layout| layout["predicted_place"].as_u64().unwrap()).collect();
    assert_eq!(places, (1..=4).collect());
    check_summary(&document["summary"], layouts);
    check_page(&fs::read_to_string(folder.path().join("local.html")).unwrap(), &document);
    check_rows(&fs::read(folder.path().join("local.csv")).unwrap(), layouts);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "no temporary file is left");
}

/// The statistics, from the rows.
fn check_summary(summary: &Value, layouts: &[Value]) {
    let errors: Vec<f64> = layouts.iter().map(|layout| number(layout, "error_percent").abs()).collect();
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    assert!((number(summary, "mean_absolute_error_percent") - mean).abs() < 1e-9);
    let largest = errors.iter().copied().fold(0.0, f64::max);
    assert!((number(summary, "largest_absolute_error_percent") - largest).abs() < 1e-9);
    assert_eq!(summary["measured_best"], layouts[0]["grid"]);
    let first = layouts.iter().find(|layout| layout["predicted_place"] == 1).unwrap();
    let regret = number(first, "measured_seconds") / number(&layouts[0], "measured_seconds") - 1.0;
    assert!((number(summary, "regret_percent") - 100.0 * regret).abs() < 1e-9);
    assert_eq!((&summary["predicted_best"], &summary["layouts"]), (&first["grid"], &layouts.len().into()));
    let half = layouts[..2].iter().filter(|layout| layout["predicted_place"].as_u64().unwrap() <= 2).count();
    assert_eq!(summary["agreement"][0]["common"], 4);
    assert_eq!((&summary["agreement"][1]["best"], &summary["agreement"][1]["common"]), (&2.into(), &half.into()));
    for (field, limits) in [("kendall_tau_b", -1.0..=1.0), ("pearson_of_logs", -1.0..=1.0)] {
        assert!(limits.contains(&number(summary, field)), "{field} in {summary}");
    }
    assert!(number(summary, "median_deviation_percent") >= 0.0);
}

/// The page has the document that is printed, and what is told around the table.
fn check_page(page: &str, document: &Value) {
    let shown = page_document(page);
    for field in ["layouts", "summary", "model", "assumed"] {
        assert_eq!(shown[field], document[field], "{field}");
    }
    let told = shown["summary_told"].to_string() + &shown["told"].to_string();
    assert!(
        ["Kendall", "predicted to be fastest", "assumed, not measured"].iter().all(|part| told.contains(part)),
        "{told}"
    );
    assert_eq!(shown["left_out"], Value::Array(Vec::new()));
}

fn check_rows(table: &[u8], layouts: &[Value]) {
    let mut reader = csv::Reader::from_reader(table);
    let header: Vec<String> = reader.headers().unwrap().iter().map(str::to_owned).collect();
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), layouts.len());
    for (row, layout) in rows.iter().zip(layouts) {
        for (name, cell) in header.iter().zip(row) {
            match &layout[name] {
                Value::Null => assert_eq!(cell, "", "{name}"),
                Value::String(text) => assert_eq!(cell, text),
                number => {
                    let cell = cell.parse::<f64>().unwrap();
                    let number = number.as_f64().unwrap();
                    assert!((cell - number).abs() <= 1e-12 * number.abs(), "{name}: {cell} and {number}");
                }
            }
        }
    }
}

#[test]
fn people_read_a_line_per_layout_and_a_summary() {
    let folder = tempfile::tempdir().unwrap();
    let line = format!("validate local --model gpt-tiny --ranks 2 --steps 3 --cluster {CLUSTER}");
    let output = run(folder.path(), &line);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "no bar where nobody watches");
    let rows = text.lines().filter(|line| line.contains('%')).map(str::split_whitespace);
    let grids: BTreeSet<_> = rows.map(|mut cells| [cells.next(), cells.next()]).collect();
    for (notation, grid) in [("TP2", "x=2"), ("TP2", "y=2"), ("FSDP2", "z=2"), ("DP2", "data=2")] {
        assert!(grids.contains(&[Some(notation), Some(grid)]), "{grid} is not in {text}");
    }
    for words in [
        "tau-b",
        "pearson",
        "regret",
        "4 of the 4 predicted to be fastest are among the 4 fastest",
        "the native model on small\n",
        "last 1 of 3 steps",
    ] {
        assert!(text.contains(words), "'{words}' is not in {text}");
    }
    assert!(!text.contains('±') && !text.contains("assumed"), "{text}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_seed_chooses_layouts() {
    let grids = |seed: u32| {
        let axes = "--axes x,y,context,pipe --global-batch 8";
        let (document, _) = validated(&format!("--ranks 4 --steps 3 --layouts 3 --seed {seed} {axes}"));
        let layouts = document["layouts"].as_array().unwrap();
        assert!(document["legal_layouts"].as_u64().unwrap() > 3);
        layouts.iter().map(|layout| layout["grid"].as_str().unwrap().to_owned()).collect::<BTreeSet<_>>()
    };
    let first = grids(1);
    assert_eq!((first.len(), &first), (3, &grids(1)));
    assert!((2..12).any(|seed| grids(seed) != first));
}

/// Groups of x=2 straddle nodes of 3, which the native model does not price; the layout runs all the same. A batch of 15 has
/// no two equal halves.
#[test]
fn layouts_that_are_not_predicted_or_not_legal_are_told_with_the_reason() {
    let flags = format!("--ranks 6 --per-node 3 --axes x,data --steps 3 --cluster {CLUSTER}");
    let (document, folder) = validated(&format!("{flags} --csv local.csv --html local.html"));
    let layouts = document["layouts"].as_array().unwrap();
    let of = |grid: &str| layouts.iter().find(|layout| layout["grid"] == grid).unwrap();
    let straddling = of("x=2,y=1,z=1,data=3");
    for field in ["predicted_seconds", "predicted_place", "measured_place", "error_percent"] {
        assert_eq!((&straddling[field], of("x=3,y=1,z=1,data=2")[field].is_number()), (&Value::Null, true), "{field}");
    }
    assert!(number(straddling, "measured_seconds") > 0.0);
    assert!(straddling["not_predicted_because"].as_str().unwrap().contains("straddle nodes"), "{straddling}");
    assert_eq!((layouts.len(), &document["summary"]["layouts"]), (4, &3.into()));
    let shown = page_document(&fs::read_to_string(folder.path().join("local.html")).unwrap());
    assert_eq!(&shown["layouts"], &document["layouts"]);
    assert!(shown["left_out"].to_string().contains("not predicted x=2,data=3"), "{}", shown["left_out"]);
    check_rows(&fs::read(folder.path().join("local.csv")).unwrap(), layouts);
    let (document, _) = validated("--ranks 6 --axes x,data --steps 3 --global-batch 15");
    let skipped = document["skipped"].as_array().unwrap();
    assert!(skipped.iter().any(|skipped| skipped["grid"] == "x=3,y=1,z=1,data=2"), "{skipped:?}");
    assert!(
        skipped.iter().all(|skipped| skipped["reason"].as_str().unwrap().contains("global-batch = 15")),
        "{skipped:?}"
    );
}

#[test]
fn bad_input_is_refused() {
    let tiny = |flags: &str| format!("validate local --model gpt-tiny {flags}");
    for (flags, words) in [
        ("--ranks 1", &["--ranks 1", "1 of 1 grids", "at least 2", "use more ranks"][..]),
        ("--ranks 4 --axes data", &["1 of 1 grids", "at least 2", "--axes"]),
        ("--ranks 2 --global-batch 3", &["1 of 4 grids", "at least 2", "--global-batch"]),
        ("--ranks 0", &["--ranks 0", "at least one"]),
        (
            "--ranks 7 --global-batch 3",
            &["none of the 4 grids of 7 ranks", "gpt-tiny", "data=7", "try --global-batch 7"],
        ),
        ("--ranks 2 --steps 2", &["--steps 2", "first 2 steps", "at least 3"]),
        ("--ranks 2 --layouts 1", &["--layouts 1", "at least 2"]),
        ("--ranks 2 --layouts 2 --all-grids", &["--layouts", "--all-grids"]),
        ("--grid x=2", &["--grid", "--ranks", "--axes"]),
        ("--ranks 2 --axes x,w", &["'w'", "x, y, z, context, expert, data, pipe"]),
        ("--ranks 2 --threads 0", &["--threads 0", "at least one"]),
        ("--ranks 2 --timeout 0", &["--timeout 0", "positive"]),
        ("--ranks 2 --csv missing/local.csv", &["cannot write --csv missing/local.csv", "No such file"]),
        ("--ranks 2 --html .", &["cannot write --html .", "directory"]),
        ("--ranks 2 --csv one --html one", &["--html", "--csv one", "name another"]),
    ] {
        refused(&tiny(flags), words);
    }
    let without = "name = \"bare\"\nsource = \"test\"\nintra_node_bandwidth = 1e9\n";
    let folder = folder_with("bare.toml", without);
    let words = ["device = none in bare", "how fast a device computes", "give the cluster a device"];
    refused_in(folder.path(), &tiny("--ranks 2 --cluster bare.toml"), &words);
    refused_in(folder.path(), &tiny("--ranks 2 --cluster bare.toml --csv bare.toml"), &["--csv", "--cluster"]);
    assert_eq!(json(&tiny("--ranks 2 --steps 3 --layouts 2"))["layouts"].as_array().unwrap().len(), 2);
}
