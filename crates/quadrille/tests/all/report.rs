//! `quadrille report`: the page by itself, and as a browser shows it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const TINY: &str = "train --model gpt-tiny --set vocab=256 --threads 1";

fn run(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quadrille"));
    command.args(words).current_dir(folder).stdin(Stdio::null()).output().unwrap()
}

fn succeed(folder: &Path, line: &str) -> String {
    let output = run(folder, &line.split_whitespace().collect::<Vec<_>>());
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What it says; it must be about input.
fn refused(folder: &Path, line: &str) -> String {
    let output = run(folder, &line.split_whitespace().collect::<Vec<_>>());
    assert_eq!(output.status.code(), Some(2), "{line}");
    String::from_utf8(output.stderr).unwrap()
}

/// Points of every curve of the colour, in the order of the page.
fn curves(page: &str, colour: &str) -> Vec<usize> {
    let lines = page.split("<polyline points=\"").skip(1);
    let lines = lines.filter(|line| line.split("/>").next().unwrap().contains(&format!("stroke=\"var({colour})\"")));
    lines.map(|line| line.split('"').next().unwrap().split(' ').count()).collect()
}

/// Nothing is loaded or run: one file is all there is.
fn assert_alone(page: &str) {
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    for loaded in ["<script", "<link", "<img", "<iframe", "<object", "src=", "href=", "@import", "url("] {
        assert_eq!(page.find(loaded), None, "{loaded}");
    }
    // The namespace of drawings is a name; nothing is fetched from it.
    let addresses = page.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    assert!(!addresses.contains("http://") && !addresses.contains("https://"));
    // Tags are closed.
    for tag in ["svg", "table", "tr", "td", "th", "h2", "text", "p"] {
        let opened = page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
    }
}

/// The cells of the row that begins with `name`.
fn row<'a>(page: &'a str, name: &str) -> Vec<&'a str> {
    let start = format!("<tr><td>{name}</td>");
    let at = page.find(&start).unwrap_or_else(|| panic!("no row {name}"));
    let cells = page[at + start.len()..].split("</tr>").next().unwrap();
    cells.split("<td>").skip(1).map(|cell| cell.trim_end_matches("</td>")).collect()
}

/// A browser that is installed.
fn browser() -> Option<PathBuf> {
    let folders: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name))).find(|path| path.is_file())
}

/// The page as the browser has understood it, and what it has to say about it; `None` without a browser.
fn shown(page: &Path) -> Option<(String, String)> {
    let Some(browser) = browser() else {
        eprintln!("no chromium, chromium-browser or google-chrome is installed: the page is not shown in a browser");
        return None;
    };
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap();
    let [dom, log] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{log}");
    Some((dom, log))
}

#[test]
fn a_page_shows_the_whole_run() {
    let folder = tempfile::tempdir().unwrap();
    let line = "--grid x=2,pipe=2 --microbatch 1 --steps 9 --validation 0.1 --validate-every 4 --validation-batches 2";
    succeed(folder.path(), &format!("{TINY} {line} --checkpoint-every 5 --out a<b&c"));
    // Of a machine that nobody has measured nothing is predicted.
    succeed(folder.path(), "report a<b&c --out plain.html");
    let plain = fs::read_to_string(folder.path().join("plain.html")).unwrap();
    assert!(
        plain.contains("not predicted on the cluster local: nobody has measured it") && plain.contains("--cluster")
    );
    assert_eq!(row(&plain, "whole step")[1], "-");
    let told = succeed(folder.path(), "report a<b&c --cluster selene");
    let path = folder.path().join("a<b&c/report.html");
    assert_eq!(Path::new(told.trim()), Path::new("a<b&c/report.html"));
    let page = fs::read_to_string(&path).unwrap();
    assert_alone(&page);
    // What users name is text.
    assert!(page.contains("<h1>a&lt;b&amp;c: gpt-tiny</h1>") && !page.contains("a<b"));
    // Loss, gradient norm, learning rate, speed; and validation after steps 4, 8 and 9.
    assert_eq!((curves(&page, "--blue"), curves(&page, "--orange")), (vec![9; 4], vec![3]));
    // The built-in corpus has a floor, and the run has more.
    let floor = page.split("floor ").nth(1).unwrap().split('<').next().unwrap().parse::<f64>().unwrap();
    let summary: Value =
        serde_json::from_str(&fs::read_to_string(folder.path().join("a<b&c/summary.json")).unwrap()).unwrap();
    assert!((floor - summary["floor"].as_f64().unwrap()).abs() < 1e-4, "{floor}");
    assert!(page.contains("predicted: the step's program simulated") && page.contains("on the cluster selene"));
    for kind in ["products", "\u{2003}gemm", "\u{2003}adamw", "whole step"] {
        let cells = row(&page, kind);
        assert!(cells.len() == 3 && cells.iter().all(|cell| *cell != "-"), "{kind}: {cells:?}");
    }
    assert!(page.contains("bytes, FLOPs and memory of all 4 ranks as predicted, as integers, in every step"));
    let scatter = row(&page, "x reduce-scatter");
    assert!(scatter.len() == 6 && scatter.chunks(2).all(|pair| pair[0] == pair[1]), "{scatter:?}");
    let calls: u64 = summary["ledger"]["counted"]["ranks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rank| rank["axes"]["x"]["reduce_scatter"]["calls"].as_u64().unwrap_or(0))
        .sum();
    assert_eq!(scatter[0], calls.to_string());
    assert_eq!(row(&page, "step-000000000009")[0], "9");
    assert!(page.contains("checkpoint of step 5") && page.contains("validation loss"));
    if let Some((dom, log)) = shown(&path) {
        // No part was taken for something else than it is.
        assert_eq!(dom.matches("<polyline").count(), page.matches("<polyline").count());
        assert_eq!(dom.matches("<tr>").count(), page.matches("<tr>").count());
        assert_eq!(curves(&dom.replace("></polyline>", "/>"), "--blue"), [9; 4]);
        assert!(dom.contains("<h1>a&lt;b&amp;c: gpt-tiny</h1>"));
        assert!(!log.contains("CONSOLE"), "{log}");
    }
}

#[test]
fn steps_that_stand_out_are_marked_and_losses_may_be_no_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let line = "--grid x=1 --set warmup_steps=0 --steps 4 --lr 1e30 --on-divergence skip --out run";
    succeed(folder.path(), &format!("{TINY} {line}"));
    succeed(folder.path(), "report run --out page.html");
    let page = fs::read_to_string(folder.path().join("page.html")).unwrap();
    assert_alone(&page);
    assert_eq!(page.matches("loss NaN, not applied</title>").count(), 3);
    // Loss and gradient norm have one point, learning rate and speed four.
    assert_eq!(curves(&page, "--blue"), [1, 1, 4, 4]);
    assert!(page.contains("<td>skipped</td>"));
    assert!(!folder.path().join("run/report.html").exists());
}

#[test]
fn a_run_without_an_end_is_shown_as_far_as_it_got() {
    let folder = tempfile::tempdir().unwrap();
    succeed(folder.path(), &format!("{TINY} --grid data=2 --steps 6 --out run"));
    let of_run = |name: &str| folder.path().join("run").join(name);
    let summary = fs::read(of_run("summary.json")).unwrap();
    fs::remove_file(of_run("summary.json")).unwrap();
    let steps = fs::read_to_string(of_run("steps.jsonl")).unwrap();
    // As a killed process may leave it.
    fs::write(of_run("steps.jsonl"), &steps[..steps.len() - 20]).unwrap();
    succeed(folder.path(), "report run --cluster selene");
    let page = fs::read_to_string(of_run("report.html")).unwrap();
    assert_alone(&page);
    assert_eq!(curves(&page, "--blue"), [5; 4]);
    assert!(page.contains("There is no summary.json: the run goes on, or was cut off before its end."));
    assert!(page.contains("The last line of steps.jsonl is cut off"));
    let (whole, reduce) = (row(&page, "whole step"), row(&page, "data all-reduce"));
    assert!(whole[0] == "-" && whole[1] != "-" && reduce[0] != "-" && reduce[1] == "-", "{whole:?} {reduce:?}");

    // A summary of an earlier part is not taken for one of the whole.
    fs::write(of_run("summary.json"), summary).unwrap();
    let next = steps.lines().last().unwrap().replace("\"step\":6", "\"step\":7");
    fs::write(of_run("steps.jsonl"), format!("{steps}{next}\n")).unwrap();
    succeed(folder.path(), "report run");
    let page = fs::read_to_string(of_run("report.html")).unwrap();
    assert!(page.contains("summary.json is of another part of the run, which ended after step 6"));
}

#[test]
fn what_no_run_writes_is_named() {
    let folder = tempfile::tempdir().unwrap();
    succeed(folder.path(), &format!("{TINY} --grid x=1 --steps 4 --out run"));
    let of_run = |name: &str| folder.path().join("run").join(name);
    let steps = fs::read_to_string(of_run("steps.jsonl")).unwrap();
    let lines: Vec<&str> = steps.lines().collect();
    let damaged = |name: &str, text: &str| {
        let whole = fs::read(of_run(name)).unwrap();
        fs::write(of_run(name), text).unwrap();
        let message = refused(folder.path(), "report run");
        fs::write(of_run(name), whole).unwrap();
        message
    };
    let torn = steps.replace(lines[1], &lines[1][..30]);
    let message = damaged("steps.jsonl", &torn);
    assert!(message.contains("steps.jsonl, line 2, column ") && !message.contains("line 1"), "{message}");
    let message = damaged("steps.jsonl", &format!("{}\n{}\n", lines[2], lines[1]));
    assert!(message.contains("steps.jsonl, line 2: step 2 follows step 3; steps ascend"), "{message}");
    let message = damaged("events.jsonl", "{\"step\":1}\n");
    assert!(message.contains("events.jsonl, line 1, column ") && message.contains("missing field"), "{message}");
    let message = damaged("summary.json", "{}");
    assert!(message.contains("summary.json: missing field"), "{message}");
    let message = damaged("run.json", &fs::read_to_string(of_run("run.json")).unwrap().replace("\"x=1", "\"x=3"));
    assert!(message.contains("run.json: layout: "), "{message}");
    for (line, part) in [
        ("report nothing", "nothing holds no run.json"),
        ("report run --out run/steps.jsonl", "would be written over or into the run's "),
        ("report run --out nowhere/page.html", "cannot write --out nowhere/page.html"),
        ("report run --cluster moon", "moon"),
    ] {
        let message = refused(folder.path(), line);
        assert!(message.contains(part), "{line}: {message}");
    }
    assert_eq!(fs::read_to_string(of_run("steps.jsonl")).unwrap(), steps);
}
