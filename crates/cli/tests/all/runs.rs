//! Runs that leave something behind: folders, checkpoints, resuming, signals, locks, damage, losses that cannot be used.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{json, run};
use crate::run_folders::{TINY, copy_run, losses, succeed};

/// The exit code and what it says.
fn fail(folder: &Path, line: &str) -> (i32, String) {
    let output = run(folder, line);
    assert!(!output.status.success(), "{line} succeeded");
    (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn spawn(folder: &Path, line: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quadrille"));
    command.args(line.split_whitespace()).current_dir(folder).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until the run in `folder` has done so many steps.
fn wait_for(folder: &Path, steps: usize) {
    let start = Instant::now();
    while losses(folder).len() < steps {
        assert!(start.elapsed() < Duration::from_secs(60), "no step {steps} in {}", folder.display());
        sleep(Duration::from_millis(2));
    }
}

fn steps_of_checkpoints(folder: &Path) -> Vec<u64> {
    let names = fs::read_dir(folder.join("checkpoints")).into_iter().flatten();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut steps: Vec<u64> = names.filter_map(|name| name.strip_prefix("step-")?.parse().ok()).collect();
    steps.sort_unstable();
    steps
}

#[test]
fn a_killed_run_goes_on_as_if_nothing_had_happened() {
    /// Kills of one run; the long target has more.
    const KILLS: usize = if cfg!(feature = "long") { 50 } else { 6 };
    const STEPS: usize = 8 * KILLS;
    let folder = tempfile::tempdir().unwrap();
    let line = format!("{TINY} --grid x=2,data=2 --zero 1 --steps {STEPS} --checkpoint-every 1 --keep 2");
    succeed(folder.path(), &format!("{line} --out undisturbed"));
    let undisturbed = losses(&folder.path().join("undisturbed"));
    assert_eq!(undisturbed.len(), STEPS);

    let killed = folder.path().join("killed");
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for kill in 0..KILLS {
        let begun = killed.join("run.json").exists();
        let again = if begun { "train --resume killed".to_owned() } else { format!("{line} --out killed") };
        let before = losses(&killed);
        let mut child = spawn(folder.path(), &again);
        // Some time after one more step, or before it.
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        if kill % 3 != 0 {
            let start = Instant::now();
            while losses(&killed).len() <= before.len() && start.elapsed() < Duration::from_secs(20) {
                sleep(Duration::from_millis(1));
            }
        }
        sleep(Duration::from_micros(random >> 47));
        child.kill().unwrap();
        child.wait().unwrap();
        let seen = losses(&killed);
        assert_eq!(seen, undisturbed[..seen.len()], "after kill {kill}");
        if !steps_of_checkpoints(&killed).is_empty() {
            succeed(folder.path(), "checkpoint verify killed");
        }
    }
    if !killed.join("run.json").exists() {
        succeed(folder.path(), &format!("{line} --out killed"));
    } else if losses(&killed).len() < STEPS || !steps_of_checkpoints(&killed).contains(&(STEPS as u64)) {
        succeed(folder.path(), "train --resume killed");
    }
    assert_eq!(losses(&killed), undisturbed);
    assert_eq!(steps_of_checkpoints(&killed), [STEPS as u64 - 1, STEPS as u64]);
}

/// Killed between its last checkpoint and its summary: here the validation at the end takes longer than anybody waits.
#[test]
fn a_run_that_was_killed_after_its_last_step_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let line = format!("{TINY} --grid x=2 --steps 4 --checkpoint-every 2 --validation 0.5");
    succeed(folder.path(), &format!("{line} --validation-batches 2 --out undisturbed"));
    let mut child = spawn(folder.path(), &format!("{line} --validation-batches 1000000 --out killed"));
    let [undisturbed, killed] = ["undisturbed", "killed"].map(|name| folder.path().join(name));
    let start = Instant::now();
    while steps_of_checkpoints(&killed) != [2, 4] {
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", steps_of_checkpoints(&killed));
        sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let document =
        |path: &Path| -> Value { serde_json::from_slice(&fs::read(path.join("summary.json")).unwrap()).unwrap() };
    let ended = |steps: usize| {
        let summary = document(&killed);
        assert_eq!(summary["steps"].as_array().unwrap().len(), steps);
        assert_eq!(summary["losses"][steps - 1], losses(&killed)[steps - 1].1);
        assert_eq!((&summary["ledger"]["counted"], &summary["ledger"]["equal"]), (&Value::Null, &Value::Null));
        let (code, message) = fail(folder.path(), "train --resume killed");
        assert!(
            code == 2 && message.contains(&format!("has done {steps} steps of {steps}; ask for more")),
            "{message}"
        );
        succeed(folder.path(), "report killed");
    };
    assert!(!killed.join("summary.json").exists());
    succeed(folder.path(), "train --resume killed --validation-batches 2");
    ended(4);
    assert_eq!(losses(&killed), losses(&undisturbed));
    assert_eq!(document(&killed)["losses"], document(&undisturbed)["losses"]);
    let validated = |path: &Path| {
        let events = fs::read_to_string(path.join("events.jsonl")).unwrap();
        let events: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        events.into_iter().filter(|event| event["kind"] == "validation").collect::<Vec<_>>()
    };
    assert_eq!(validated(&killed), validated(&undisturbed));
    // The summary of an earlier part says nothing about the end of the next.
    let earlier = fs::read(killed.join("summary.json")).unwrap();
    succeed(folder.path(), "train --resume killed --steps 6");
    fs::write(killed.join("summary.json"), earlier).unwrap();
    succeed(folder.path(), "train --resume killed");
    ended(6);
}

/// Names of the form that temporary files of this program have, and others that may look like them.
#[test]
fn what_a_killed_run_was_about_to_rename_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join("run").join(name);
    let own = [".quadrille-a1B2c3.partial", ".quadrille-Zz0000.partial"];
    let foreign = [".quadrille-notes.partial", ".quadrille-cache", ".tmpa1B2c3", "a.partial"];
    let leave = || own.iter().chain(&foreign).for_each(|name| fs::write(path(name), "left").unwrap());
    fs::create_dir(folder.path().join("run")).unwrap();
    leave();
    for line in [format!("{TINY} --grid x=2 --steps 2 --out run"), "train --resume run --steps 3".to_owned()] {
        succeed(folder.path(), &line);
        assert!(
            own.iter().all(|name| !path(name).exists()) && foreign.iter().all(|name| path(name).exists()),
            "{line}"
        );
        assert!(!path("checkpoints/step-000000000009.partial").exists());
        leave();
        fs::create_dir(path("checkpoints/step-000000000009.partial")).unwrap();
        fs::write(path("checkpoints/step-000000000009.partial").join(own[0]), "").unwrap();
    }
}

#[test]
fn another_layout_goes_on_to_within_rounding() {
    let folder = tempfile::tempdir().unwrap();
    let line = format!("{TINY} --steps 9 --grid x=2,y=2,z=2 --global-batch 12 --out whole --checkpoint-every 4");
    succeed(folder.path(), &line);
    let whole = losses(&folder.path().join("whole"));
    for (name, layout) in
        [("six", "--grid x=2,pipe=1,data=3"), ("one", "--grid x=1"), ("pipe", "--grid pipe=2,x=2 --zero 0")]
    {
        // As it was after step 4.
        let copy = folder.path().join(name);
        copy_run(&folder.path().join("whole"), &copy, 4);
        succeed(folder.path(), &format!("train --resume {name} {layout}"));
        let resumed = losses(&copy);
        assert_eq!(resumed.len(), 9);
        assert_eq!(resumed[..4], whole[..4], "what was done stays");
        for ((_, a), (_, b)) in resumed.iter().zip(&whole) {
            assert!((a - b).abs() <= 1e-11 * b, "{a} and {b} in {name}");
        }
    }
}

#[cfg(unix)]
#[test]
fn a_signal_ends_a_run_after_its_step_with_a_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let line = format!("{TINY} --grid x=2 --steps 100000 --set final_fraction=1");
    for (name, signal, code) in [("terminated", "TERM", 143), ("interrupted", "INT", 130)] {
        let child = spawn(folder.path(), &format!("{line} --out {name}"));
        let run_folder = folder.path().join(name);
        wait_for(&run_folder, 3);
        Command::new("kill").args([format!("-{signal}"), child.id().to_string()]).status().unwrap();
        let output = child.wait_with_output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{message}");
        let last = losses(&run_folder).last().unwrap().0;
        assert!(message.contains(&format!("after step {last} of 100000; go on with --resume {name}")), "{message}");
        assert_eq!(steps_of_checkpoints(&run_folder), [last]);
        succeed(folder.path(), &format!("train --resume {name} --steps {}", last + 2));
        assert_eq!(losses(&run_folder).last().unwrap().0, last + 2);
    }
}

#[test]
fn one_run_at_a_time_writes_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = spawn(folder.path(), &format!("{TINY} --grid x=2 --steps 100000 --out run"));
    wait_for(&folder.path().join("run"), 1);
    for line in [format!("{TINY} --steps 2 --out run"), "train --resume run".to_owned()] {
        let (code, message) = fail(folder.path(), &line);
        assert_eq!(code, 2);
        assert!(message.contains(&format!("another run writes run (process {})", child.id())), "{message}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let (code, message) = fail(folder.path(), &format!("{TINY} --steps 2 --out run"));
    assert_eq!(code, 2);
    assert!(message.contains("holds a run already; go on with it by --resume run"), "{message}");
}

#[test]
fn damage_is_named_and_the_checkpoint_before_it_is_offered() {
    let folder = tempfile::tempdir().unwrap();
    succeed(folder.path(), &format!("{TINY} --grid x=2 --steps 6 --checkpoint-every 3 --out run"));
    let newest = folder.path().join("run/checkpoints/step-000000000006");
    let file: PathBuf = newest.join("rank-00001.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    fs::write(&file, &bytes).unwrap();
    let (code, message) = fail(folder.path(), "train --resume run --steps 8");
    assert_eq!(code, 1);
    assert!(message.contains("rank-00001.safetensors is damaged") && message.contains("tensor "), "{message}");
    bytes.truncate(middle);
    fs::write(&file, &bytes).unwrap();
    let (code, message) = fail(folder.path(), "train --resume run --steps 8");
    assert_eq!(code, 1);
    assert!(message.contains("step-000000000003"), "{message}");
    fs::remove_dir_all(&newest).unwrap();
    succeed(folder.path(), "train --resume run --steps 8");
}

#[test]
fn a_loss_that_is_no_number_is_not_applied_and_its_origin_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let line = "train --model gpt-tiny --set vocab=256 --set warmup_steps=0 --grid x=2,pipe=2 --steps 4 --lr 1e30";
    let (code, message) = fail(folder.path(), &format!("{line} --out stopped --checkpoint-every 1"));
    assert_eq!(code, 1);
    assert!(
        message.contains("the loss of step 2 is NaN; the first number that is not finite is in block 0, operation"),
        "{message}"
    );
    let events = fs::read_to_string(folder.path().join("stopped/events.jsonl")).unwrap();
    assert_eq!(events.matches("\"kind\":\"diverged\"").count(), 1, "{events}");
    // The parameters of step 1 are what is left: nothing was updated by step 2.
    assert_eq!(steps_of_checkpoints(&folder.path().join("stopped")), [1]);
    succeed(folder.path(), &format!("{line} --on-divergence skip --out skipped"));
    let events = fs::read_to_string(folder.path().join("skipped/events.jsonl")).unwrap();
    assert_eq!(events.matches("\"kind\":\"skipped\"").count(), 3, "{events}");
    assert!(steps_of_checkpoints(&folder.path().join("skipped")) == [4]);
}

#[test]
fn the_folder_keeps_what_the_run_prints() {
    let folder = tempfile::tempdir().unwrap();
    let run_folder = folder.path().join("run");
    let printed = json(&format!("{TINY} --grid data=2 --steps 3 --validation 0.1 --out {}", run_folder.display()));
    let kept: Value = serde_json::from_slice(&fs::read(run_folder.join("summary.json")).unwrap()).unwrap();
    assert_eq!(printed, kept);
    assert_eq!(printed["ledger"]["equal"], true, "validation is no part of a step");
    let lines = fs::read_to_string(run_folder.join("steps.jsonl")).unwrap();
    let table = fs::read_to_string(run_folder.join("steps.csv")).unwrap();
    for (step, (line, row)) in printed["steps"].as_array().unwrap().iter().zip(lines.lines().zip(table.lines().skip(1)))
    {
        assert_eq!(*step, serde_json::from_str::<Value>(line).unwrap());
        let columns = step.as_object().unwrap().values().map(ToString::to_string).collect::<Vec<_>>();
        let cells: Vec<&str> = row.split(',').collect();
        // The last ones are those of what routers have done.
        let (router, columns) = columns.split_last().unwrap();
        let (cells, of_experts) = cells.split_at(columns.len());
        assert_eq!(
            cells.iter().map(|cell| cell.parse::<f64>().ok()).collect::<Vec<_>>(),
            columns.iter().map(|cell| cell.parse::<f64>().ok()).collect::<Vec<_>>()
        );
        assert_eq!((router.as_str(), of_experts), ("null", [""; 6].as_slice()));
    }
    // A command line that cannot be used leaves no folder.
    let (code, message) = fail(folder.path(), &format!("{TINY} --grid x=5 --out refused"));
    assert!(code == 2 && !folder.path().join("refused").exists(), "{message}");
}

/// A limit on the size of files stands for a full disk: the system refuses to write more.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_ends_the_run_or_does_not_as_asked() {
    let folder = tempfile::tempdir().unwrap();
    succeed(folder.path(), &format!("{TINY} --grid x=2 --steps 2 --out run --set final_fraction=1"));
    let limited = |action: &str| {
        let program = env!("CARGO_BIN_EXE_quadrille");
        let line =
            format!("{program} train --resume run --steps 6 --checkpoint-every 1 --on-checkpoint-failure {action}");
        let script = format!("trap '' XFSZ; ulimit -f 200; exec {line}");
        Command::new("bash").args(["-c", &script]).current_dir(folder.path()).output().unwrap()
    };
    let stopped = limited("stop");
    let message = String::from_utf8_lossy(&stopped.stderr);
    assert_eq!(stopped.status.code(), Some(1), "{message}");
    assert!(message.contains("the checkpoint of step 3 could not be written: cannot "), "{message}");
    assert!(message.contains("too large") && message.contains("earlier ones are as they were"), "{message}");
    assert_eq!(steps_of_checkpoints(&folder.path().join("run")), [2]);
    let went_on = limited("continue");
    let message = String::from_utf8_lossy(&went_on.stderr);
    assert!(went_on.status.success(), "{message}");
    assert_eq!(message.matches("no checkpoint of step").count(), 4, "{message}");
    assert_eq!(losses(&folder.path().join("run")).len(), 6);
    assert_eq!(steps_of_checkpoints(&folder.path().join("run")), [2]);
    succeed(folder.path(), "checkpoint verify run");
    succeed(folder.path(), "train --resume run --steps 6");
    assert_eq!(steps_of_checkpoints(&folder.path().join("run")), [4, 5, 6], "what was asked for last still holds");
}

#[test]
fn flags_of_runs_are_held_against_each_other() {
    let folder = tempfile::tempdir().unwrap();
    succeed(folder.path(), &format!("{TINY} --grid x=2 --steps 2 --out run"));
    for (line, part) in [
        (format!("{TINY} --checkpoint-every 2"), "--checkpoint-every: checkpoints are written into a run's folder"),
        (format!("{TINY} --largest-loss 0.5"), "--largest-loss 0.5: it is a multiple of the usual loss, above 1"),
        ("train --resume run".to_owned(), "the run has done 2 steps of 2; ask for more with --steps"),
        ("train --resume nothing".to_owned(), "nothing holds no run.json"),
        ("train --resume run --steps 4 --set layers=3".to_owned(), "the command line describes another one"),
        ("train --resume run --steps 4 --seed 2".to_owned(), "was written with --seed 1, and now it is 2"),
        ("train --resume run --steps 4 --dtype f32".to_owned(), "holds f64 and the run is in f32"),
        ("train --from run --steps 2 --dtype f32".to_owned(), "holds f64 and the run is in f32"),
    ] {
        let (code, message) = fail(folder.path(), &line);
        assert!(code == 2 && message.contains(part), "{line}: {code} {message}");
    }
    // A new run from the parameters of another, which is not of the default model, and goes on with that model.
    succeed(folder.path(), "train --from run --dtype f64 --grid data=2 --steps 2 --out next");
    succeed(folder.path(), "train --resume next --steps 3");
    assert_eq!(losses(&folder.path().join("next")).len(), 3);
    let (code, message) = fail(folder.path(), "train --from run --dtype f64 --set layers=1 --steps 2");
    assert!(code == 2 && message.contains("is of another model: it also holds the tensor block.1."), "{message}");
}

#[test]
fn what_is_saved_does_not_depend_on_the_validation_after_it() {
    let folder = tempfile::tempdir().unwrap();
    // Tokens of llm.c, one of which the model does not know.
    let mut tokens: Vec<u16> = (0..400).map(|token| token % 250).collect();
    tokens[200] = 60_000;
    let mut header = vec![0_i32; 256];
    header[..3].copy_from_slice(&[20_240_520, 1, tokens.len() as i32]);
    let header = header.iter().flat_map(|word| word.to_le_bytes());
    fs::write(
        folder.path().join("bad.bin"),
        header.chain(tokens.iter().flat_map(|token| token.to_le_bytes())).collect::<Vec<u8>>(),
    )
    .unwrap();
    fs::write(folder.path().join("good.txt"), "some text to be learned ".repeat(100)).unwrap();
    let line = format!(
        "{TINY} --grid x=2 --set vocab=50257 --tokenizer gpt2 --steps 3 --data good.txt --validation-data bad.bin --out run"
    );
    let (code, message) = fail(folder.path(), &line);
    assert!(code == 1 && message.contains("60000"), "{message}");
    assert_eq!(steps_of_checkpoints(&folder.path().join("run")), [3]);
}

/// Another number of steps moves the end of the schedule: that is said, with what would keep it.
#[test]
fn a_run_that_goes_on_says_how_its_learning_rate_changes() {
    let folder = tempfile::tempdir().unwrap();
    let begin =
        "train --model gpt-tiny --set vocab=256 --grid x=1 --global-batch 2 --steps 4 --checkpoint-every 2 --out run";
    assert!(run(folder.path(), begin).status.success());
    let told = |line: &str| {
        let output = run(folder.path(), line);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let stretched = told("train --resume run --steps 6");
    for words in ["--steps 6 in place of 4", "step 5 has", "--set decay_steps=4 keeps the schedule"] {
        assert!(stretched.contains(words), "{words} in {stretched}");
    }
    assert!(!told("train --resume run --steps 8 --set decay_steps=6").contains("in place of"));
    // A warm-up that would be too long for the run that was is none for the one that goes on.
    assert!(
        told("train --resume run --steps 20 --set decay_steps=run --set warmup_steps=12")
            .contains("--steps 20 in place of 8")
    );
}
