//! How often a thread looks that waits for the library, which tells nobody when something has come.

use std::hint::spin_loop;
use std::thread::{sleep, yield_now};
use std::time::{Duration, Instant};

/// So long a waiting thread looks without a break: less than a switch of threads takes.
const SPIN: Duration = Duration::from_micros(20);

/// So long it lets others run between two looks: what it waits for may come from a rank on the same core.
const YIELD: Duration = Duration::from_micros(500);

/// The shortest pause. Longer ones are a fixed part of what has been waited, so that a pause costs little of it.
const SHORTEST: Duration = Duration::from_micros(20);
const LONGEST: Duration = Duration::from_micros(500);
const PART: u32 = 32;

/// The pace of one wait.
pub(super) struct Pace {
    since: Instant,
}

impl Pace {
    pub(super) fn start() -> Self {
        Self { since: Instant::now() }
    }

    /// Something came: more is likely to come soon.
    pub(super) fn progressed(&mut self) {
        self.since = Instant::now();
    }

    /// Nothing came: lets others run, the longer the longer nothing has come.
    pub(super) fn pause(&self) {
        let idle = self.since.elapsed();
        if idle < SPIN {
            spin_loop();
        } else if idle < YIELD {
            yield_now();
        } else {
            sleep(pause_after(idle));
        }
    }
}

/// The pause after so long a wait.
pub(super) fn pause_after(idle: Duration) -> Duration {
    (idle / PART).clamp(SHORTEST, LONGEST)
}
