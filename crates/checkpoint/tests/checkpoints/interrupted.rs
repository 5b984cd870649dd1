//! Writers that are killed, and disks that are full: what was there before stays whole.
//!
//! The test's own program is started again with `QUADRILLE_TEST_WRITER` set, and then writes.

#![cfg(unix)]

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use quadrille_checkpoint::{Draft, Folder};

use crate::common::{Tiling, small};

const WRITER: &str = "QUADRILLE_TEST_WRITER";

/// This program, to run one test of this file with `folder` as its place to write, from a shell that has done `setting`.
fn again(test: &str, folder: &Path, setting: &str) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("{setting} exec \"$0\" \"$@\"")).arg(std::env::current_exe().unwrap());
    command.args([&format!("interrupted::{test}"), "--exact", "--nocapture"]);
    command.env(WRITER, folder).env("RUST_BACKTRACE", "0").stdin(Stdio::null());
    command
}

/// Rank 0 owns many tiles of one number: its manifest is larger than its file.
fn tiling() -> Tiling {
    small(20, 25)
}

#[test]
fn a_full_disk() {
    if let Some(folder) = std::env::var_os(WRITER) {
        return write_and_tell(&folder);
    }
    let folder = tempfile::tempdir().unwrap();
    let first = tiling().write::<f64>(folder.path(), 1).unwrap();
    let bytes = |name: &str| fs::metadata(first.join(name)).unwrap().len();
    let file = bytes("rank-00000.safetensors");
    let manifest = bytes("manifest.json");
    assert!(file + 1024 < manifest);
    // No file may grow beyond so many blocks of 512 bytes; the signal that would tell is ignored.
    for (blocks, culprit) in [(file / 1024, "rank-00000.safetensors"), (file.div_ceil(512), "manifest.json")] {
        let output =
            again("a_full_disk", folder.path(), &format!("trap '' XFSZ; ulimit -f {blocks};")).output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(
            told.contains(&format!("cannot write {}", folder.path().display())) && told.contains(culprit),
            "{told}"
        );
        let folder = Folder::new(folder.path());
        assert_eq!(folder.newest().unwrap().unwrap().about().step, 1);
        folder.newest().unwrap().unwrap().verify().unwrap();
        assert_eq!(folder.clean().unwrap().len(), 1);
    }
    // With room for all it succeeds.
    let output = again("a_full_disk", folder.path(), "").output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("written"));
    assert_eq!(Folder::new(folder.path()).newest().unwrap().unwrap().about().step, 2);
}

fn write_and_tell(folder: &OsStr) {
    match tiling().write::<f64>(Path::new(folder), 2) {
        Ok(_) => println!("written"),
        Err(error) => println!("{}", crate::common::message(&error)),
    }
}

#[test]
fn killed_writers() {
    if let Some(folder) = std::env::var_os(WRITER) {
        let next = Folder::new(Path::new(&folder)).list().unwrap().first().map_or(1, |(step, _)| step + 1);
        for step in next.. {
            small(4, 5).write::<f64>(Path::new(&folder), step).unwrap();
        }
    }
    let root = tempfile::tempdir().unwrap();
    let folder = Folder::new(root.path());
    for round in 0..12 {
        let mut child = again("killed_writers", root.path(), "").stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(20 + 7 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        // Whatever has a checkpoint's name is whole.
        for (_, path) in folder.list().unwrap() {
            quadrille_checkpoint::Checkpoint::open(&path).unwrap().verify().unwrap();
        }
        folder.clean().unwrap();
        folder.prune(2).unwrap();
    }
    assert!(folder.newest().unwrap().unwrap().about().step > 2);
    // The place that the last one left is free.
    Draft::begin(root.path(), u64::MAX).unwrap().discard().unwrap();
}
