//! A rank's queue of communication: executed in issue order, one at a time.
//!
//! The communication thread serves it; a rank that waits anyway may run the next operation itself, which
//! saves two thread switches for a collective that is waited for at once.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex};

use crate::job::lock;

pub(crate) type Operation = Box<dyn FnOnce() + Send>;

#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Operation>,
    running: bool,
    closed: bool,
}

impl Queue {
    pub(crate) fn push(&self, operation: Operation) {
        let mut state = lock(&self.state);
        state.waiting.push_back(operation);
        let idle = !state.running;
        drop(state);
        if idle {
            self.changed.notify_one();
        }
    }

    /// No more operations will be issued; `serve` returns after the last.
    pub(crate) fn close(&self) {
        lock(&self.state).closed = true;
        self.changed.notify_one();
    }

    /// The communication thread's loop.
    pub(crate) fn serve(&self) {
        loop {
            let mut state = lock(&self.state);
            while state.running || (state.waiting.is_empty() && !state.closed) {
                state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
            }
            let Some(operation) = state.waiting.pop_front() else { return };
            state.running = true;
            drop(state);
            self.run(operation);
        }
    }

    /// Runs the next operation on the calling thread; false if there is none or one is running already.
    pub(crate) fn help(&self) -> bool {
        let mut state = lock(&self.state);
        if state.running {
            return false;
        }
        let Some(operation) = state.waiting.pop_front() else { return false };
        state.running = true;
        drop(state);
        self.run(operation);
        true
    }

    fn run(&self, operation: Operation) {
        // Operations catch their own panics; those of a buffer's destructor must not leave the queue busy for ever.
        let _idle = Idle(self);
        operation();
    }
}

/// Marks the queue as idle again when dropped.
struct Idle<'a>(&'a Queue);

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.running = false;
        let more = !state.waiting.is_empty() || state.closed;
        drop(state);
        if more {
            self.0.changed.notify_one();
        }
    }
}
