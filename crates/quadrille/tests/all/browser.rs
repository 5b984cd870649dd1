//! Pages in a real browser: what they draw, and that nothing goes wrong there. Left out, with a word, where there is no Chromium.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::common::run;

const BROWSER: &str = "chromium";

/// Of Chromium: no window, no request of its own, the time that pages wait for does not pass.
const FLAGS: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--virtual-time-budget=20000",
];

/// The elements of a page as the browser has drawn them, and what it told its console.
fn drawn(address: &str, width: usize) -> Option<(String, Vec<String>)> {
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new(BROWSER)
        .args(FLAGS)
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("--window-size={width},1200"))
        .args(["--dump-dom", address])
        .output();
    let Ok(output) = output else {
        println!("SKIPPED: {BROWSER} is not here");
        return None;
    };
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{told}");
    let console = told.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect();
    Some((String::from_utf8(output.stdout).unwrap(), console))
}

/// What each page of a plan shows, whoever made it.
fn assert_plan(page: &str, console: &[String]) {
    assert!(console.is_empty(), "{console:?}");
    assert_eq!(page.matches("<svg").count(), 4, "charts of time, memory, both, and the hardware");
    for part in [
        "(advised)",
        "aria-pressed=\"true\"",
        "tensor-model-parallel-size",
        "What rules refuse",
        "runs most like it",
        "<summary>Numbers</summary>",
        "<rect",
        "<circle",
    ] {
        assert!(page.contains(part), "{part} is not drawn");
    }
}

#[test]
fn a_plan_in_a_file_is_drawn_at_every_width() {
    let folder = tempfile::tempdir().unwrap();
    let line = "plan --model gpt2-1558m --gpus 16 --cluster dgx-a100 --global-batch 64 --html plan.html";
    let output = run(folder.path(), line);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(!told.contains("what binds"), "explained though nobody asked: {told}");
    let path = folder.path().join("plan.html");
    let page = fs::read_to_string(&path).unwrap();
    assert!(page.len() < 1_000_000 && page.contains("\"exports\""), "{} bytes", page.len());
    for width in [400, 900, 1600] {
        let Some((page, console)) = drawn(&format!("file://{}", path.display()), width) else { return };
        assert_plan(&page, &console);
    }
    // A script that fails is seen.
    fs::write(&path, page.replace("function drawPlan(plan)", "function drawPlan(other)")).unwrap();
    let (page, console) = drawn(&format!("file://{}", path.display()), 900).unwrap();
    assert!(console.iter().any(|line| line.contains("plan is not defined")) && !page.contains("<svg"), "{console:?}");
}

#[test]
fn layouts_of_a_page_are_in_the_numbers_of_the_plan() {
    let folder = tempfile::tempdir().unwrap();
    let plan = "plan --model llama3-8b --gpus 16 --cluster dgx-h100 --fix data=8,x=2,zero=1 --html plan.html";
    let exported = |numbers: &str| {
        let output = run(folder.path(), &format!("{plan} {numbers}"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let page = fs::read_to_string(folder.path().join("plan.html")).unwrap();
        let data = page.split("id=\"data\">").nth(1).and_then(|rest| rest.split("</script>").next()).unwrap();
        let document: Value = serde_json::from_str(data).unwrap();
        document["exports"][0]["text"].as_str().unwrap().to_owned()
    };
    let said = ["--fp8-recipe tensorwise", "--grad-reduce-in-bf16", "--exp-avg-dtype bf16"];
    let (usual, narrow) = (exported(""), exported("--products fp8 --gradients bf16 --moments bf16"));
    for flag in said {
        assert!(narrow.contains(flag) && !usual.contains(flag), "{flag}: {narrow}");
    }
}

/// A process that ends with the test, however that ends.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_planner_answers_what_its_address_asks() {
    let child = Command::new(Path::new(env!("CARGO_BIN_EXE_quadrille")))
        .args(["serve", "--port", "0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut server = Ended(child);
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.split_whitespace().find(|word| word.starts_with("http")).unwrap().to_owned();
    let good = drawn(&format!("{address}#model=gpt2-1558m&cluster=dgx-a100&gpus=16&global_batch=64"), 900);
    let Some((good, console)) = good else { return };
    assert_plan(&good, &console);
    assert!(good.contains("gpt2-1558m on 16 devices of dgx-a100") && good.contains("Answered in"));
    for (asked, reason) in [
        ("model=gpt2-1558m&gpus=none", "devices none: invalid digit"),
        ("model=gpt9&gpus=8", "unknown model"),
        ("model=gpt2-1558m&cluster=nowhere&gpus=8", "unknown cluster"),
        ("model=gpt2-1558m&gpus=8&max_x=three", "three"),
    ] {
        let (page, _) = drawn(&format!("{address}#{asked}"), 900).unwrap();
        let status = page.split("role=\"status\"").nth(1).and_then(|rest| rest.split("</p>").next()).unwrap();
        assert!(status.contains(reason) && !page.contains("<svg"), "{asked}: {status}");
    }
}
