//! The command line under `mpirun`: `verify`, on processors and on emulated devices, and ledgers, the bits of losses, errors of usage. A name as argument chooses the
//! cases that contain it: `cargo test --release -p quadrille-cli --features mpi --test mpi -- losses`.

mod devices;
mod layouts;
mod losses;
#[path = "../common/mpirun.rs"]
mod mpirun;
mod runs;
mod usage;

use std::path::Path;
use std::process::ExitCode;

use mpirun::{Launcher, run_cases};

/// What the processes of a run have done.
struct Outcome {
    line: String,
    code: Option<i32>,
    output: String,
    errors: String,
}

impl Outcome {
    /// The run succeeded; what it printed on standard output.
    fn succeeded(&self) -> &str {
        assert_eq!(self.code, Some(0), "{} fails:\n{}", self.line, self.errors);
        &self.output
    }
}

/// Runs so many ranks of `quadrille` with the words of `line` in `folder`.
fn under_mpirun(folder: &Path, ranks: usize, line: &str) -> Outcome {
    under_mpirun_with(folder, ranks, &[], line)
}

/// The same with variables of the environment.
fn under_mpirun_with(folder: &Path, ranks: usize, variables: &[(&str, &str)], line: &str) -> Outcome {
    let launcher = Launcher::here().expect("the cases run only where there is one");
    let output = launcher
        .command(ranks, 120, line)
        .current_dir(folder)
        .envs(variables.to_vec())
        .output()
        .expect("mpirun is there");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Outcome {
        line: line.to_owned(),
        code: output.status.code(),
        output: text(&output.stdout),
        errors: text(&output.stderr),
    }
}

fn main() -> ExitCode {
    run_cases(&[devices::CASES, layouts::CASES, losses::CASES, runs::CASES, usage::CASES].concat())
}
