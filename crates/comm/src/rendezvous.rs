//! The meeting of a group's members: a collective runs when all have arrived, and nobody leaves before it is done.
//!
//! A round has two phases. *Gathering*: members post their call and wait; an abort lets them withdraw.
//! *Transferring*: all have arrived, each performs its part; now nobody can withdraw, because the others work on
//! its buffers, and all parts end by themselves. Small rounds are performed by the last member to arrive, alone,
//! while the others are parked: one wait in place of two.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Instant;

use crate::call::Call;
use crate::error::{Aborted, CollectiveError, Late};
use crate::group::{Group, Shared};
use crate::job::{Job, lock};
use crate::transfer::Posting;

/// Up to this many bytes, all members together, the last to arrive performs a collective alone.
pub(crate) const SMALL_BYTES: usize = 64 << 10;

pub(crate) struct Meeting {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Sequence number of the collective that is gathering or transferring, from 1.
    round: u64,
    postings: Vec<Option<Posting>>,
    /// When the round's first member arrived.
    since: Option<Instant>,
    /// All members' postings while transferring.
    transfer: Option<Arc<[Posting]>>,
    /// Members that have performed their part of the transfer.
    finished: usize,
}

impl Meeting {
    pub(crate) fn new(size: usize) -> Self {
        let state =
            State { round: 1, postings: (0..size).map(|_| None).collect(), since: None, transfer: None, finished: 0 };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Takes part in the group's next collective. `perform(postings, members)` does the work of those members; it is
    /// called between the arrival of all and the return of any.
    pub(crate) fn meet(
        &self,
        job: &Job,
        group: &Group,
        posting: Posting,
        perform: impl Fn(&[Posting], Range<usize>),
    ) -> Result<(), Aborted> {
        let index = group.index();
        let size = group.size();
        let mut state = lock(&self.state);
        job.check()?;
        assert!(state.postings[index].is_none(), "a member takes part in a round once");
        let round = state.round;
        if let Some(error) = state.mismatch(group, &posting.call) {
            drop(state);
            return Err(job.abort_collective(group.rank(), posting.call.activity, error));
        }
        state.postings[index] = Some(posting);
        state.since.get_or_insert_with(Instant::now);
        if let Some(all) = state.postings.iter().copied().collect::<Option<Arc<[Posting]>>>() {
            if all.iter().map(Posting::bytes).sum::<usize>() <= SMALL_BYTES {
                perform(&all, 0..size);
                state.next_round();
                drop(state); // whoever wakes finds the lock free
                self.changed.notify_all();
                return Ok(());
            }
            state.transfer = Some(all);
            self.changed.notify_all();
        } else if let Some((rank, error)) = state.departed(job, &group.shared) {
            state.postings[index] = None;
            drop(state);
            return Err(job.abort_collective(rank, job.activity(rank), error));
        }
        let all = loop {
            if state.round != round {
                return Ok(());
            }
            if let Some(all) = &state.transfer {
                break all.clone();
            }
            if let Err(aborted) = job.check() {
                state.postings[index] = None;
                return Err(aborted);
            }
            state = self.wait(state);
        };
        drop(state);
        let outcome = catch_unwind(AssertUnwindSafe(|| perform(&all, index..index + 1)));
        self.finish(round, size);
        outcome.map_err(|panic| resume_unwind(panic))
    }

    /// Waits until every member has performed its part, whatever happens to the job.
    fn finish(&self, round: u64, size: usize) {
        let mut state = lock(&self.state);
        state.finished += 1;
        if state.finished == size {
            state.next_round();
            self.changed.notify_all();
        }
        while state.round == round {
            state = self.wait(state);
        }
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn wake(&self) {
        let _state = lock(&self.state);
        self.changed.notify_all();
    }

    pub(crate) fn find_departed(&self, job: &Job, shared: &Shared) {
        let departed = lock(&self.state).departed(job, shared);
        if let Some((rank, error)) = departed {
            job.abort_collective(rank, job.activity(rank), error);
        }
    }

    pub(crate) fn find_stuck(&self, job: &Job, shared: &Shared) {
        let stuck = lock(&self.state).stuck(job, shared);
        if let Some((late, error)) = stuck {
            job.abort_collective(late, job.activity(late), error);
        }
    }
}

impl State {
    fn next_round(&mut self) {
        self.round += 1;
        self.postings.fill(None);
        self.since = None;
        self.transfer = None;
        self.finished = 0;
    }

    fn first(&self) -> Option<(usize, Call)> {
        self.postings.iter().enumerate().find_map(|(index, posting)| Some((index, posting.as_ref()?.call)))
    }

    fn mismatch(&self, group: &Group, call: &Call) -> Option<CollectiveError> {
        let (index, first) = self.first().filter(|(_, first)| !first.agrees_with(call))?;
        Some(CollectiveError::Mismatch {
            group: group.shared_name(),
            sequence: self.round,
            first: Box::new((group.members()[index], first)),
            second: Box::new((group.rank(), *call)),
        })
    }

    /// Ranks of the members that have arrived (`true`) or are missing (`false`).
    fn ranks(&self, shared: &Shared, arrived: bool) -> Vec<usize> {
        let postings = self.postings.iter().zip(shared.members.iter());
        postings.filter(|(posting, _)| posting.is_some() == arrived).map(|(_, &rank)| rank).collect()
    }

    fn departed(&self, job: &Job, shared: &Shared) -> Option<(usize, CollectiveError)> {
        let (_, call) = self.first()?;
        let departed = self.ranks(shared, false).into_iter().find(|&rank| job.has_left(rank))?;
        let error = CollectiveError::Departed {
            group: shared.name.clone(),
            sequence: self.round,
            call: Box::new(call),
            waiting: self.ranks(shared, true),
            departed,
        };
        Some((departed, error))
    }

    fn stuck(&self, job: &Job, shared: &Shared) -> Option<(usize, CollectiveError)> {
        let (_, call) = self.first()?;
        let waited = self.since?.elapsed();
        let missing: Vec<_> = (0..self.postings.len()).filter(|&index| self.postings[index].is_none()).collect();
        let first_late = shared.members[*missing.first()?];
        if waited <= job.timeout {
            return None;
        }
        let late = |&index: &usize| Late {
            rank: shared.members[index],
            activity: job.activity(shared.members[index]),
            issued: shared.issued[index].load(Ordering::Relaxed),
            busy_with: job.busy_with(shared.members[index]),
        };
        let error = CollectiveError::Stuck {
            group: shared.name.clone(),
            sequence: self.round,
            call: Box::new(call),
            waited,
            arrived: self.ranks(shared, true),
            late: missing.iter().map(late).collect(),
        };
        Some((first_late, error))
    }
}
