//! `quadrille paper WORK reproduce`: the printed table, its JSON and CSV.

use serde_json::Value;

use crate::common::{json, run};

fn points(part: &Value) -> &Vec<Value> {
    part["points"].as_array().unwrap()
}

#[test]
fn megatron_as_text() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), "paper megatron reproduce");
    assert!(output.status.success());
    insta::assert_snapshot!(String::from_utf8(output.stdout).unwrap());
}

#[test]
fn all_works_are_reproduced_together_or_alone() {
    let all = json("paper all reproduce");
    let parts = all["parts"].as_array().unwrap();
    let names: Vec<&str> = parts.iter().map(|part| part["part"].as_str().unwrap()).collect();
    assert!(
        names.is_sorted()
            && ["atp", "axonn", "lbnl", "megatron", "samo", "ted"].iter().all(|name| names.contains(name)),
        "{names:?}"
    );
    for (part, name) in parts.iter().zip(names) {
        assert_eq!(json(&format!("paper {name} reproduce"))["parts"][0], *part);
    }
}

#[test]
fn documents_hold_together() {
    for part in json("paper all reproduce")["parts"].as_array().unwrap() {
        let mut sum = 0.0;
        let mut most = 0.0_f64;
        let mut agreeing = 0;
        for point in points(part) {
            let [published, ours, deviation] =
                ["published", "ours", "deviation_percent"].map(|field| point[field].as_f64().unwrap());
            assert!((deviation - 100.0 * (ours / published - 1.0)).abs() < 1e-9, "{point}");
            assert!(
                ["what", "source", "unit"].iter().all(|field| !point[field].as_str().unwrap().is_empty()),
                "{point}"
            );
            let agrees = point["agrees"].as_bool().unwrap();
            assert_eq!(point["note"].is_null(), agrees, "{point}");
            sum += deviation.abs();
            most = most.max(deviation.abs());
            agreeing += usize::from(agrees);
        }
        let summary = &part["summary"];
        assert_eq!((&summary["points"], &summary["agreeing"]), (&points(part).len().into(), &agreeing.into()));
        let [mean, max] =
            ["mean", "max"].map(|of| summary[format!("{of}_absolute_deviation_percent")].as_f64().unwrap());
        assert!((mean - sum / points(part).len() as f64).abs() < 1e-9 && (max - most).abs() < 1e-9);
    }
}

/// What the abstracts state.
#[test]
fn headlines_are_among_the_points() {
    let find = |part: &str, what: &str| {
        let document = json(&format!("paper {part} reproduce"));
        let mut points = points(&document["parts"][0]).iter();
        let point = points.find(|point| point["what"].as_str().unwrap().contains(what)).cloned();
        let point = point.unwrap_or_else(|| panic!("no point of '{what}'"));
        (point["published"].as_f64().unwrap(), point["ours"].as_f64().unwrap())
    };
    let close =
        |(published, ours): (f64, f64), expected: f64| published == expected && (ours / expected - 1.0).abs() < 0.025;
    assert!(close(find("axonn", "gpt-80b on 8192 devices"), 25.5));
    assert!(close(find("atp", "ic1: communication less"), 46.0));
    assert!(close(find("megatron", "megatron-1008b: all GPUs"), 502.0));
    assert!(close(find("megatron", "megatron-1008b, 3072 GPUs: training"), 84.0));
    assert!(close(find("megatron", "gpt3-175b, 1024 GPUs: training"), 34.0));
    assert!(close(find("megatron", "checkpoint"), 13.8));
    assert!(close(find("axonn", "12 billion on 6 stages: states of a GPU"), 40.0));
    assert!(close(find("samo", "sparsity 0.9: bytes of states saved"), 78.0));
    assert!(close(find("ted", "all-to-alls less by both, of printed"), 64.12));
}

/// Rows fit into 120 columns, and no figure of ours is printed as nothing.
#[test]
fn rows_of_ted_are_short_and_have_digits() {
    let output = run(tempfile::tempdir().unwrap().path(), "paper ted reproduce");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let rows = text.lines().skip_while(|line| !line.starts_with("figure ")).take_while(|line| !line.is_empty());
    let rows: Vec<&str> = rows.collect();
    assert!(rows.len() > points(&json("paper ted reproduce")["parts"][0]).len(), "{text}");
    assert!(rows.iter().all(|row| row.chars().count() <= 120), "{text}");
    let tiles = rows.iter().find(|row| row.contains("spike with tiles, at most")).unwrap();
    assert!(tiles.contains(" 1000 ") && tiles.contains(" 7.2 ") && tiles.contains(" MB "), "{tiles}");
    let exchanges = rows.iter().find(|row| row.contains("DTD, all collectives")).unwrap();
    assert!(
        exchanges.contains(" 1296 ") && exchanges.contains(" 1008.0 ") && exchanges.contains(" -22.22% "),
        "{exchanges}"
    );
}

/// Every saved configuration is found in its place, and every curve is met; only what is said in words deviates.
#[test]
fn saved_outputs_of_lbnl_are_met() {
    let document = json("paper lbnl reproduce");
    let part = &document["parts"][0];
    let ends = |point: &&Value, field: &str, end: &str| point[field].as_str().unwrap().ends_with(end);
    let saved: Vec<&Value> = points(part).iter().filter(|point| ends(point, "source", "saved output")).collect();
    assert!(saved.iter().all(|point| point["agrees"] == true), "{saved:?}");
    let places: Vec<&&Value> =
        saved.iter().filter(|point| ends(point, "what", "saved configurations in their places")).collect();
    let found: f64 = places.iter().map(|point| point["ours"].as_f64().unwrap()).sum();
    assert_eq!((saved.len(), places.len(), found), (149, 28, 2196.0));
    let days = saved.iter().find(|point| point["what"] == "2d vit_era5, 16384 B200 nvs 8: training").unwrap();
    assert_eq!((&days["published"], &days["unit"]), (&1.09.into(), &"days".into()));
    let output = run(tempfile::tempdir().unwrap().path(), "paper lbnl reproduce");
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find(|line| line.starts_with("2d, gpt3_1T: speed-up")).unwrap();
    assert!(line.contains(" 5-10 ") && line.contains('%'), "{line}");
}

#[test]
fn csv_has_a_line_per_point() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), "paper atp reproduce --csv points.csv --json");
    assert!(output.status.success());
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = std::fs::read_to_string(folder.path().join("points.csv")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "part,source,what,published,ours,unit,deviation_percent,agrees,note");
    assert_eq!(lines.len(), 1 + points(&document["parts"][0]).len());
    assert!(
        lines.contains(&"atp,section 3.5,\"figure 7a, DeviceMesh(8,2): B2' by eq. 3\",200,200.0,GB/s,0.0,true,"),
        "{text}"
    );
}
