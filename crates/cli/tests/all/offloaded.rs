//! Runs whose optimizer states lie in files: the same steps as without, nothing left behind, other folders when they go on.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{page_document, run};
use crate::run_folders::{TINY, losses, succeed};

const LAYOUT: &str = "--grid x=2,data=2 --zero 1 --bucket 1000";

/// What a command says that fails, with its exit code.
fn fail(folder: &Path, line: &str) -> (i32, String) {
    let output = run(folder, line);
    (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn entries(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

#[test]
fn states_in_files_change_no_step_and_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let states = folder.path().join("states");
    fs::create_dir(&states).unwrap();
    let line = format!("{TINY} {LAYOUT} --steps 4");
    succeed(folder.path(), &format!("{line} --offload host --out memory"));
    succeed(folder.path(), &format!("{line} --offload states --out files"));
    let [memory, files] = ["memory", "files"].map(|run| folder.path().join(run));
    assert_eq!(losses(&files), losses(&memory));
    assert_eq!(entries(&states), 0);
    let document =
        |run: &Path, name: &str| -> Value { serde_json::from_slice(&fs::read(run.join(name)).unwrap()).unwrap() };
    let ledger = |run| document(run, "summary.json")["ledger"].clone();
    assert_eq!(ledger(&files), ledger(&memory), "files are counted and priced as the host's memory is");
    let spec = document(&files, "run.json")["spec"].clone();
    // A run may go on from elsewhere.
    let place = states.canonicalize().unwrap();
    assert_eq!(Path::new(spec["states"]["files"].as_str().unwrap()).canonicalize().unwrap(), place);
    assert!(Path::new(spec["states"]["files"].as_str().unwrap()).is_absolute());
    assert_eq!(spec["layout"]["choices"]["offload"], "host");
    assert_eq!(document(&memory, "run.json")["spec"].get("states"), None);
    succeed(folder.path(), &format!("verify {LAYOUT} --offload states"));
}

/// Killed, a run leaves no file; it goes on with its folder, with another one, in the host's memory and on the device.
#[test]
fn a_killed_run_goes_on_with_other_folders() {
    const STEPS: usize = 40;
    let folder = tempfile::tempdir().unwrap();
    ["first", "second"].iter().for_each(|name| fs::create_dir(folder.path().join(name)).unwrap());
    let line = format!("{TINY} {LAYOUT} --steps {STEPS} --checkpoint-every 1");
    succeed(folder.path(), &format!("{line} --offload host --out undisturbed"));
    let undisturbed = losses(&folder.path().join("undisturbed"));
    let killed = folder.path().join("killed");
    let mut line = format!("{line} --offload first --out killed");
    for (kill, next) in
        ["", "--offload second", "--offload host", "--offload none", "--offload first"].iter().enumerate()
    {
        let before = losses(&killed).len();
        let mut command = Command::new(env!("CARGO_BIN_EXE_quadrille"));
        command.args(line.split_whitespace()).current_dir(folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let start = Instant::now();
        while losses(&killed).len() < before + 2 && start.elapsed() < Duration::from_secs(60) {
            sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let seen = losses(&killed);
        assert!(seen.len() > before, "kill {kill}: no step");
        assert_eq!(seen, undisturbed[..seen.len()], "after kill {kill}");
        line = format!("train --resume killed {next}");
    }
    assert_eq!(["first", "second"].map(|name| entries(&folder.path().join(name))), [0, 0]);
    fs::remove_dir(folder.path().join("first")).unwrap();
    succeed(folder.path(), "train --resume killed --offload second");
    assert_eq!(losses(&killed), undisturbed);
}

#[test]
fn folders_that_cannot_be_used_are_named() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("states")).unwrap();
    succeed(folder.path(), &format!("{TINY} {LAYOUT} --steps 2 --offload states --out run"));
    fs::remove_dir(folder.path().join("states")).unwrap();
    let (code, message) = fail(folder.path(), "train --resume run --steps 3");
    let said = ["--offload", "states is no folder that is there", "name another one"];
    assert!(code == 2 && said.iter().all(|words| message.contains(words)), "{code}: {message}");
    let (code, message) = fail(folder.path(), &format!("{TINY} --offload missing"));
    let said = ["--offload", "'missing'", "none, host, a folder that is there"];
    assert!(code == 2 && said.iter().all(|words| message.contains(words)), "{code}: {message}");
    // What runs nothing has no use for a folder.
    let (code, message) = fail(folder.path(), "explain --grid x=2 --offload .");
    assert!(code == 2 && message.contains("none, host"), "{code}: {message}");
}

/// Updates that are begun under the reductions take the same steps; the run says how many were done again, its report too, and
/// the ledger of the last step is that of what became of it.
#[test]
fn repeated_updates_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let line = format!("{TINY} {LAYOUT} --steps 6 --offload host");
    succeed(folder.path(), &format!("{line} --set clip=0.01 --out waits"));
    for (clip, repeated) in [("0.01", 6), ("1000000", 0)] {
        let name = format!("clip-{clip}");
        let command = format!("{line} --set clip={clip} --optimizer-overlap --out {name}");
        let output = run(folder.path(), &command);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.contains("as predicted, in every step"), "{text}");
        assert!(text.contains(&format!("updates: {repeated} of 6 ")), "{text}");
        let steps = fs::read_to_string(folder.path().join(&name).join("steps.jsonl")).unwrap();
        assert_eq!(steps.matches("\"repeated\":true").count(), repeated);
        succeed(folder.path(), &format!("report {name}"));
        let page = fs::read_to_string(folder.path().join(&name).join("report.html")).unwrap();
        let about = page_document(&page)["about"].to_string();
        assert!(about.contains(&format!("{repeated} of 6 (")), "{about}");
    }
    let [waits, overlaps] = ["waits", "clip-0.01"].map(|run| losses(&folder.path().join(run)));
    assert_eq!(waits, overlaps);
}
