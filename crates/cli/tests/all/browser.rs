//! Pages in a real browser: what they draw, and that nothing goes wrong there. Left out, with a word, where there is no Chromium.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::common::{page_document, run};

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
    let page = String::from_utf8(output.stdout).unwrap();
    // Below what is shown are the document and the scripts, which have the same words.
    Some((page.split("<script").next().unwrap().to_owned(), console))
}

/// What each page of a plan shows, whoever made it.
fn assert_plan(page: &str, console: &[String]) {
    assert!(console.is_empty(), "{console:?}");
    assert_eq!(page.matches("<svg").count(), 6, "charts of time, memory, both, the hardware, the passes and the mesh");
    for part in [
        "(advised)",
        "aria-pressed=\"true\"",
        "tensor-model-parallel-size",
        "What rules refuse",
        "runs most like it",
        "may be as fast",
        "line: front of the layouts that are shown",
        "<summary>Numbers</summary>",
        "<rect",
        "<path",
        "forward of microbatch 0",
        "Talk together",
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
    fs::write(&path, page.replace("function drawPlan(plan,", "function drawPlan(other,")).unwrap();
    let (page, console) = drawn(&format!("file://{}", path.display()), 900).unwrap();
    assert!(console.iter().any(|line| line.contains("plan is not defined")) && !page.contains("<svg"), "{console:?}");
}

#[test]
fn an_explained_layout_is_drawn_at_every_width() {
    let folder = tempfile::tempdir().unwrap();
    let line = "explain --model gpt2-124m --grid x=2,y=2,data=2,pipe=2 --schedule interleaved --chunks 3 --cluster dgx-a100 \
                --per-node 8 --html layout.html";
    let output = run(folder.path(), line);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let path = folder.path().join("layout.html");
    let made = fs::read_to_string(&path).unwrap();
    assert!(made.len() < 1_000_000, "{} bytes", made.len());
    for width in [400, 900, 1600] {
        let Some((page, console)) = drawn(&format!("file://{}", path.display()), width) else { return };
        assert!(console.is_empty(), "{console:?}");
        // The mesh, the passes, the memory, and four matrices.
        assert_eq!(page.matches("<svg").count(), 7, "{width}");
        for part in [
            "gpt2-124m on 16 ranks",
            "The product contracts over the weight's inputs, which y cuts",
            "backward of microbatch 7, chunk 2",
            "optimizer states",
            "reduce-scatter y",
        ] {
            assert!(page.contains(part), "{part} is not drawn");
        }
    }
    // A script that fails is seen.
    fs::write(&path, made.replace("function meshDrawing(mesh)", "function meshDrawing(other)")).unwrap();
    let (page, console) = drawn(&format!("file://{}", path.display()), 900).unwrap();
    assert!(console.iter().any(|line| line.contains("mesh is not defined")) && !page.contains("<svg"), "{console:?}");
}

#[test]
fn layouts_of_a_page_are_in_the_numbers_of_the_plan() {
    let folder = tempfile::tempdir().unwrap();
    let plan = "plan --model llama3-8b --gpus 16 --cluster dgx-h100 --fix data=8,x=2,zero=1 --html plan.html";
    let exported = |numbers: &str| {
        let output = run(folder.path(), &format!("{plan} {numbers}"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let page = fs::read_to_string(folder.path().join("plan.html")).unwrap();
        page_document(&page)["exports"][0]["text"].as_str().unwrap().to_owned()
    };
    let said = ["--fp8-recipe tensorwise", "--grad-reduce-in-bf16", "--exp-avg-dtype bf16"];
    let usual = exported("");
    let narrow = exported("--products fp8 --gradients bf16 --moments bf16");
    for flag in said {
        assert!(narrow.contains(flag) && !usual.contains(flag), "{flag}: {narrow}");
    }
}

/// A page that a command writes: in a browser it has at least so many charts and each of the parts, at widths of a phone and of a
/// screen, and its console is empty; and a page whose script is broken on purpose is noticed.
fn assert_drawn(folder: &Path, lines: &[&str], page: &str, script: &str, charts: usize, parts: &[&str]) {
    for line in lines {
        let output = run(folder, line);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let path = folder.join(page);
    let text = fs::read_to_string(&path).unwrap();
    page_document(&text);
    let address = format!("file://{}", path.display());
    for width in [400, 1600] {
        let Some((shown, console)) = drawn(&address, width) else { return };
        assert!(console.is_empty(), "{console:?}");
        assert_eq!(shown.matches("<svg").count(), charts, "charts of {page}");
        for part in parts.iter().chain(&["<title>", "class=\"save\"", "aria-label=\"Save as SVG: "]) {
            assert!(shown.contains(part), "{part} is not drawn");
        }
        assert!(!["NaN", "undefined", "[object"].iter().any(|wrong| shown.contains(wrong)), "{page}");
    }
    let broken = format!("function {script}(");
    assert!(text.contains(&broken), "{broken}");
    fs::write(&path, text.replace(&broken, "function other(")).unwrap();
    let (shown, console) = drawn(&address, 900).unwrap();
    let noticed = format!("{script} is not defined");
    assert!(console.iter().any(|line| line.contains(&noticed)) && !shown.contains("<svg"), "{console:?}");
}

#[test]
fn a_sweep_is_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let line = "sweep --model gpt2-124m --cluster dgx-a100 --global-batch 64 --html sweep.html --vary gpus=8..64";
    let parts = [
        "gpt2-124m on dgx-a100 by gpus",
        "as fast as devices are many",
        "% of the devices' peak",
        ">gpus (logarithmic) →<",
    ];
    assert_drawn(folder.path(), &[line], "sweep.html", "drawSweep", 5, &parts);
    let parts = ["by gpus and nvs", "nvs 2", "Days of training", "<option value=\"1\">8</option>"];
    let two = format!("{line} --vary nvs=2,8 --tokens 1e9");
    assert_drawn(folder.path(), &[&two], "sweep.html", "drawSweep", 5, &parts);
}

#[test]
fn a_run_is_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let train = "train --model moe-tiny --set vocab=256 --threads 1 --grid data=2 --steps 12 --validation 0.1 --validate-every 4 \
                 --validation-batches 2 --out run";
    let parts = [
        "run: moe-tiny",
        "nats per token",
        "dashed: floor ",
        "Load of the fullest ranks",
        ">block 1<",
        "waits for collectives",
        "bytes, FLOPs and memory of all 2 ranks as predicted",
        "step-000000000012",
    ];
    let report = "report run --cluster selene --out run.html";
    // Loss, norm, rate, speed; four of routers; loads; the step.
    assert_drawn(folder.path(), &[train, report], "run.html", "drawRun", 10, &parts);
}

#[test]
fn published_runs_are_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let parts =
        ["Seconds of a step: errors", "dashed: 10% more and less", "PTD-P", "Show all", "Not predicted", "+10%"];
    assert_drawn(
        folder.path(),
        &["validate published --html published.html"],
        "published.html",
        "drawPublished",
        4,
        &parts,
    );
}

#[test]
fn measured_layouts_are_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let line = "validate local --model gpt-tiny --ranks 2 --steps 3 --html local.html";
    let parts =
        ["gpt-tiny on local: predicted and measured steps", "data=2, measured", "exposed communication", "Kendall"];
    assert_drawn(folder.path(), &[line], "local.html", "drawLocal", 3, &parts);
}

#[test]
fn collectives_are_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let line = "bench collectives --ranks 2,4 --sizes 4KiB..64KiB --runs 1 --html collectives.html";
    let parts = ["all-reduce, the best", "GB/s on the bus", "16.0 KiB", "dashed: a copy"];
    // Of each of three collectives: by ring, recursive, the best, and bandwidths.
    assert_drawn(folder.path(), &[line], "collectives.html", "drawCollectives", 12, &parts);
}

#[test]
fn memorised_documents_are_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let line = "memorize --model gpt-tiny --set vocab=256 --epochs 0,2 --documents-per-bucket 2 --warmup-steps 4 \
                --generate-tokens 2 --threads 1 --html memorised.html";
    let parts =
        ["gpt-tiny: documents memorised", "2 epochs, goldfish k=2,h=13", "% of the documents", "nats per token"];
    assert_drawn(folder.path(), &[line], "memorised.html", "drawMemorized", 2, &parts);
}

/// A process that ends with the test, however that ends.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The line of the planner's page that says how far an answer is.
fn status(page: &str) -> &str {
    page.split("role=\"status\"").nth(1).and_then(|rest| rest.split("</p>").next()).unwrap_or("no status")
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
    assert!(good.contains("Answered in"), "{}", status(&good));
    assert_plan(&good, &console);
    assert!(good.contains("gpt2-1558m on 16 devices of dgx-a100") && good.contains("Answered in"));
    // How long it took stands in the question's corner, before the answer's heading; what is told of that are sentences.
    let [form, heading, answered] = ["</form>", "<h1", "Answered in"].map(|part| good.find(part).unwrap());
    assert!(answered < form && form < heading);
    assert!(good.contains(">Its time is uncertain by "));
    // An answer of many rounds is drawn, too.
    let (long, _) =
        drawn(&format!("{address}#model=gpt3-175b&cluster=selene&gpus=16384&global_batch=16384"), 900).unwrap();
    assert!(long.contains("Answered in") && long.matches("<svg").count() == 6, "{}", status(&long));
    // Constraints are sliders, which say what they are at.
    assert_eq!((good.matches("type=\"range\" min").count(), good.matches("aria-valuetext=\"any\"").count()), (5, 2));
    for (asked, reason) in [
        ("model=gpt2-1558m&gpus=none", "“Devices” = none: it is no number of devices"),
        ("model=gpt9&gpus=8", "unknown model"),
        ("model=gpt2-1558m&cluster=nowhere&gpus=8", "unknown cluster"),
        ("model=gpt2-124m&gpus=8&seq_len=4096", "“Tokens a sequence” = 4096: it must be 1 to 1024"),
        ("model=gpt2-1558m&gpus=8&max.x=three", "“TP at most” = three: it is a whole number"),
        ("model=gpt2-124m&cluster=dgx-a100&gpus=8&tokens=1000T&days=1", "within 1 day: "),
    ] {
        let (page, _) = drawn(&format!("{address}#{asked}"), 900).unwrap();
        let status = status(&page);
        assert!(status.contains(reason) && !page.contains("<svg"), "{asked}: {status}");
    }
}
