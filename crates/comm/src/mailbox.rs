//! Messages between two members. Neither side blocks its communication thread: the first to come leaves its buffer,
//! the second copies and completes both, so sends and receives in any order cannot lock each other out.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::time::Instant;

use quadrille_spec::CollectiveKind;

use crate::call::Call;
use crate::element::{Buffer, Element};
use crate::error::{CollectiveError, Late};
use crate::group::{Group, Shared};
use crate::job::{Job, lock};
use crate::pending::Completion;

/// A group's messages in flight, by the member indices of sender and receiver.
#[derive(Default)]
pub(crate) struct Mailbox {
    channels: Mutex<BTreeMap<(usize, usize), Channel>>,
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
    /// A `Box<dyn Parcel<T>>`.
    parcel: Box<dyn Any + Send>,
}

/// One side of a message: its buffer, and whom to tell.
trait Parcel<T>: Send {
    fn read(&self) -> &[T];
    fn write(&mut self) -> &mut [T];
    fn complete(self: Box<Self>);
}

struct Side<B> {
    buffer: B,
    completion: Completion<B>,
}

impl<T: Element, B: Buffer<T>> Parcel<T> for Side<B> {
    fn read(&self) -> &[T] {
        self.buffer.as_ref()
    }

    fn write(&mut self) -> &mut [T] {
        self.buffer.as_mut()
    }

    fn complete(self: Box<Self>) {
        self.completion.complete(Ok(self.buffer));
    }
}

impl Mailbox {
    /// Posts one side of a message; `call.peer` is the other member. `completion` learns of every outcome.
    pub(crate) fn post<T: Element, B: Buffer<T>>(
        &self,
        job: &Job,
        group: &Group,
        call: Call,
        buffer: B,
        completion: Completion<B>,
    ) {
        let own: Box<dyn Parcel<T>> = Box::new(Side { buffer, completion });
        let mut channels = lock(&self.channels);
        if job.check().is_err() {
            return; // dropping the completion reports the abort
        }
        let ends = ends(group.index(), &call);
        let channel = channels.entry(ends).or_default();
        if channel.parked.front().is_none_or(|other| other.call.operation == call.operation) {
            channel.parked.push_back(Parked { since: Instant::now(), call, parcel: Box::new(own) });
            drop(channels);
            return self.find_departed(job, &group.shared);
        }
        channel.matched += 1;
        let sequence = channel.matched;
        let Some(other) = channel.parked.pop_front() else { return };
        drop(channels);
        let lengths = (call.input, other.call.input);
        match other.parcel.downcast::<Box<dyn Parcel<T>>>() {
            Ok(parked) if lengths.0 == lengths.1 => {
                let (from, mut to) =
                    if call.operation == CollectiveKind::Send { (own, *parked) } else { (*parked, own) };
                to.write().copy_from_slice(from.read());
                from.complete();
                to.complete();
            }
            _ => {
                let first = group.shared.members[call.peer.unwrap_or_default()];
                let error = CollectiveError::Mismatch {
                    group: group.shared_name(),
                    sequence,
                    first: Box::new((first, other.call)),
                    second: Box::new((group.rank(), call)),
                };
                job.abort_collective(group.rank(), call.activity, error);
            }
        }
    }

    /// After an abort: everybody who waits for a message returns its error.
    pub(crate) fn clear(&self) {
        let channels = std::mem::take(&mut *lock(&self.channels));
        drop(channels); // not under the lock: completions report the abort
    }

    pub(crate) fn find_departed(&self, job: &Job, shared: &Shared) {
        let departed = self.find(|waiting, parked, sequence| {
            let (rank, departed) = (shared.members[waiting.0], shared.members[waiting.1]);
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
        lock(&self.channels).iter().find_map(|(&(from, to), channel)| {
            let parked = channel.parked.front()?;
            let waiting = if parked.call.operation == CollectiveKind::Send { (from, to) } else { (to, from) };
            fault(waiting, parked, channel.matched + 1)
        })
    }
}

/// Sender and receiver of a message that member `index` calls for.
fn ends(index: usize, call: &Call) -> (usize, usize) {
    let peer = call.peer.unwrap_or_default();
    if call.operation == CollectiveKind::Send { (index, peer) } else { (peer, index) }
}
