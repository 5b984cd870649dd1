//! One rank's communicator of emulated devices.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::shelf::Shelf;
use super::work::{Fate, Finish, Work};
use crate::driver::Stream;
use crate::emulator::State;
use crate::emulator::streams::Command;
use crate::nccl::{Code, IN_PROGRESS, SUCCESS, UniqueId};

/// What a device goes wrong at: one of its calls, from 1 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// The library says later that another rank has failed.
    Fails(u64),
    /// It never ends.
    Sticks(u64),
}

/// Communicators of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// That were begun.
    pub begun: u64,
    /// That ended in good order.
    pub destroyed: u64,
    /// That were aborted.
    pub aborted: u64,
    /// Calls.
    pub calls: u64,
}

/// A device, as members know it.
pub type Device = Arc<Mutex<State>>;

fn lock(device: &Device) -> MutexGuard<'_, State> {
    device.lock().unwrap_or_else(PoisonError::into_inner)
}

/// So often it is in progress after what began it.
const LOOKS: u32 = 2;

/// Every so many calls are in progress when they return.
const LATE: u64 = 3;

pub struct Member {
    device: Device,
    shelf: Shelf,
    fate: Arc<Fate>,
    ranks: usize,
    rank: usize,
    joined: bool,
    /// Looks until it is ready.
    looks: u32,
    finalized: bool,
    collectives: u64,
    /// Messages to and from each rank.
    sent: Vec<u64>,
    received: Vec<u64>,
    calls: u64,
    /// What goes into its stream when it is ready.
    late: Option<(Stream, Vec<Work>)>,
}

impl Member {
    pub fn new(device: Device, id: UniqueId, ranks: usize, rank: usize) -> Self {
        lock(&device).tally.begun += 1;
        let shelf = Shelf::of(id);
        let _ = shelf.leave(&format!("here-{rank}"), &[]); // who is not there is waited for
        Self {
            device,
            shelf,
            fate: Arc::default(),
            ranks,
            rank,
            joined: false,
            looks: LOOKS,
            finalized: false,
            collectives: 0,
            sent: vec![0; ranks],
            received: vec![0; ranks],
            calls: 0,
            late: None,
        }
    }

    pub fn rank(&self) -> usize {
        self.rank
    }

    pub fn ranks(&self) -> usize {
        self.ranks
    }

    pub fn is_on(&self, device: &Device) -> bool {
        Arc::ptr_eq(&self.device, device)
    }

    pub fn is_ready(&self) -> bool {
        self.joined && self.looks == 0 && self.fate.error.load(Ordering::SeqCst) == SUCCESS
    }

    pub fn is_finalized(&self) -> bool {
        self.finalized && self.is_ready()
    }

    /// How it is; what is in progress goes on.
    pub fn look(&mut self) -> Code {
        let error = self.fate.error.load(Ordering::SeqCst);
        if error != SUCCESS {
            return error;
        }
        self.joined = self.joined || self.shelf.count("here-") == self.ranks;
        if !self.joined || self.looks > 0 {
            self.looks = self.looks.saturating_sub(1);
            return IN_PROGRESS;
        }
        if let Some((stream, works)) = self.late.take() {
            self.push(stream, works);
        }
        SUCCESS
    }

    pub fn finalize(&mut self) -> Code {
        (self.finalized, self.looks) = (true, LOOKS);
        IN_PROGRESS
    }

    /// Takes work for a stream: at once, or when it is ready again.
    pub fn take(&mut self, stream: Stream, works: Vec<Work>) -> Code {
        self.calls += 1;
        if self.calls.is_multiple_of(LATE) {
            (self.late, self.looks) = (Some((stream, works)), LOOKS);
            return IN_PROGRESS;
        }
        self.push(stream, works);
        SUCCESS
    }

    fn push(&self, stream: Stream, mut works: Vec<Work>) {
        let mut device = lock(&self.device);
        device.tally.calls += 1;
        let number = device.tally.calls;
        let trouble = device.trouble;
        for work in &mut works {
            work.fails = trouble == Some(Trouble::Fails(number));
            work.sticks = trouble == Some(Trouble::Sticks(number));
        }
        // A stream that is closed is nobody's.
        let _ = device.streams.push(stream, Command::Remote(Box::new(works)));
    }

    /// It is used no more.
    pub fn leave(self, aborted: bool) {
        self.fate.aborted.store(aborted, Ordering::SeqCst);
        let mut device = lock(&self.device);
        let tally = &mut device.tally;
        *if aborted { &mut tally.aborted } else { &mut tally.destroyed } += 1;
        drop(device);
        let _ = self.shelf.leave(&format!("gone-{}", self.rank), &[]);
        if self.shelf.count("gone-") == self.ranks {
            self.shelf.clear();
        }
    }

    fn work(&self, left: Vec<(String, usize, usize)>, taken: Vec<String>, finish: Finish) -> Work {
        let taken = taken.into_iter().map(|name| (name, None)).collect();
        let shelf = self.shelf.clone();
        let fate = self.fate.clone();
        Work { shelf, fate, left, taken, finish, fails: false, sticks: false }
    }

    /// Leaves something for every rank, whose place and bytes `lent` says, where there is any, and takes what those ranks have
    /// left that `takes` names.
    pub fn collective(
        &mut self,
        lent: impl Fn(usize) -> Option<(usize, usize)>,
        takes: impl Fn(usize) -> bool,
        finish: Finish,
    ) -> Work {
        self.collectives += 1;
        let number = self.collectives;
        let own = self.rank;
        let leave = |to| lent(to).map(|(from, bytes)| (format!("c{number}-{own}-{to}"), from, bytes));
        let left = (0..self.ranks).filter_map(leave).collect();
        let taken = (0..self.ranks).filter(|from| takes(*from)).map(|from| format!("c{number}-{from}-{own}"));
        self.work(left, taken.collect(), finish)
    }

    /// Leaves something for the root, which takes all.
    pub fn at_root(&mut self, root: usize, from: usize, bytes: usize, finish: Finish) -> Work {
        let is_root = self.rank == root;
        let finish = if is_root { finish } else { Finish::Nothing };
        self.collective(|to| (to == root).then_some((from, bytes)), |_| is_root, finish)
    }

    pub fn send(&mut self, peer: usize, from: usize, bytes: usize) -> Work {
        self.sent[peer] += 1;
        let name = format!("m{}-{}-{peer}", self.sent[peer], self.rank);
        self.work(vec![(name, from, bytes)], Vec::new(), Finish::Nothing)
    }

    pub fn receive(&mut self, peer: usize, to: usize, bytes: usize) -> Work {
        self.received[peer] += 1;
        let name = format!("m{}-{peer}-{}", self.received[peer], self.rank);
        self.work(Vec::new(), vec![name], Finish::Store { bytes, to: vec![to] })
    }
}
