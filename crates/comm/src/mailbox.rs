//! Messages between two members. Neither side blocks: the first to come leaves its buffer, the second copies and
//! completes both on its own thread, so sends and receives in any order cannot lock each other out.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::time::Instant;

use quadrille_spec::CollectiveKind;

use crate::call::{Call, MESSAGE_TAGS};
use crate::delay::MessageInfo;
use crate::error::{CollectiveError, Late};
use crate::group::{Group, Shared};
use crate::job::{Job, lock};
use crate::parcel::Parcel;

/// A group's messages in flight.
#[derive(Default)]
pub(crate) struct Mailbox {
    channels: Mutex<BTreeMap<Ends, Channel>>,
}

/// What messages match by: the member indices of sender and receiver, and the tag.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Ends {
    from: usize,
    to: usize,
    tag: u32,
}

impl Ends {
    /// Of a message that member `index` calls for.
    fn of(index: usize, call: &Call) -> Self {
        let peer = call.peer.unwrap_or_default();
        let tag = call.tag.unwrap_or_default();
        let (from, to) = if call.operation == CollectiveKind::Send { (index, peer) } else { (peer, index) };
        Self { from, to, tag }
    }

    fn message(self, shared: &Shared, sequence: u64) -> MessageInfo {
        let rank = |index: usize| shared.members[index];
        MessageInfo { from: rank(self.from), to: rank(self.to), tag: self.tag, sequence }
    }
}

#[derive(Default)]
struct Channel {
    /// Messages that have been matched.
    matched: u64,
    /// Sends without a receive, or receives without a send; never both.
    parked: VecDeque<Parked>,
}

struct Parked {
    since: Instant,
    call: Call,
    parcel: Box<dyn Parcel>,
}

impl Mailbox {
    /// Posts one side of a message; `call.peer` is the other member. The parcel learns of every outcome.
    pub(crate) fn post(&self, job: &Job, group: &Group, call: Call, own: Box<dyn Parcel>) {
        let since = Instant::now();
        let mut channels = lock(&self.channels);
        if job.check().is_err() {
            return; // dropping the parcel reports the abort
        }
        let ends = Ends::of(group.index(), &call);
        let channel = channels.entry(ends).or_default();
        if channel.parked.front().is_none_or(|other| other.call.operation == call.operation) {
            channel.parked.push_back(Parked { since, call, parcel: own });
            drop(channels);
            return self.find_departed(job, &group.shared);
        }
        channel.matched += 1;
        let sequence = channel.matched;
        let Some(other) = channel.parked.pop_front() else { return };
        drop(channels);
        if (call.kind, call.input) != (other.call.kind, other.call.input) {
            let first = group.shared.members[call.peer.unwrap_or_default()];
            let error = CollectiveError::Mismatch {
                group: group.shared_name(),
                sequence,
                first: Box::new((first, other.call)),
                second: Box::new((group.rank(), call)),
            };
            job.abort_collective(group.rank(), call.activity, error);
            return;
        }
        let (sent, from, to) = match call.operation {
            CollectiveKind::Send => (since, own, other.parcel),
            _ => (other.since, other.parcel, own),
        };
        deliver(job, group, ends.message(&group.shared, sequence), sent, from, to);
    }

    /// After an abort: everybody who waits for a message returns its error.
    pub(crate) fn clear(&self) {
        let channels = std::mem::take(&mut *lock(&self.channels));
        drop(channels); // not under the lock: completions report the abort
    }

    pub(crate) fn find_departed(&self, job: &Job, shared: &Shared) {
        let departed = self.find(|waiting, parked, sequence| {
            let rank = shared.members[waiting.0];
            let departed = shared.members[waiting.1];
            job.has_left(departed).then(|| CollectiveError::Departed {
                group: shared.name.clone(),
                sequence,
                call: Box::new(parked.call),
                waiting: vec![rank],
                departed,
            })
        });
        if let Some(error @ CollectiveError::Departed { departed, .. }) = departed {
            job.abort_collective(departed, job.activity(departed), error);
        }
    }

    pub(crate) fn find_stuck(&self, job: &Job, shared: &Shared) {
        let mut late_rank = 0;
        let stuck = self.find(|waiting, parked, sequence| {
            if parked.call.tag.is_some_and(|tag| tag >= MESSAGE_TAGS) {
                return None; // who waits for a letter watches the call that it is for
            }
            late_rank = shared.members[waiting.1];
            let late = Late {
                rank: late_rank,
                activity: job.activity(late_rank),
                issued: sequence - 1,
                busy_with: job.busy_with(late_rank),
            };
            (parked.since.elapsed() > job.timeout).then(|| CollectiveError::Stuck {
                group: shared.name.clone(),
                sequence,
                call: Box::new(parked.call),
                waited: parked.since.elapsed(),
                arrived: vec![shared.members[waiting.0]],
                late: vec![late],
            })
        });
        if let Some(error) = stuck {
            job.abort_collective(late_rank, job.activity(late_rank), error);
        }
    }

    /// The first fault among the oldest parked sides; `fault` gets the indices (waiting, awaited).
    fn find(
        &self,
        mut fault: impl FnMut((usize, usize), &Parked, u64) -> Option<CollectiveError>,
    ) -> Option<CollectiveError> {
        lock(&self.channels).iter().find_map(|(ends, channel)| {
            let parked = channel.parked.front()?;
            let sends = parked.call.operation == CollectiveKind::Send;
            let waiting = if sends { (ends.from, ends.to) } else { (ends.to, ends.from) };
            fault(waiting, parked, channel.matched + 1)
        })
    }
}

/// Copies a message that was sent at `sent`, and completes both sides.
fn deliver(
    job: &Job,
    group: &Group,
    message: MessageInfo,
    sent: Instant,
    mut from: Box<dyn Parcel>,
    mut to: Box<dyn Parcel>,
) {
    let arrival = job.catch(group.rank(), || {
        from.mover().begin();
        to.mover().begin();
        let from = from.memory();
        let (to, mover) = to.lent();
        assert_eq!((from.kind(), from.elements()), (to.kind(), to.elements()), "a payload keeps its length");
        // SAFETY: two buffers of one length and kind, which this function has to itself.
        let moved = unsafe { mover.copy(from.kind(), from.address(), to.address(), from.elements(), false) };
        mover.fence();
        job.traffic(message.from).moved_message(moved);
        Ok(job.message_delay.as_ref().map(|delay| sent + delay.of(&message)))
    });
    if let Ok(arrival) = arrival {
        from.complete(None);
        to.complete(arrival);
    } // otherwise dropping the parcels reports the abort
}
