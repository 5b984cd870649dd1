//! Runs of processes write one checkpoint together, which any ranks read.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::mpirun::Case;
use crate::under_mpirun;

pub const CASES: &[Case] = &[("runs_go_on_with_processes_and_threads", || {
    let folder = tempfile::tempdir().unwrap();
    let line = "train --model gpt-tiny --set vocab=256 --threads 1 --dtype f64 --global-batch 8 --collectives ring";
    let grid = "--grid x=2,data=2 --zero 1";
    under_mpirun(folder.path(), 4, &format!("{line} {grid} --steps 8 --out whole --checkpoint-every 4")).succeeded();
    let whole = losses(&folder.path().join("whole"));
    assert_eq!(whole.len(), 8);
    let newest = folder.path().join("whole/checkpoints/step-000000000008");
    fs::remove_dir_all(&newest).unwrap();
    // The same layout on threads: the same bits.
    thread_ranks(folder.path(), "train --resume whole");
    assert_eq!(losses(&folder.path().join("whole")), whole);
    // Another number of processes.
    fs::remove_dir_all(&newest).unwrap();
    under_mpirun(folder.path(), 2, "train --resume whole --grid pipe=2 --zero 0").succeeded();
    for (a, b) in losses(&folder.path().join("whole")).iter().zip(&whole) {
        assert!((a - b).abs() <= 1e-11 * b, "{a} and {b}");
    }
    thread_ranks(folder.path(), "checkpoint verify whole");
})];

fn thread_ranks(folder: &Path, line: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quadrille"));
    let output = command.args(line.split_whitespace()).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

fn losses(folder: &Path) -> Vec<f64> {
    let text = fs::read_to_string(folder.join("steps.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["loss"].as_f64().unwrap()).collect()
}
