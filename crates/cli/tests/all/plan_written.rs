//! Files of `quadrille plan`: layouts and tables that it writes, layouts that it reads.

use std::fs;

use serde_json::Value;

use crate::common::{json, run};
use crate::plan_native::{CLUSTER, assert_close, line, number, plans};
use crate::refusals::{folder_with, refused};

/// Results name no files: that they are there is told beside them, where somebody reads it.
#[test]
fn files_that_were_written_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let plan = line("--fix pipe=2 --top 1 --out layout.toml --html plan.html");
    let explain = "explain --model gpt-tiny --grid x=2 --html explained.html";
    let sweep = "sweep --model gpt-tiny --cluster selene --vary gpus=2 --html sweep.html --out sweep.csv";
    for (line, files) in [
        (plan.as_str(), vec!["layout.toml", "plan.html"]),
        (explain, vec!["explained.html"]),
        (sweep, vec!["sweep.csv", "sweep.html"]),
    ] {
        let told = |more: &str| {
            let output = run(folder.path(), &format!("{line}{more}"));
            assert!(output.status.success(), "{line}{more}: {}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stderr).unwrap()
        };
        let expected: String = files.iter().map(|file| format!("written to {file}\n")).collect();
        assert_eq!(told(""), expected, "{line}");
        assert_eq!(told(" -q"), "", "{line}");
    }
}

/// The layout that is written is read by every command, and priced alike.
#[test]
fn the_best_layout_is_written_and_read() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &line("--fix pipe=2 --top 1 --variants --json --out layout.toml"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let file = fs::read_to_string(folder.path().join("layout.toml")).unwrap();
    assert!(file.contains("pipe=2"), "{file}");
    let explain = format!("explain --model gpt2-124m --cluster {CLUSTER} --layout layout.toml --price --json");
    let output = run(folder.path(), &explain);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let explained: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(explained["plan"], plans(&found)[0]);
    // Searched again with what the file fixes, nothing else is left to find.
    let output = run(folder.path(), &line("--layout layout.toml --fix pipe=2 --top 1 --json"));
    let again: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(plans(&again)[0]["time_s"], plans(&found)[0]["time_s"]);
}

#[test]
fn tables_for_other_programs_hold_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &line("--top 5 --json --csv best.csv"));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = fs::read_to_string(folder.path().join("best.csv")).unwrap();
    let mut lines = csv::Reader::from_reader(text.as_bytes());
    let header = lines.headers().unwrap().clone();
    let rows: Vec<csv::StringRecord> = lines.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 5);
    for (row, plan) in rows.iter().zip(plans(&document)) {
        let cell = |name: &str| &row[header.iter().position(|known| known == name).unwrap()];
        assert_eq!(cell("grid"), plan["layout"]["grid"].as_str().unwrap());
        assert_close(cell("time_s").parse().unwrap(), number(plan, "time_s"));
        assert_eq!(cell("memory_bytes"), plan["memory_bytes"].to_string());
        assert_close(
            cell("parts_s_communication_data").parse().unwrap(),
            number(&plan["parts_s"]["communication"], "data"),
        );
    }
}

#[test]
fn layout_files_are_kept_or_refused() {
    let with = |text: &str| {
        let folder = folder_with("file.toml", text);
        let path = folder.path().join("file.toml");
        (line(&format!("--top 1 --fix x=4,data=2 --layout {}", path.display())), folder)
    };
    let (one_a_node, _folder) = with("per_node = 1\n");
    let typed = json(&line("--top 1 --fix x=4,data=2 --per-node 1"));
    let free = json(&line("--top 1 --fix x=4,data=2"));
    assert_eq!(json(&one_a_node)["plans"], typed["plans"]);
    assert!(number(&plans(&typed)[0], "time_s") > number(&plans(&free)[0], "time_s"));
    for (text, words) in [
        ("per_node = 0\n", &["per-node = 0", "at least 1"][..]),
        ("order = \"x,y,z,data\"\n", &["order = x,y,z,data", "every order"]),
        ("grid = \"pipe=2,data=4\"\nmicrobatch_group = 4\n", &["microbatch_group = 4", "as long as the pipeline"]),
        ("stage_blocks = [5, 7]\n", &["stage_blocks = ", "as equal as possible"]),
    ] {
        refused(&with(text).0, words);
    }
}
