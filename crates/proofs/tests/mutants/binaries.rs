//! The test binaries of the copy.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime};

use quadrille_proofs::{MUTANT_VARIABLE, MutantList};
use serde_json::Value;

/// A binary that `cargo test` would run.
pub struct TestBinary {
    /// The folder of its crate.
    pub package: String,
    /// The name of its target: of a test, or of the crate for unit tests.
    pub target: String,
    path: PathBuf,
    folder: PathBuf,
}

/// How a binary ended.
pub enum Outcome {
    Passed,
    /// The first test that failed, or what else happened.
    Failed(String),
}

/// Crates whose tests look at others.
const OTHERS: [&str; 3] = ["cost", "proofs", "quadrille"];

/// The test of pages, which mutants do not change, and which name files that the copy lacks.
const PAGES: &str = "book";

/// Builds the test binaries of the crates that have mutants, and of those that look at them, of the workspace at `copy`.
pub fn build(list: &MutantList, copy: &Path, target: &Path) -> Result<Vec<TestBinary>, String> {
    let folders: BTreeSet<&str> = list.mutants.iter().map(|mutant| mutant.package.as_str()).chain(OTHERS).collect();
    let packages = folders.into_iter().map(|folder| match folder {
        "quadrille" => "--package=quadrille".to_owned(),
        _ => format!("--package=quadrille-{folder}"),
    });
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["test", "--release", "--no-run", "--message-format=json"])
        .args(packages)
        .current_dir(copy)
        .env("CARGO_TARGET_DIR", target)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo: {error}"))?;
    let lines = output.stdout.split(|byte| *byte == b'\n');
    let messages: Vec<Value> = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
    if !output.status.success() {
        let errors = messages.iter().filter(|message| message["message"]["level"] == "error");
        let texts: String = errors.filter_map(|message| message["message"]["rendered"].as_str()).collect();
        return Err(format!("the copy with all mutants cannot be built\n{texts}"));
    }
    Ok(messages.iter().filter_map(of_message).collect())
}

/// The test binary that a message of cargo tells of, if it does.
fn of_message(message: &Value) -> Option<TestBinary> {
    let path = PathBuf::from(message["executable"].as_str()?);
    if message["profile"]["test"] != Value::Bool(true) {
        return None;
    }
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    let package = folder.file_name()?.to_string_lossy().into_owned();
    let target = message["target"]["name"].as_str()?.to_owned();
    if target == PAGES {
        return None;
    }
    Some(TestBinary { package, target, path, folder })
}

impl TestBinary {
    pub fn name(&self) -> String {
        format!("{}/{}", self.package, self.target)
    }

    /// When it was built.
    pub fn built(&self) -> Option<SystemTime> {
        std::fs::metadata(&self.path).and_then(|file| file.modified()).ok()
    }

    /// Runs it under the mutant of this number, until the first failure or for as long as `limit`. Random cases are the same
    /// in every run, and are not made smaller.
    pub fn run(&self, mutant: Option<usize>, limit: Duration) -> Outcome {
        let mut command = Command::new(&self.path);
        command
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .envs([("INSTA_UPDATE", "no"), ("QUADRILLE_SEED", "1")])
            .envs([("PROPTEST_RNG_SEED", "1"), ("PROPTEST_MAX_SHRINK_ITERS", "0")])
            .envs(mutant.map(|number| (MUTANT_VARIABLE, number.to_string())))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0);
        match command.spawn() {
            Ok(child) => watch(child, limit),
            Err(error) => Outcome::Failed(format!("(cannot be started: {error})")),
        }
    }
}

/// Follows what the binary prints; ends it, and what it has started, when a test has failed or the time is up.
fn watch(mut child: Child, limit: Duration) -> Outcome {
    let deadline = Instant::now() + limit;
    let (sender, lines) = mpsc::channel();
    let stdout = child.stdout.take().expect("stdout is piped");
    std::thread::spawn(move || {
        let lines = BufReader::new(stdout).split(b'\n').map_while(Result::ok);
        lines.map(|line| String::from_utf8_lossy(&line).into_owned()).try_for_each(|line| sender.send(line))
    });
    let failed = loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                if let Some(test) = failed_test(&line) {
                    break Some(test.to_owned());
                }
            }
            Err(RecvTimeoutError::Timeout) => break Some("(hangs)".to_owned()),
            Err(RecvTimeoutError::Disconnected) => break None,
        }
    };
    if failed.is_some() {
        end_group(&child);
    }
    match (failed, child.wait()) {
        (Some(failed), _) => Outcome::Failed(failed),
        (None, Ok(status)) if status.success() => Outcome::Passed,
        (None, Ok(status)) => Outcome::Failed(format!("({status})")),
        (None, Err(error)) => Outcome::Failed(format!("({error})")),
    }
}

/// The test that a line of the test harness says has failed.
fn failed_test(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... FAILED")
}

/// Kills the binary with the processes that it has started: all are in its group.
fn end_group(child: &Child) {
    let group = format!("-{}", child.id());
    // A group that has ended by itself meanwhile is no failure.
    let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
}
