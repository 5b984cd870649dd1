//! A training run whose processes are watched: what they write, which rank is which process, and how they end.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::mpirun::Launcher;

/// A run has to end so soon after a fault, its last process included.
pub const LIMIT: Duration = Duration::from_secs(10);

/// Names the processes of a run, in the environment that they inherit.
const MARK: &str = "QUADRILLE_FAULT_TEST";

/// Where a launcher tells a process its rank: Open MPI, MPICH.
const RANK: [&str; 2] = ["OMPI_COMM_WORLD_RANK", "PMI_RANK"];

/// How often it is looked.
const LOOK: Duration = Duration::from_millis(20);

/// Four ranks, steps of about a second on two cores; `--log` is added.
pub const TRAINING: &str = "train --model gpt-demo --steps 100000 --threads 1 --grid x=2,pipe=2 --global-batch 64";

/// The same of a small model, for faults that need many steps.
pub const QUICK: &str = "train --model gpt-tiny --set vocab=256 --steps 100000 --threads 1 --grid x=2,data=2";

/// A run under way. Dropped, nothing of it is left.
pub struct Run {
    child: Child,
    mark: String,
    folder: TempDir,
    log: PathBuf,
}

/// How a run ended.
pub struct End {
    /// From the fault to the end of the last process.
    pub after: Duration,
    pub code: Option<i32>,
    pub errors: String,
}

impl Run {
    /// Starts four ranks under `mpirun` that train, with a log in a folder of their own.
    pub fn train(line: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log.jsonl");
        Self::train_with_log(line, folder, log)
    }

    /// The same with a log at any place.
    pub fn train_with_log(line: &str, folder: TempDir, log: PathBuf) -> Self {
        let launcher = Launcher::here().expect("the cases run only where there is one");
        let mut command = launcher.command(4, 300, line);
        command.arg("--log").arg(&log);
        Self::start(command, folder, log)
    }

    /// Starts any command whose ranks log to `log`.
    pub fn start(mut command: Command, folder: TempDir, log: PathBuf) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let mark = format!("{}.{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let file = |name: &str| File::create(folder.path().join(name)).unwrap();
        command.env(MARK, &mark).current_dir(folder.path());
        command.stdin(Stdio::null()).stdout(file("output")).stderr(file("errors"));
        let child = command.spawn().expect("the launcher is there");
        Self { child, mark, folder, log }
    }

    /// Whole lines of the log so far.
    pub fn steps(&self) -> usize {
        fs::read(&self.log).map_or(0, |bytes| bytes.iter().filter(|byte| **byte == b'\n').count())
    }

    /// Whether the run has told this.
    pub fn tells(&self, words: &str) -> bool {
        self.errors().contains(words)
    }

    /// Waits until `condition` holds.
    pub fn until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !condition(self) {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "the run ended before {what}:\n{}", self.errors());
            assert!(start.elapsed() < Duration::from_secs(120), "no {what}:\n{}", self.errors());
            sleep(LOOK);
        }
    }

    /// The processes of ranks.
    pub fn ranks(&self) -> BTreeMap<usize, u32> {
        let rank = |environment: &[String]| {
            let value = |name: &str| environment.iter().find_map(|each| each.strip_prefix(name)?.strip_prefix('='));
            RANK.into_iter().find_map(value)?.parse().ok()
        };
        self.processes().into_iter().filter_map(|(process, environment)| Some((rank(&environment)?, process))).collect()
    }

    /// Sends a rank a signal.
    pub fn signal(&self, rank: usize, signal: &str) {
        let process = self.ranks()[&rank];
        let status = Command::new("kill").args([format!("-{signal}"), process.to_string()]).status();
        assert!(status.expect("kill is there").success(), "rank {rank} is process {process}");
    }

    /// Waits for the end of the last process, and checks what holds after any fault: in time, with a failure, and with whole
    /// lines in the log.
    pub fn ends(mut self, case: &str, fault: Instant) -> End {
        let mut code = None;
        while code.is_none() || !self.processes().is_empty() {
            code = code.or_else(|| self.child.try_wait().unwrap());
            let processes: Vec<u32> = self.processes().into_keys().collect();
            let errors = self.errors();
            assert!(fault.elapsed() < 2 * LIMIT, "{case}: processes {processes:?} are left, {code:?}:\n{errors}");
            sleep(LOOK);
        }
        let end = End { after: fault.elapsed(), code: code.and_then(|code| code.code()), errors: self.errors() };
        println!("  {case}: ended after {:.1} s with {:?}: {}", end.after.as_secs_f64(), end.code, end.told());
        assert!(end.after < LIMIT, "{case}: ended after {:?}:\n{}", end.after, end.errors);
        assert_ne!(end.code, Some(0), "{case}:\n{}", end.errors);
        assert!(!end.errors.contains("panicked"), "{case}:\n{}", end.errors);
        self.check_log();
        end
    }

    /// The log holds a line for every step, each whole.
    fn check_log(&self) {
        if !self.log.is_file() {
            return;
        }
        let text = fs::read_to_string(&self.log).unwrap();
        assert!(text.is_empty() || text.ends_with('\n'), "half a line: {:?}", text.lines().last());
        for (line, step) in text.lines().zip(1u64..) {
            let record: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            assert_eq!(record["step"], step);
        }
    }

    fn errors(&self) -> String {
        fs::read_to_string(self.folder.path().join("errors")).unwrap()
    }

    /// What is under way, the launcher included, by number with its environment. Zombies have none.
    fn processes(&self) -> BTreeMap<u32, Vec<String>> {
        let mark = format!("{MARK}={}", self.mark);
        let numbers =
            fs::read_dir("/proc").expect("Linux").filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let environment = |process: u32| {
            let bytes = fs::read(format!("/proc/{process}/environ")).ok()?;
            let each: Vec<String> =
                bytes.split(|byte| *byte == 0).map(|each| String::from_utf8_lossy(each).into()).collect();
            each.contains(&mark).then_some((process, each))
        };
        numbers.filter_map(environment).collect()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        for process in self.processes().into_keys() {
            let _ = Command::new("kill").args(["-KILL", &process.to_string()]).status();
        }
        let _ = self.child.wait();
    }
}

impl End {
    /// The line that tells the fault: ours, else the launcher's.
    pub fn told(&self) -> &str {
        let mut lines = self.errors.lines();
        let told = lines.clone().find(|line| line.contains("error: "));
        told.or_else(|| lines.find(|line| line.contains("rank "))).unwrap_or("nothing is told")
    }

    /// The run told this.
    pub fn says(&self, words: &[&str]) {
        for word in words {
            assert!(self.errors.contains(word), "'{word}' is not in:\n{}", self.errors);
        }
    }
}
