//! Exchanges between thread ranks: the receiver reads straight from the sender's buffer.
//!
//! The protocol that makes this sound:
//!
//! 1. A sender leaves a parcel, the address of a slice that it borrows, in the receiver's inbox and does not return from
//!    `exchange` before the parcel has been read, or withdrawn by itself under the inbox's lock.
//! 2. A receiver takes a parcel out of its inbox under the lock, reads it only after having found that type and length are
//!    those that it expects, and always says that it is done with it, also when the reading panics.

use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::call::Call;
use crate::error::{Aborted, CollectiveError, Late};
use crate::job::{Job, lock};
use crate::mover::Memory;
use crate::transport::{Exchange, Occasion, Receive};

/// The inboxes of all ranks.
pub(crate) struct Lanes {
    inboxes: Vec<Inbox>,
}

#[derive(Default)]
struct Inbox {
    state: Mutex<State>,
    /// A parcel has come. Its owner waits for one thing at a time: each wakes it by itself.
    arrived: Condvar,
    /// The owner's own parcel has been read.
    read: Condvar,
}

#[derive(Default)]
struct State {
    parcels: Vec<Parcel>,
    /// Whether the owner's own parcel lies unread in another's inbox.
    unread: bool,
}

struct Parcel {
    from: usize,
    occasion: Key,
    call: Call,
    address: *mut u8,
    elements: usize,
}

// SAFETY: the address is read under the protocol above only; elements are `Sync`.
unsafe impl Send for Parcel {}

/// What must agree between the two sides of an exchange beside their calls.
#[derive(PartialEq, Eq)]
struct Key {
    group: *const crate::group::Shared,
    sequence: u64,
}

impl Key {
    fn of(at: &Occasion<'_>) -> Self {
        Self { group: std::sync::Arc::as_ptr(&at.group.shared), sequence: at.sequence }
    }
}

/// Tells the sender that its parcel has been read, whatever happens to the reader.
struct Read<'a>(&'a Inbox);

impl Drop for Read<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).unread = false;
        self.0.read.notify_all();
    }
}

/// A parcel on its way: what it points to is lent until this is dropped.
struct Posted<'a> {
    lanes: &'a Lanes,
    at: Occasion<'a>,
    to: usize,
}

impl Drop for Posted<'_> {
    fn drop(&mut self) {
        if lock(&self.lanes.own(&self.at).state).unread {
            self.lanes.withdraw(&self.at, self.to);
        }
    }
}

impl Lanes {
    pub(crate) fn new(ranks: usize) -> Self {
        Self { inboxes: (0..ranks).map(|_| Inbox::default()).collect() }
    }

    /// After an abort or a departure: everybody who waits looks again.
    pub(crate) fn wake(&self) {
        for inbox in &self.inboxes {
            let _state = lock(&inbox.state);
            inbox.arrived.notify_all();
            inbox.read.notify_all();
        }
    }

    /// See [`Transport::exchange`](crate::transport::Transport::exchange).
    pub(crate) fn exchange(&self, job: &Job, at: Occasion<'_>, exchange: Exchange<'_>) -> Result<(), Aborted> {
        let Exchange { send, receive } = exchange;
        let start = Instant::now();
        // Dropped last, also when something below panics: then the slice is not borrowed any more.
        let _posted = send.map(|(to, memory)| {
            self.post(&at, to, memory);
            Posted { lanes: self, at, to }
        });
        let received = match receive {
            Some((from, receive)) => self.receive(job, &at, start, from, receive),
            None => Ok(()),
        };
        match send {
            Some((to, _)) => received.and(self.finish(job, &at, start, to)),
            None => received,
        }
    }

    fn inbox(&self, at: &Occasion<'_>, member: usize) -> &Inbox {
        &self.inboxes[at.group.members()[member]]
    }

    fn own(&self, at: &Occasion<'_>) -> &Inbox {
        &self.inboxes[at.group.rank()]
    }

    fn post(&self, at: &Occasion<'_>, to: usize, memory: Memory<'_>) {
        lock(&self.own(at).state).unread = true;
        let parcel = Parcel {
            from: at.group.rank(),
            occasion: Key::of(at),
            call: *at.call,
            address: memory.address(),
            elements: memory.elements(),
        };
        let inbox = self.inbox(at, to);
        lock(&inbox.state).parcels.push(parcel);
        inbox.arrived.notify_all();
    }

    fn receive(
        &self,
        job: &Job,
        at: &Occasion<'_>,
        start: Instant,
        from: usize,
        receive: Receive<'_>,
    ) -> Result<(), Aborted> {
        let sender = at.group.members()[from];
        let inbox = self.own(at);
        let mut state = lock(&inbox.state);
        let parcel = loop {
            if let Some(position) = state.parcels.iter().position(|parcel| parcel.from == sender) {
                break state.parcels.swap_remove(position);
            }
            state = wait_or_fail(job, at, start, from, &inbox.arrived, state)?;
        };
        drop(state);
        let _read = Read(&self.inboxes[sender]);
        let fits = parcel.occasion == Key::of(at) && parcel.call.agrees_with(at.call);
        let kind = parcel.call.kind.filter(|_| fits && parcel.elements == receive.elements());
        let Some(kind) = kind else {
            let error = mismatch(at, &parcel, fits, receive.elements());
            return Err(job.abort_collective(at.group.rank(), at.call.activity, error));
        };
        // SAFETY: the sender's slice has this type and length, and lives until `_read` is dropped; nobody writes to it
        // while its owner lends it.
        let sent = unsafe { Memory::new(parcel.address, parcel.elements, kind) };
        match receive {
            // SAFETY: both have as many elements, of one kind, and are lent until this is done; they are apart.
            Receive::Into(output) => unsafe {
                at.mover.copy(kind, sent.address(), output.address(), sent.elements(), false);
                at.mover.fence();
            },
            Receive::Pieces(_, take) => take(0, sent),
        }
        job.traffic(sender).moved(sent.bytes());
        Ok(())
    }

    /// Waits until the own parcel has been read.
    fn finish(&self, job: &Job, at: &Occasion<'_>, start: Instant, to: usize) -> Result<(), Aborted> {
        let inbox = self.own(at);
        let mut state = lock(&inbox.state);
        while state.unread {
            state = wait_or_fail(job, at, start, to, &inbox.read, state)?;
        }
        job.check()
    }

    /// Takes the own parcel back, or waits until who has taken it is done with it.
    fn withdraw(&self, at: &Occasion<'_>, to: usize) {
        let own = at.group.rank();
        let mut receiver = lock(&self.inbox(at, to).state);
        let there = receiver.parcels.iter().position(|parcel| parcel.from == own);
        if let Some(position) = there {
            receiver.parcels.swap_remove(position);
            drop(receiver);
            lock(&self.own(at).state).unread = false;
            return;
        }
        drop(receiver);
        let inbox = self.own(at);
        let mut state = lock(&inbox.state);
        while state.unread {
            state = inbox.read.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Why a parcel is not what was to arrive: the calls do not fit, or they do and their chunks have other lengths.
fn mismatch(at: &Occasion<'_>, parcel: &Parcel, fits: bool, expected: usize) -> CollectiveError {
    let group = at.group.shared_name();
    let sequence = at.sequence;
    let to = at.group.rank();
    if fits && at.call.chunks.is_some() {
        let from = parcel.from;
        let sent = parcel.elements;
        let call = Box::new(*at.call);
        return CollectiveError::Chunk { group, sequence, call, from, to, sent, expected };
    }
    let first = Box::new((parcel.from, parcel.call));
    let second = Box::new((to, *at.call));
    CollectiveError::Mismatch { group, sequence, first, second }
}

/// Waits for a change of the own inbox, or finds why none will come: the job is aborted, the partner has left or is late.
fn wait_or_fail<'a>(
    job: &Job,
    at: &Occasion<'_>,
    start: Instant,
    partner: usize,
    change: &Condvar,
    state: MutexGuard<'a, State>,
) -> Result<MutexGuard<'a, State>, Aborted> {
    if let Err(aborted) = job.check() {
        drop(state);
        return Err(aborted);
    }
    let rank = at.group.members()[partner];
    if job.has_left(rank) && !state.parcels.iter().any(|parcel| parcel.from == rank) {
        drop(state);
        let error = CollectiveError::Departed {
            group: at.group.shared_name(),
            sequence: at.sequence,
            call: Box::new(*at.call),
            waiting: vec![at.group.rank()],
            departed: rank,
        };
        return Err(job.abort_collective(rank, job.activity(rank), error));
    }
    let waited = start.elapsed();
    if waited > job.timeout {
        drop(state);
        return Err(stuck(job, at, partner, waited));
    }
    let pause = (job.timeout / 8).clamp(Duration::from_millis(1), Duration::from_millis(250));
    Ok(change.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0)
}

/// Aborts: late are the members that have not issued the collective, else the partner; of a message the partner.
pub(crate) fn stuck(job: &Job, at: &Occasion<'_>, partner: usize, waited: Duration) -> Aborted {
    let shared = &at.group.shared;
    let message = at.call.tag.is_some();
    let issued = |index: usize| {
        if message { at.sequence - u64::from(index == partner) } else { shared.issued[index].load(Ordering::Relaxed) }
    };
    let involved = |index: &usize| !message || *index == partner || *index == at.group.index();
    let (arrived, mut missing): (Vec<usize>, Vec<usize>) =
        (0..at.group.size()).filter(involved).partition(|index| issued(*index) >= at.sequence);
    if missing.is_empty() {
        missing.push(partner);
    }
    let late = |index: &usize| {
        let rank = shared.members[*index];
        Late { rank, activity: job.activity(rank), issued: issued(*index), busy_with: job.busy_with(rank) }
    };
    let first = shared.members[missing[0]];
    let error = CollectiveError::Stuck {
        group: shared.name.clone(),
        sequence: at.sequence,
        call: Box::new(*at.call),
        waited,
        arrived: arrived.into_iter().map(|index| shared.members[index]).collect(),
        late: missing.iter().map(late).collect(),
    };
    job.abort_collective(first, job.activity(first), error)
}
