//! One communicator of a rank, from its beginning to its end.
//!
//! ```text
//! begin ──► in progress ──► ready ──► call ──► in progress ──► ready ──► close: finalized, destroyed
//!                └──────────────┴── a fault, or the job's end: abort
//! ```
//!
//! One thread at a time uses it.

use std::ffi::{CStr, c_char, c_int};
use std::ptr::null_mut;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::functions::{Code, Config, Functions, Handle, IN_PROGRESS, SUCCESS, UniqueId};
use super::library::NAME;
use crate::driver::Fault;

/// So long the end of a communicator may take before it is aborted.
const FAREWELL: Duration = Duration::from_secs(2);

/// Between two looks at an end that is in progress.
const PAUSE: Duration = Duration::from_micros(100);

/// A communicator; dropped before it is closed, it is aborted.
pub struct Communicator {
    functions: &'static Functions,
    /// Null once it is freed.
    handle: Handle,
}

// SAFETY: any thread may use a communicator, one at a time.
unsafe impl Send for Communicator {}

impl Communicator {
    /// What the ranks of a new communicator find each other by.
    pub fn id(functions: &'static Functions) -> Result<UniqueId, Fault> {
        let mut id = UniqueId([0; 128]);
        // SAFETY: the id is written.
        let code = unsafe { (functions.unique_id)(&mut id) };
        asked(functions, null_mut(), code, "making an id").map(|()| id)
    }

    /// Begins to join the ranks that have the same id, on the device that the thread uses.
    pub fn begin(functions: &'static Functions, ranks: usize, id: UniqueId, rank: usize) -> Result<Self, Fault> {
        let mut handle = null_mut();
        let mut config = Config::without_blocking();
        // SAFETY: the handle is written, the configuration read.
        let code = unsafe { (functions.init)(&mut handle, ranks as c_int, id, rank as c_int, &mut config) };
        let communicator = Self { functions, handle };
        communicator.accepted(code, "joining its ranks")?;
        Ok(communicator)
    }

    /// Whether all that was called is in its stream.
    ///
    /// # Errors
    /// What has gone wrong since, here or at another rank.
    pub fn is_ready(&self) -> Result<bool, Fault> {
        let mut state = SUCCESS;
        // SAFETY: the communicator is not freed; the state is written.
        let code = unsafe { (self.functions.asynchronous)(self.handle, &mut state) };
        self.accepted(code, "asking how it is")?;
        self.accepted(state, "at or before the last call")?;
        Ok(state == SUCCESS)
    }

    /// Calls functions with the communicator, which is ready.
    pub fn call(&self, what: &str, call: impl FnOnce(&Functions, Handle) -> Result<(), Code>) -> Result<(), Fault> {
        self.accepted(call(self.functions, self.handle).err().unwrap_or(SUCCESS), what)
    }

    fn accepted(&self, code: Code, what: &str) -> Result<(), Fault> {
        asked(self.functions, self.handle, code, what)
    }

    /// Ends what it does, and frees it.
    pub fn abort(&mut self) {
        let handle = std::mem::replace(&mut self.handle, null_mut());
        if !handle.is_null() {
            // SAFETY: it is not freed, and from now on nobody has it. What an abort says helps nobody.
            let _ = unsafe { (self.functions.abort)(handle) };
        }
    }

    /// Ends it in good order; what does not end in time is aborted.
    pub fn close(mut self) {
        let end = Instant::now() + FAREWELL;
        // SAFETY: the communicator is not freed.
        let mut code = unsafe { (self.functions.finalize)(self.handle) };
        while code == IN_PROGRESS && Instant::now() < end {
            sleep(PAUSE);
            code = match self.is_ready() {
                Ok(true) => SUCCESS,
                Ok(false) => IN_PROGRESS,
                Err(_) => break,
            };
        }
        if code == SUCCESS {
            let handle = std::mem::replace(&mut self.handle, null_mut());
            // SAFETY: it is not freed, and from now on nobody has it. That it cannot be freed helps nobody.
            let _ = unsafe { (self.functions.destroy)(handle) };
        }
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        self.abort();
    }
}

/// Turns what a call said into a fault, if it is one.
fn asked(functions: &Functions, handle: Handle, code: Code, what: &str) -> Result<(), Fault> {
    if code == SUCCESS || code == IN_PROGRESS {
        return Ok(());
    }
    // SAFETY: both give text of the library's own.
    let (error, last) = unsafe { (read((functions.error)(code)), read((functions.last_error)(handle))) };
    let last = if last.is_empty() { last } else { format!(" ({last})") };
    Err(Fault { library: NAME, code: i64::from(code), text: format!("{error}{last}, {what}") })
}

/// # Safety
/// It is null, or text that ends with a zero.
unsafe fn read(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_owned()
}
