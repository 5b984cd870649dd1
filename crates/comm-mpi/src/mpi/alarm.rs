//! The end after a failure: who reports it, and that every process ends in time, whatever its threads do.
//!
//! Of the processes that found a failure by themselves the one of least rank reports it; the others were told. The reporter
//! ends first: launchers end the rest when one process fails, and would cut its report off otherwise.

use std::collections::BTreeSet;
use std::ffi::c_int;
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use quadrille_comm::Aborted;
use quadrille_panics::lock;

use crate::mpi::port::Port;

/// So long packets that tell of a failure have to leave, and to come from others who found one.
const GRACE: Duration = Duration::from_millis(300);

/// So long those who do not report wait for the launcher to end them.
const OTHERS: Duration = Duration::from_millis(2000);

/// So long after a failure a process that could not report it by itself is ended: first the reporters.
const LIMIT: Duration = Duration::from_millis(3000);
const LIMIT_OF_OTHERS: Duration = Duration::from_millis(4500);

/// So long nobody has looked at the library, while there was time: it does not return.
const HANGS: u32 = 10;

unsafe extern "C" {
    /// Ends the process without running what is registered for its end, which may wait for other threads.
    fn _exit(code: c_int) -> !;
}

pub(crate) struct Alarm {
    rank: usize,
    size: usize,
    first: OnceLock<(Aborted, Instant)>,
    /// Ranks that found a failure by themselves.
    finders: Mutex<BTreeSet<usize>>,
    /// Whether the failure has been reported here, or the watchdog is to end.
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    reported: bool,
    end: bool,
}

impl Alarm {
    pub(super) fn new(rank: usize, size: usize) -> Self {
        Self {
            rank,
            size,
            first: OnceLock::new(),
            finders: Mutex::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// The first failure that this process knows of.
    pub(crate) fn failure(&self) -> Option<Aborted> {
        self.first.get().map(|(aborted, _)| aborted.clone())
    }

    /// Notes a failure that a rank found; whether this process has known of none before.
    pub(super) fn sound(&self, finder: usize, aborted: &Aborted) -> bool {
        let mut first = false;
        self.first.get_or_init(|| {
            first = true;
            (aborted.clone(), Instant::now())
        });
        if first || finder != self.rank {
            lock(&self.finders).insert(finder);
        }
        let _state = lock(&self.state);
        self.changed.notify_all();
        first
    }

    /// Whether this process is the one that reports the failure; waits for what others may have found at the same time.
    pub(crate) fn reports(&self) -> bool {
        let Some((_, at)) = self.first.get() else { return self.size == 1 };
        sleep(GRACE.saturating_sub(at.elapsed()));
        lock(&self.state).reported = true;
        lock(&self.finders).first() == Some(&self.rank)
    }

    /// Ends the process, after the reporter's.
    pub(crate) fn exit(&self, code: i32) -> ! {
        if let Some((_, at)) = self.first.get() {
            let reports = lock(&self.finders).first() == Some(&self.rank);
            sleep(if reports { GRACE } else { OTHERS }.saturating_sub(at.elapsed()));
        }
        std::process::exit(code)
    }

    /// Ends the process at once: nothing of it works any more.
    fn give_up(&self) -> ! {
        // SAFETY: takes any code, and returns to nobody.
        unsafe { _exit(1) }
    }

    /// The watchdog's work, on a thread of its own: ends the process some time after a failure.
    pub(super) fn watch(&self, port: &Port) {
        let mut looks = port.looks();
        let mut idle = 0;
        let mut state = lock(&self.state);
        while !state.end {
            let wait = Duration::from_secs(1);
            state = self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
            if let Some((aborted, at)) = self.first.get() {
                drop(state);
                self.end_in_time(aborted, *at);
            }
            let now = port.looks();
            idle = if now == looks { idle + 1 } else { 0 };
            looks = now;
            if idle >= HANGS && !state.end {
                let rank = self.rank;
                let host = &port.hosts[self.rank];
                eprintln!("error: rank {rank} on {host}: the MPI library has not returned for {idle} s");
                self.give_up();
            }
        }
    }

    fn end_in_time(&self, aborted: &Aborted, at: Instant) -> ! {
        sleep(LIMIT.saturating_sub(at.elapsed()));
        let reports = lock(&self.finders).first() == Some(&self.rank);
        if reports && !lock(&self.state).reported {
            eprintln!("error: {}", aborted.0);
        }
        if !reports {
            sleep(LIMIT_OF_OTHERS.saturating_sub(at.elapsed()));
        }
        self.give_up()
    }

    /// Lets the watchdog go: the job is done.
    pub(super) fn end(&self) {
        lock(&self.state).end = true;
        self.changed.notify_all();
    }
}
