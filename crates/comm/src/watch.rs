//! Watching, among ranks that are threads, over what somebody else does for a call.

use std::sync::atomic::Ordering;
use std::thread::{sleep, yield_now};
use std::time::{Duration, Instant};

use quadrille_spec::CollectiveKind;

use crate::error::{Aborted, CollectiveError};
use crate::job::Job;
use crate::lanes::stuck;
use crate::transport::Occasion;

/// So long it is looked without a pause.
const YIELD: Duration = Duration::from_micros(200);

/// From then on, between two looks.
const PAUSE: Duration = Duration::from_micros(50);

/// See [`Transport::watch`](crate::transport::Transport::watch).
pub(crate) fn watch(
    job: &Job,
    at: &Occasion<'_>,
    look: &mut dyn FnMut() -> Result<bool, String>,
) -> Result<(), Aborted> {
    let start = Instant::now();
    loop {
        job.check()?;
        if look().map_err(|error| job.abort_carried(at, error))? {
            return job.check();
        }
        let waited = start.elapsed();
        if let Some(departed) = departed(job, at) {
            return Err(departed);
        }
        if waited > job.timeout {
            return Err(stuck(job, at, partner(at), waited));
        }
        if waited < YIELD { yield_now() } else { sleep(PAUSE) }
    }
}

/// The other side of a message; of a collective the next member.
fn partner(at: &Occasion<'_>) -> usize {
    let next = (at.group.index() + 1) % at.group.size();
    if is_message(at) { at.call.peer.unwrap_or(next) } else { next }
}

fn is_message(at: &Occasion<'_>) -> bool {
    matches!(at.call.operation, CollectiveKind::Send | CollectiveKind::Receive)
}

/// Aborts if a member has left without having issued the collective.
fn departed(job: &Job, at: &Occasion<'_>) -> Option<Aborted> {
    let shared = &at.group.shared;
    let missing = |index: usize| shared.issued[index].load(Ordering::Relaxed) < at.sequence;
    let left = |index: &usize| !is_message(at) && job.has_left(shared.members[*index]) && missing(*index);
    let departed = shared.members[(0..at.group.size()).find(left)?];
    let error = CollectiveError::Departed {
        group: at.group.shared_name(),
        sequence: at.sequence,
        call: Box::new(*at.call),
        waiting: vec![at.group.rank()],
        departed,
    };
    Some(job.abort_collective(departed, job.activity(departed), error))
}
