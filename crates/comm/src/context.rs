//! A rank's view of its job.

use std::mem::take;
use std::sync::{Arc, Mutex};

use crate::activity::{Activity, Label};
use crate::error::Aborted;
use crate::group::Group;
use crate::job::{Job, lock};
use crate::ledger::Ledger;
use crate::queue::Queue;
use crate::span::{Recorder, Span};

/// What a rank's body works with: its place in the job, its groups, its collectives, its ledger.
pub struct RankContext {
    pub(crate) rank: usize,
    pub(crate) job: Arc<Job>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) ledger: Mutex<Ledger>,
    pub(crate) spans: Recorder,
    /// Of the collectives' algorithms; one collective of a rank runs at a time.
    pub(crate) scratch: Arc<Mutex<Vec<u64>>>,
}

impl RankContext {
    pub(crate) fn new(rank: usize, job: Arc<Job>) -> Self {
        Self {
            rank,
            job,
            queue: Arc::default(),
            ledger: Mutex::default(),
            spans: Recorder::default(),
            scratch: Arc::default(),
        }
    }

    /// This rank, below [`ranks`](Self::ranks).
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of ranks in the job.
    pub fn ranks(&self) -> usize {
        self.job.ranks()
    }

    /// Records what this rank does from now on: for reports, and as the ledger's layer of collectives issued from now
    /// on. Cheap enough for every operation of a step.
    ///
    /// # Errors
    /// The job was aborted. A rank that neither communicates nor enters cannot be stopped: call this between pieces of
    /// work of at most a few seconds.
    pub fn enter(&self, layer: Label, operation: &'static str) -> Result<(), Aborted> {
        self.job.check()?;
        self.job.set_activity(self.rank, Activity { layer, operation });
        Ok(())
    }

    /// The group of `members` (ranks in index order, this one among them) under `name`, an axis key such as `x`,
    /// `y+z+data` or `world`. The same name and members are the same group; other groups may have the same name.
    ///
    /// # Errors
    /// Aborts the job if this rank is no member, a member is listed twice or does not exist, or another member lists
    /// the same ranks in another order; or if the job is aborted already.
    pub fn group(&self, name: &str, members: &[usize]) -> Result<Group, Aborted> {
        let (shared, index) = self.job.group(self.rank, name, members)?;
        Ok(Group::new(shared, index))
    }

    /// What this rank has communicated so far. A call is counted when it is issued, so one that is still in flight is
    /// counted with those before it.
    pub fn ledger(&self) -> Ledger {
        lock(&self.ledger).clone()
    }

    /// As [`ledger`](Self::ledger), and starts again from nothing.
    pub fn take_ledger(&self) -> Ledger {
        take(&mut *lock(&self.ledger))
    }

    /// Switches the recording of spans on or off, for calls issued from now on; off at first.
    pub fn record_spans(&self, on: bool) {
        self.spans.switch(on);
    }

    /// The spans of this rank's collectives and messages that have been executed since the last call of this, in the
    /// order of their starts. A span is there before the call's `wait` returns; like the ledger, there is none for a
    /// group of one. Calls that failed have none.
    pub fn take_spans(&self) -> Vec<Span> {
        self.spans.take()
    }
}
