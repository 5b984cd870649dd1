//! `quadrille` under the machine's `mpirun`, and cases that run one after the other.

use std::panic::catch_unwind;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// What one case is called and does: it panics where something is not as it should be.
pub type Case = (&'static str, fn());

/// Runs the cases whose names contain the program's first argument, all without one. Where ranks cannot be started it says
/// why, and passes.
pub fn run_cases(cases: &[Case]) -> ExitCode {
    if let Err(reason) = Launcher::here() {
        println!("SKIPPED: {reason}; install Open MPI or MPICH to test ranks that are processes");
        return ExitCode::SUCCESS;
    }
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let chosen: Vec<&Case> = cases.iter().filter(|(name, _)| name.contains(&filter)).collect();
    println!("running {} cases under mpirun", chosen.len());
    let mut failed = Vec::new();
    for (name, body) in chosen {
        let start = Instant::now();
        let passed = catch_unwind(body).is_ok();
        println!("case {name} ... {} ({:.1} s)", if passed { "ok" } else { "FAILED" }, start.elapsed().as_secs_f64());
        if !passed {
            failed.push(*name);
        }
    }
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("failed: {}", failed.join(", "));
    ExitCode::FAILURE
}

/// Whose `mpirun` it is: their options differ.
#[derive(Debug, Clone, Copy)]
pub enum Launcher {
    OpenMpi,
    Mpich,
}

impl Launcher {
    /// The machine's, or why there is none.
    pub fn here() -> Result<Self, String> {
        let output = Command::new("mpirun").arg("--version").stdin(Stdio::null()).output();
        let output = output.map_err(|error| format!("there is no mpirun ({error})"))?;
        let version = String::from_utf8_lossy(&output.stdout);
        if version.contains("Open MPI") {
            return Ok(Self::OpenMpi);
        }
        if version.contains("HYDRA") || version.contains("MPICH") {
            return Ok(Self::Mpich);
        }
        Err(format!("mpirun is neither Open MPI's nor MPICH's: {}", version.lines().next().unwrap_or_default()))
    }

    /// `mpirun` with so many ranks of `quadrille`, which may share cores, and the words of `line` as their arguments. Ended
    /// after `limit` seconds.
    pub fn command(self, ranks: usize, limit: u32, line: &str) -> Command {
        let mut command = Command::new("mpirun");
        match self {
            Self::OpenMpi => {
                command.args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]);
                command.args(["--mca", "mpi_yield_when_idle", "1", "--timeout", &limit.to_string()]);
            }
            Self::Mpich => {
                command.env("MPIEXEC_TIMEOUT", limit.to_string());
            }
        }
        command.args(["-n", &ranks.to_string(), env!("CARGO_BIN_EXE_quadrille")]);
        command.args(line.split_whitespace()).stdin(Stdio::null());
        command
    }
}
