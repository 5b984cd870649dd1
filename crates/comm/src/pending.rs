//! The handle of a collective in flight.

use std::sync::{Arc, Condvar, Mutex};

use crate::error::Aborted;
use crate::job::{Job, lock};
use crate::queue::Queue;

/// A collective in flight; it owns the buffers until [`wait`](Pending::wait) gives them back. Dropping it does not
/// cancel the collective: the other members count on it.
#[must_use = "the buffers come back from `wait`"]
pub struct Pending<B> {
    slot: Arc<Slot<B>>,
    queue: Arc<Queue>,
}

impl<B> Pending<B> {
    /// Waits until the collective is done and returns its buffers.
    ///
    /// # Errors
    /// The job was aborted, by this collective's own error or by any rank's failure. The buffers are lost.
    pub fn wait(self) -> Result<B, Aborted> {
        while !self.is_done() && self.queue.help() {}
        let mut state = lock(&self.slot.state);
        loop {
            if let Some(outcome) = state.take() {
                return outcome;
            }
            state = self.slot.done.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    /// Whether `wait` would return at once.
    pub fn is_done(&self) -> bool {
        lock(&self.slot.state).is_some()
    }
}

struct Slot<B> {
    state: Mutex<Option<Result<B, Aborted>>>,
    done: Condvar,
}

/// The other end of a `Pending`: completes it exactly once, by an abort if it is dropped before.
pub(crate) struct Completion<B> {
    slot: Arc<Slot<B>>,
    job: Arc<Job>,
    rank: usize,
    completed: bool,
}

/// A handle to wait for, and the means to complete it.
pub(crate) fn pending<B>(job: &Arc<Job>, rank: usize, queue: &Arc<Queue>) -> (Pending<B>, Completion<B>) {
    let slot = Arc::new(Slot { state: Mutex::new(None), done: Condvar::new() });
    let completion = Completion { slot: slot.clone(), job: job.clone(), rank, completed: false };
    (Pending { slot, queue: queue.clone() }, completion)
}

impl<B> Completion<B> {
    pub(crate) fn complete(mut self, outcome: Result<B, Aborted>) {
        self.set(outcome);
    }

    fn set(&mut self, outcome: Result<B, Aborted>) {
        self.completed = true;
        *lock(&self.slot.state) = Some(outcome);
        self.slot.done.notify_one();
    }
}

impl<B> Drop for Completion<B> {
    fn drop(&mut self) {
        if !self.completed {
            let aborted = self.job.abort_abandoned(self.rank);
            self.set(Err(aborted));
        }
    }
}
