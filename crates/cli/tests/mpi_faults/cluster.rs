//! A node whose links are cut while ranks on two nodes train.

use std::path::Path;
use std::process::{Command, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::mpirun::Case;
use crate::run::{Run, TRAINING};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/virtual-cluster");

pub const CASES: &[Case] =
    &[("node_cut_off", || cut("ring")), ("node_cut_off_in_the_librarys_own_collectives", || cut("native"))];

/// A virtual cluster, taken down in the end.
struct Cluster(String);

impl Cluster {
    /// Two nodes; `None` where the machine does not allow them.
    fn up() -> Option<Self> {
        let cluster = Self(format!("faults{}", std::process::id()));
        let check = cluster.does(&["check"]);
        if !check.status.success() {
            println!("SKIPPED: {}", String::from_utf8_lossy(&check.stderr).trim());
            return None;
        }
        let up = cluster.does(&["up", "2", "1gbit"]);
        assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
        Some(cluster)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(SCRIPT);
        command.args(["--name", &self.0]).args(words);
        command
    }

    fn does(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("the script is there")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.does(&["down"]);
    }
}

/// Two ranks on each of two nodes; the second node is lost in the middle of a step.
fn cut(algorithm: &str) {
    assert!(Path::new(SCRIPT).is_file(), "{SCRIPT}");
    let Some(cluster) = Cluster::up() else { return };
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log.jsonl");
    let mut command = cluster.command(&["run", "2", env!("CARGO_BIN_EXE_quadrille")]);
    command.args(TRAINING.split_whitespace()).args(["--collectives", algorithm, "--log"]).arg(&log);
    let mut run = Run::start(command, folder, log);
    run.until("a step", |run| run.steps() > 0);
    sleep(Duration::from_millis(300));
    let fault = Instant::now();
    assert!(cluster.does(&["cut", "1"]).status.success());
    let end = run.ends(&format!("node cut off, {algorithm}"), fault);
    end.says(&["error: rank ", &format!(" on {}-1: no sign of life for 5.", cluster.0)]);
}
