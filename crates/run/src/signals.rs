//! Ctrl-C and the system's request to end: the step that a run is at is finished, a checkpoint is written.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::RunError;

/// What signals have asked for.
#[derive(Debug, Clone)]
pub struct Signals {
    /// Whether any has come.
    pub stop: Arc<AtomicBool>,
    which: Arc<AtomicUsize>,
}

impl Signals {
    /// From now on the first signal only sets the flag; the second ends the process at once.
    ///
    /// # Errors
    /// The system's.
    pub fn watch() -> Result<Self, RunError> {
        Self::registered().map_err(RunError::Signals)
    }

    fn registered() -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let which = Arc::new(AtomicUsize::new(0));
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal finds the flag unset.
            flag::register_conditional_default(signal, Arc::clone(&stop))?;
            flag::register_usize(signal, Arc::clone(&which), signal as usize)?;
            flag::register(signal, Arc::clone(&stop))?;
        }
        Ok(Self { stop, which })
    }

    /// Whether any has come.
    pub fn has_come(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The signal that has come to this process; that it is to end, if it came to another one.
    pub fn which(&self) -> i32 {
        match self.which.load(Ordering::Relaxed) {
            0 => SIGTERM,
            signal => signal as i32,
        }
    }
}
