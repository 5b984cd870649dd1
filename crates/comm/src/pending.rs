//! The handle of a collective or message in flight.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::Aborted;
use crate::job::{Job, lock};
use crate::queue::Queue;

/// While a delayed message is under way, how often the job is looked at: an abort must end the wait.
const LOOK: Duration = Duration::from_millis(5);

/// A collective or message in flight; it owns the buffers until [`wait`](Pending::wait) gives them back. Dropping it does
/// not cancel it: the other members count on it.
#[must_use = "the buffers come back from `wait`"]
pub struct Pending<B> {
    slot: Arc<Slot<B>>,
    /// The queue that a collective waits in; a message waits in none.
    queue: Option<Arc<Queue>>,
}

impl<B> Pending<B> {
    /// Waits until the collective or message is done and returns its buffers.
    ///
    /// # Errors
    /// The job was aborted, by this call's own error or by any rank's failure. The buffers are lost.
    pub fn wait(self) -> Result<B, Aborted> {
        let transport = &self.slot.job.transport;
        match &self.queue {
            Some(queue) if transport.ends_calls() => while !self.is_done() && queue.help() {},
            Some(_) => {}
            None => transport.drive(&|| self.is_done()),
        }
        let mut state = lock(&self.slot.state);
        loop {
            if let Some(left) = state.delay_left() {
                self.slot.job.check()?;
                state = wait_at_most(&self.slot.done, state, left.min(LOOK));
            } else if let Some(outcome) = state.outcome.take() {
                return outcome;
            } else if !transport.ends_calls() {
                self.slot.job.check()?;
                state = wait_at_most(&self.slot.done, state, LOOK);
            } else {
                state = self.slot.done.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Whether `wait` would return at once. Cheap, and progress does not depend on it: collectives are served by the
    /// rank's communication thread, a message is done as soon as both sides have issued it and its delay is over.
    pub fn is_done(&self) -> bool {
        let state = lock(&self.slot.state);
        let job = &self.slot.job;
        let came = state.outcome.is_some() && state.delay_left().is_none();
        came || ((state.outcome.is_some() || !job.transport.ends_calls()) && job.check().is_err())
    }

    /// Waits until at least one of several is done and returns the position of the first that is; `None` if there are
    /// none. An aborted job counts as done: the `wait` of the one returned says why.
    pub fn wait_for_any(pendings: &[&Self]) -> Option<usize> {
        let bell = Arc::new(Bell::default());
        for pending in pendings {
            lock(&pending.slot.state).watchers.push(bell.clone());
        }
        let job = pendings.first().map(|pending| &pending.slot.job);
        if let Some(job) = job {
            job.transport.drive(&|| pendings.iter().any(|pending| pending.is_done()));
        }
        let first = loop {
            // Before the outcomes: a delay that ends in between would be waited for without a ring to come.
            let delay = pendings.iter().filter_map(|pending| lock(&pending.slot.state).delay_left()).min();
            let first = pendings.iter().position(|pending| pending.is_done());
            if first.is_some() || pendings.is_empty() {
                break first;
            }
            bell.wait(delay);
        };
        for pending in pendings {
            lock(&pending.slot.state).watchers.retain(|watcher| !Arc::ptr_eq(watcher, &bell));
        }
        first
    }
}

struct Slot<B> {
    state: Mutex<State<B>>,
    done: Condvar,
    job: Arc<Job>,
    rank: usize,
}

struct State<B> {
    outcome: Option<Result<B, Aborted>>,
    /// When a delayed message arrives; set with the outcome.
    arrival: Option<Instant>,
    /// Those who wait for this one or others.
    watchers: Vec<Arc<Bell>>,
}

impl<B> State<B> {
    /// How long a delayed message is still under way; `None` if it has arrived, or nothing has been sent.
    fn delay_left(&self) -> Option<Duration> {
        self.arrival?.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }
}

/// Wakes a thread that waits for several.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn ring(&self) {
        *lock(&self.rung) = true;
        self.changed.notify_one();
    }

    /// Returns after the next ring since the last wait. With a delay under way it may return earlier: when that is over,
    /// or to look for an abort.
    fn wait(&self, delay: Option<Duration>) {
        let mut rung = lock(&self.rung);
        while !*rung {
            let Some(delay) = delay else {
                rung = self.changed.wait(rung).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            rung = wait_at_most(&self.changed, rung, delay.min(LOOK));
            break;
        }
        *rung = false;
    }
}

fn wait_at_most<'a, T>(condition: &Condvar, guard: MutexGuard<'a, T>, duration: Duration) -> MutexGuard<'a, T> {
    condition.wait_timeout(guard, duration).unwrap_or_else(PoisonError::into_inner).0
}

/// The other end of a `Pending`: completes it exactly once, by an abort if it is dropped before.
pub(crate) struct Completion<B> {
    slot: Arc<Slot<B>>,
    completed: bool,
}

/// A handle to wait for, and the means to complete it; `queue` is the one that the work is put into, if any.
pub(crate) fn pending<B>(job: &Arc<Job>, rank: usize, queue: Option<&Arc<Queue>>) -> (Pending<B>, Completion<B>) {
    let state = State { outcome: None, arrival: None, watchers: Vec::new() };
    let slot = Arc::new(Slot { state: Mutex::new(state), done: Condvar::new(), job: job.clone(), rank });
    let completion = Completion { slot: slot.clone(), completed: false };
    (Pending { slot, queue: queue.cloned() }, completion)
}

impl<B> Completion<B> {
    pub(crate) fn complete(self, outcome: Result<B, Aborted>) {
        self.complete_at(outcome, None);
    }

    /// As `complete`, but whoever waits learns of it no earlier than at `arrival`.
    pub(crate) fn complete_at(mut self, outcome: Result<B, Aborted>, arrival: Option<Instant>) {
        self.set(outcome, arrival);
    }

    fn set(&mut self, outcome: Result<B, Aborted>, arrival: Option<Instant>) {
        self.completed = true;
        let mut state = lock(&self.slot.state);
        state.outcome = Some(outcome);
        state.arrival = arrival;
        state.watchers.iter().for_each(|watcher| watcher.ring());
        drop(state);
        self.slot.done.notify_one();
    }
}

impl<B> Drop for Completion<B> {
    fn drop(&mut self) {
        if !self.completed {
            let aborted = self.slot.job.abort_abandoned(self.slot.rank);
            self.set(Err(aborted), None);
        }
    }
}
