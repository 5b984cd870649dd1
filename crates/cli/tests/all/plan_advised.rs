//! Which plan is advised, and by how much the fastest is faster.

use std::fs;

use serde_json::Value;

use crate::common::{json, run};

const CLUSTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/small_cluster.toml");

/// A pipeline with many microbatches: chunks gain little.
fn line(more: &str) -> String {
    format!("plan --model gpt2-124m --gpus 8 --cluster {CLUSTER} --global-batch 512 --min pipe=2 --top 3 {more}")
}

fn number(value: &Value, field: &str) -> f64 {
    value[field].as_f64().unwrap_or_else(|| panic!("{field} in {value}"))
}

#[test]
fn the_simplest_is_advised_of_what_is_hardly_slower() {
    let document = json(&line("--variants"));
    let advised = &document["advised"];
    let plans = document["plans"].as_array().unwrap();
    let plan = &advised["plan"];
    let fastest = &plans[0];
    assert_eq!(fastest["layout"]["schedule"], "interleaved");
    assert_eq!(plan["layout"]["schedule"], "1f1b", "{plan}");
    let [own, least] = [plan, fastest].map(|plan| number(plan, "time_s"));
    assert!(own > least && own <= 1.03 * least * (1.0 + 1e-6), "{own} and {least}");
    assert!((number(advised, "gain_of_fastest") - (1.0 - least / own)).abs() < 1e-12);
    assert_eq!((&advised["tolerance"], &advised["index"]), (&0.03.into(), &Value::Null));
    assert!(plans.is_sorted_by(|a, b| number(a, "time_s") <= number(b, "time_s") * (1.0 + 1e-6)));
    // The same once more, and beside more plans.
    assert_eq!(json(&line("--variants"))["advised"], *advised);
    let more = json(&line("--variants").replace("--top 3", "--top 40"));
    let index = more["advised"]["index"].as_u64().unwrap() as usize;
    assert_eq!((&more["advised"]["plan"], &more["plans"][index]), (plan, plan));
}

#[test]
fn exotic_advises_the_fastest() {
    let document = json(&line("--exotic"));
    assert_eq!(document["advised"]["plan"], document["plans"][0]);
    assert_eq!((&document["advised"]["index"], &document["advised"]["tolerance"]), (&0.into(), &0.0.into()));
    assert_eq!(document["plans"], json(&line(""))["plans"]);
}

#[test]
fn what_is_advised_is_written_marked_and_explained() {
    let folder = tempfile::tempdir().unwrap();
    let written = |more: &str| {
        let output = run(folder.path(), &line(&format!("--out layout.toml --explain {more}")));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let file = fs::read_to_string(folder.path().join("layout.toml")).unwrap();
        (file, String::from_utf8(output.stdout).unwrap())
    };
    let (file, text) = written("");
    assert!(file.contains("1f1b"), "{file}");
    let rows: Vec<_> = text.lines().filter(|line| line.contains("pipe=2")).collect();
    assert!(rows[0].starts_with("* ") && rows[0].contains(" 1f1b "), "{text}");
    assert!(rows[1].contains("interleaved x7") && !rows[1].contains('*'), "{text}");
    for words in [
        "advised (*): the simplest within 3.0% of the fastest",
        "takes 2.5% less",
        "why PP2 VP7 DP4, the fastest, is faster",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let (file, text) = written("--exotic");
    assert!(file.contains("interleaved") && !text.contains("advised"), "{file}{text}");
    assert!(text.contains(", the next one, lost"), "{text}");
    // Where nothing simpler is near it says so.
    let alone = line("--memory-reserve 5%").replace("--min pipe=2", "");
    let text = String::from_utf8(run(folder.path(), &alone).stdout).unwrap();
    assert!(text.contains("advised: the fastest, since nothing simpler is within 3.0%"), "{text}");
}
