//! Faults of training runs under `mpirun`: processes killed and stopped, a full disk, a log that blocks, a node cut off. Each
//! run has to end within ten seconds of the fault, by all its processes, with a message that names the rank or the node, a
//! code that is not 0, and only whole lines in its log. Takes about three minutes:
//! `cargo test --release -p quadrille-cli --features mpi,long --test mpi_faults`. A name as argument chooses the cases that contain
//! it; `QUADRILLE_SEED` repeats the random moments of a run.

mod cluster;
mod disk;
#[path = "../common/mpirun.rs"]
mod mpirun;
mod processes;
mod run;

use std::process::ExitCode;

fn main() -> ExitCode {
    mpirun::run_cases(&[processes::CASES, disk::CASES, cluster::CASES].concat())
}
