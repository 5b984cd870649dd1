//! Work on a thread of its own, while Python's thread listens for signals.

use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use pyo3::prelude::*;
use quadrille::search::native::Cancel;

/// How long an interruption may wait.
const LISTEN: Duration = Duration::from_millis(50);

/// What work gives, which is done without the interpreter's lock.
///
/// # Errors
/// What a signal raises, such as `KeyboardInterrupt`: at once, while searches of the work end, and other work goes on to its end, which
/// nobody sees.
pub fn apart<T: Send + 'static>(py: Python<'_>, work: impl FnOnce(&Cancel) -> T + Send + 'static) -> PyResult<T> {
    let (sender, mut done) = channel();
    let cancel = Cancel::default();
    let told = cancel.clone();
    let worker = spawn(move || {
        let result = work(&told);
        // Nobody waits any more after an interruption.
        let _ = sender.send(result);
    });
    loop {
        match next(py, &mut done) {
            Ok(result) => return Ok(result),
            Err(RecvTimeoutError::Timeout) => py.check_signals().inspect_err(|_| cancel.cancel())?,
            Err(RecvTimeoutError::Disconnected) => panicked(worker),
        }
    }
}

/// The next message, if it comes before signals are to be looked at again; the interpreter's lock is free meanwhile.
pub fn next<T: Send>(py: Python<'_>, messages: &mut Receiver<T>) -> Result<T, RecvTimeoutError> {
    py.detach(move || {
        // The whole borrow, which may be sent to other threads, and not a shared one.
        let messages: &mut Receiver<T> = messages;
        messages.recv_timeout(LISTEN)
    })
}

/// Goes on with the panic of a thread that has ended without a result.
pub fn panicked<T>(worker: JoinHandle<T>) -> ! {
    match worker.join() {
        Err(panic) => resume_unwind(panic),
        Ok(_) => unreachable!("a thread that has ended well has told its result"),
    }
}
