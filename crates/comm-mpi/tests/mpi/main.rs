//! Ranks that are processes: what they compute, and how every fault ends them. This program starts itself under `mpirun`,
//! as the ranks of one case after the other; a name as argument chooses the cases that contain it.

mod chunks;
mod faults;
mod work;

use std::env;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Where a rank finds the name of its case.
const CASE: &str = "QUADRILLE_MPI_CASE";

/// A case: how many ranks, what they do, and what is expected of them.
struct Case {
    name: &'static str,
    ranks: usize,
    body: fn() -> ExitCode,
    check: fn(&Outcome),
}

/// What the processes of a case have done.
struct Outcome {
    success: bool,
    output: String,
    /// What the ranks printed from the moment at which the fault was caused.
    elapsed: Duration,
}

impl Outcome {
    fn says(&self, text: &str) {
        assert!(self.output.contains(text), "expected {text:?} in the output:\n{}", self.output);
    }

    /// Exactly one rank reports, and this: not in a later text of another rank either.
    fn fails_saying(&self, texts: &[&str]) {
        assert!(!self.success, "the processes fail:\n{}", self.output);
        assert_eq!(self.output.matches("error: ").count(), 1, "one rank reports:\n{}", self.output);
        texts.iter().for_each(|text| self.says(text));
    }

    fn within(&self, seconds: u64) {
        let most = Duration::from_secs(seconds);
        assert!(self.elapsed < most, "ended after {:?}, not within {most:?}:\n{}", self.elapsed, self.output);
    }
}

fn run(case: &Case) -> Outcome {
    let start = Instant::now();
    let mut command = Command::new("mpirun");
    command.args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]);
    command.args(["--timeout", "60", "-x", CASE, "-n", &case.ranks.to_string()]);
    command.arg(env::current_exe().expect("a program knows its path")).env(CASE, case.name).stdin(Stdio::null());
    let output = command.output().expect("mpirun is there");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    Outcome { success: output.status.success(), output: text.into_owned(), elapsed: start.elapsed() }
}

fn main() -> ExitCode {
    let cases: Vec<Case> = [work::cases(), chunks::cases(), faults::cases()].into_iter().flatten().collect();
    if let Ok(name) = env::var(CASE) {
        let case = cases.iter().find(|case| case.name == name).expect("a case has this name");
        return (case.body)();
    }
    let filter = env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    if Command::new("mpirun").arg("--version").output().is_err() {
        println!("SKIPPED: there is no mpirun; install an MPI library to test ranks that are processes");
        return ExitCode::SUCCESS;
    }
    let chosen: Vec<&Case> = cases.iter().filter(|case| case.name.contains(&filter)).collect();
    println!("running {} cases under mpirun", chosen.len());
    let mut failed = Vec::new();
    for case in chosen {
        let outcome = run(case);
        let passed = std::panic::catch_unwind(|| (case.check)(&outcome)).is_ok();
        println!(
            "case {} ... {} ({:.1} s)",
            case.name,
            if passed { "ok" } else { "FAILED" },
            outcome.elapsed.as_secs_f64()
        );
        if !passed {
            failed.push(case.name);
        }
    }
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("failed: {}", failed.join(", "));
    ExitCode::FAILURE
}
