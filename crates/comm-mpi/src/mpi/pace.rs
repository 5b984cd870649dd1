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

/// Where ranks share cores, a look takes the time of another rank's work: looking without a break gives way to pauses soon,
/// and pauses are longer.
const CROWDED_YIELD: Duration = Duration::from_micros(50);
const CROWDED_LONGEST: Duration = Duration::from_millis(1);
const CROWDED_PART: u32 = 8;

/// The pace of one wait.
pub(super) struct Pace {
    since: Instant,
    crowded: bool,
}

impl Pace {
    /// `crowded`: this machine has fewer cores than ranks.
    pub(super) fn start(crowded: bool) -> Self {
        Self { since: Instant::now(), crowded }
    }

    /// Something came: more is likely to come soon.
    pub(super) fn progressed(&mut self) {
        self.since = Instant::now();
    }

    /// Nothing came: lets others run, the longer the longer nothing has come.
    pub(super) fn pause(&self) {
        let idle = self.since.elapsed();
        if idle < SPIN && !self.crowded {
            spin_loop();
        } else if idle < if self.crowded { CROWDED_YIELD } else { YIELD } {
            yield_now();
        } else if self.crowded {
            sleep((idle / CROWDED_PART).clamp(SHORTEST, CROWDED_LONGEST));
        } else {
            sleep(pause_after(idle));
        }
    }
}

/// The pause after so long a wait.
pub(super) fn pause_after(idle: Duration) -> Duration {
    (idle / PART).clamp(SHORTEST, LONGEST)
}
