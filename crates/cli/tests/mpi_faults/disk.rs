//! Logs that cannot be written, and one that is never read.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use tempfile::TempDir;

use crate::mpirun::Case;
use crate::run::{End, QUICK, Run};

unsafe extern "C" {
    fn fcntl(file: i32, command: i32, ...) -> i32;
}

/// `fcntl`'s command that sets how much a pipe holds, on Linux.
const SET_PIPE_SIZE: i32 = 1031;

/// What the small file system and the small pipe hold: some twenty lines.
const SMALL: i32 = 4096;

pub const CASES: &[Case] =
    &[("full_device", full_device), ("full_disk", full_disk), ("log_that_blocks", log_that_blocks)];

/// Every write to this device says that the disk is full.
fn full_device() {
    let folder = tempfile::tempdir().unwrap();
    let fault = Instant::now();
    let run = Run::train_with_log(QUICK, folder, "/dev/full".into());
    told(&run.ends("log on a full device", fault), Path::new("/dev/full"));
}

/// A file system of one page is full in the middle of a line.
fn full_disk() {
    let Some(disk) = SmallDisk::mounted() else { return };
    let log = disk.0.path().join("log.jsonl");
    let mut run = Run::train_with_log(QUICK, tempfile::tempdir().unwrap(), log.clone());
    run.until("a full disk", |run| run.steps() > 15);
    let fault = Instant::now();
    told(&run.ends("log on a full disk", fault), &log);
}

fn told(end: &End, log: &Path) {
    assert_eq!(end.code, Some(1), "{}", end.errors);
    end.says(&[
        "error: rank 0 failed at ",
        &format!("cannot write the log {}: No space left on device", log.display()),
    ]);
    assert_eq!(end.errors.matches("error: ").count(), 1, "one rank tells:\n{}", end.errors);
}

/// The first rank hangs in a write, as where a log lies on a file server that does not answer; it still gives signs of life.
fn log_that_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log.jsonl");
    assert!(Command::new("mkfifo").arg(&log).status().expect("mkfifo is there").success());
    // For reading and writing: to open it waits for nobody.
    let pipe = OpenOptions::new().read(true).write(true).open(&log).unwrap();
    // SAFETY: changes how much an open pipe holds; it is the third argument, an int.
    let holds = unsafe { fcntl(pipe.as_raw_fd(), SET_PIPE_SIZE, SMALL) };
    assert_eq!(holds, SMALL, "the pipe holds few lines");
    let mut run = Run::train_with_log(&format!("{QUICK} --timeout 3"), folder, log);
    run.until("a step", |run| run.tells("step     1"));
    let fault = Instant::now();
    let end = run.ends("log that blocks", fault);
    end.says(&["error: rank ", " has waited 3.", "late: rank 0 at "]);
    drop::<File>(pipe);
}

/// A file system in memory, of one page, for the root user.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mounted() -> Option<Self> {
        let at = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        let output = mount.args(["-t", "tmpfs", "-o", &format!("size={SMALL}"), "tmpfs"]).arg(at.path()).output();
        match output {
            Ok(output) if output.status.success() => Some(Self(at)),
            Ok(output) => {
                println!("SKIPPED: {}; run this as root", String::from_utf8_lossy(&output.stderr).trim());
                None
            }
            Err(error) => {
                println!("SKIPPED: there is no mount ({error})");
                None
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}
