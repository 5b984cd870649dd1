//! A process's port to the others: the library, and all that must go on at any time, also while the rank computes.
//!
//! Whoever holds the [`Desk`] is inside the library, and does what is due while there ([`Port::tend`]): a thread that waits
//! for communication looks itself, without another thread in between. The progress thread looks when nobody else does.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use quadrille_comm::processors;
use quadrille_comm::transport::Job;
use quadrille_panics::lock;
use quadrille_spec::Nodes;

use crate::mpi::alarm::Alarm;
use crate::mpi::control::Control;
use crate::mpi::inquiry::Inquiries;
use crate::mpi::library::{Communicator, Library, MpiError};
use crate::mpi::messages::Messages;
use crate::mpi::pace::{Pace, pause_after};
use crate::mpi::packet::{Names, Packet};

/// While somebody is inside the library for data, how often it sees to the rest.
const TEND: Duration = Duration::from_micros(200);

/// The progress thread's longest pause while messages are under way: they go on only when somebody looks.
const UNDER_WAY: Duration = Duration::from_micros(200);

/// The progress thread's pauses while nothing but control packets can come.
const IDLE: Duration = Duration::from_millis(4);

pub(crate) struct Port {
    pub(crate) rank: usize,
    pub(crate) hosts: Vec<String>,
    /// Whether more ranks than there are cores share this machine.
    pub(super) crowded: bool,
    pub(crate) nodes: Nodes,
    pub(crate) alarm: Alarm,
    pub(super) inquiries: Inquiries,
    pub(super) names: Names,
    desk: Mutex<Desk>,
    outbox: Mutex<Vec<(usize, Packet)>>,
    job: Mutex<Option<Arc<Job>>>,
    jobs: AtomicU64,
    /// Set when the progress thread is to look at once, or to end.
    bell: Mutex<Bell>,
    rung: Condvar,
    /// Counts the looks at the library, for the watchdog.
    looks: AtomicU64,
    finished: AtomicBool,
}

#[derive(Default)]
struct Bell {
    rung: bool,
    end: bool,
}

/// What is touched only by the thread that is inside the library.
pub(super) struct Desk {
    pub(super) library: Library,
    pub(super) control: Control,
    pub(super) messages: Messages,
    /// Blocks for segments on their way, to be used again.
    pub(super) blocks: Vec<Vec<u64>>,
    /// Communicators of groups for the library's own collectives, by members.
    pub(super) groups: BTreeMap<Arc<[usize]>, Communicator>,
    tended: Instant,
}

impl Port {
    /// Over an initialised library. Collective.
    pub(super) fn open(mut library: Library) -> Result<Self, MpiError> {
        let rank = library.rank;
        let size = library.size;
        let nodes = Nodes::new(library.nodes()?);
        let hosts = library.hosts()?;
        let here = (0..size).filter(|other| nodes.node(*other) == nodes.node(rank)).count();
        let crowded = here > processors().unwrap_or(usize::MAX);
        let control = Control::open(&mut library)?;
        let desk = Desk {
            library,
            control,
            messages: Messages::default(),
            blocks: Vec::new(),
            groups: BTreeMap::new(),
            tended: Instant::now(),
        };
        Ok(Self {
            rank,
            hosts,
            crowded,
            nodes,
            alarm: Alarm::new(rank, size),
            inquiries: Inquiries::default(),
            names: Names::default(),
            desk: Mutex::new(desk),
            outbox: Mutex::default(),
            job: Mutex::default(),
            jobs: AtomicU64::new(0),
            bell: Mutex::default(),
            rung: Condvar::new(),
            looks: AtomicU64::new(0),
            finished: AtomicBool::new(false),
        })
    }

    /// Number of ranks.
    pub(crate) fn size(&self) -> usize {
        self.hosts.len()
    }

    /// The number of a new job, from 1: the same in all processes.
    pub(super) fn next_job(&self) -> u64 {
        self.jobs.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The job that runs now.
    pub(super) fn job(&self) -> Option<Arc<Job>> {
        lock(&self.job).clone()
    }

    pub(super) fn set_job(&self, job: Option<Arc<Job>>) {
        *lock(&self.job) = job;
    }

    /// Whether the library has been given up.
    pub(super) fn is_finished(&self) -> bool {
        self.finished.load(Ordering::SeqCst)
    }

    /// Enters the library; sees to what is due.
    pub(super) fn enter(&self) -> MutexGuard<'_, Desk> {
        let mut desk = lock(&self.desk);
        if desk.tended.elapsed() > TEND {
            self.tend(&mut desk);
        }
        desk
    }

    /// Looks until `done`.
    pub(crate) fn drive(&self, done: &dyn Fn() -> bool) {
        let pace = Pace::start(self.crowded);
        while !done() {
            self.tend(&mut lock(&self.desk));
            pace.pause();
        }
    }

    /// Tells a rank; the packet leaves with the next look.
    pub(super) fn tell(&self, to: usize, packet: Packet) {
        lock(&self.outbox).push((to, packet));
        self.ring();
    }

    /// Tells all others.
    pub(super) fn tell_all(&self, packet: &Packet) {
        let others = (0..self.size()).filter(|rank| *rank != self.rank);
        lock(&self.outbox).extend(others.map(|rank| (rank, packet.clone())));
        self.ring();
    }

    /// Lets the progress thread look at once.
    pub(super) fn ring(&self) {
        lock(&self.bell).rung = true;
        self.rung.notify_one();
    }

    pub(super) fn looks(&self) -> u64 {
        self.looks.load(Ordering::Relaxed)
    }

    /// Everything that is not the data of the collective that somebody waits in: packets, signs of life, messages.
    pub(super) fn tend(&self, desk: &mut Desk) {
        if self.is_finished() {
            return;
        }
        desk.tended = Instant::now();
        self.looks.fetch_add(1, Ordering::Relaxed);
        desk.control.serve(self, &mut desk.library, &desk.messages);
        let outbox = std::mem::take(&mut *lock(&self.outbox));
        desk.control.send(&mut desk.library, outbox);
        desk.messages.progress(self, &mut desk.library);
    }

    /// The progress thread's work: looks until the library is given up.
    pub(super) fn progress(&self) {
        let mut idle_since = Instant::now();
        loop {
            let mut outstanding = false;
            let desk = match self.desk.try_lock() {
                Ok(desk) => Some(desk),
                Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => None, // somebody else looks
            };
            if let Some(mut desk) = desk {
                let messages = desk.messages.completed();
                self.tend(&mut desk);
                outstanding = desk.messages.outstanding();
                if desk.messages.completed() != messages {
                    idle_since = Instant::now();
                }
            }
            let pause = if outstanding { pause_after(idle_since.elapsed()).min(UNDER_WAY) } else { IDLE };
            let mut bell = lock(&self.bell);
            if !bell.rung && !bell.end {
                bell = self.rung.wait_timeout(bell, pause).unwrap_or_else(PoisonError::into_inner).0;
            }
            if bell.rung {
                idle_since = Instant::now();
            }
            bell.rung = false;
            if bell.end {
                return;
            }
        }
    }

    /// Gives the library up, after a barrier of all ranks; the progress thread ends.
    pub(super) fn finish(&self) -> Result<(), MpiError> {
        let mut desk = lock(&self.desk);
        self.finished.store(true, Ordering::SeqCst);
        lock(&self.bell).end = true;
        self.rung.notify_one();
        let Desk { library, control, .. } = &mut *desk;
        control.close(library);
        library.finalize()
    }
}
