//! What carries a rank's messages: each has a thread, a stream and a communicator of two ranks for its group, tag, direction and
//! other rank.
//!
//! A communicator does what it is given in one order, on both sides. Messages of one tag have one, those of several do not: a
//! receive that is early would hold back what comes first. A rank that posts a message never waits.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::{c_int, c_void};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle, current};

use quadrille_comm::transport::{Job, MESSAGE_TAGS, Occasion, Parcel};
use quadrille_comm::{Aborted, Call, Cause, Group};
use quadrille_spec::CollectiveKind;

use super::communicator::Communicator;
use super::founding::found;
use super::functions::number_of;
use super::wire::{OF_GROUPS, fine, perform};
use crate::driver::{Driver, Event, Fault, Stream};

/// The group's key, the other member, whether it is sent to, the tag.
type Key = (u64, usize, bool, u32);

/// A rank's channels.
pub(super) struct Channels {
    driver: Arc<dyn Driver>,
    /// The stream of the rank's kernels.
    compute: Stream,
    open: Mutex<BTreeMap<Key, Channel>>,
}

/// A channel, as those who post see it.
struct Channel {
    errands: Sender<Errand>,
    thread: JoinHandle<()>,
}

/// One side of a message.
struct Errand {
    call: Call,
    after: Before,
    parcel: Box<dyn Parcel>,
}

/// What the rank's kernels did before a message was posted.
struct Before {
    driver: Arc<dyn Driver>,
    event: Event,
}

impl Before {
    fn now(driver: &Arc<dyn Driver>, compute: Stream) -> Result<Self, Fault> {
        let before = Self { driver: driver.clone(), event: driver.event()? };
        driver.record(before.event, compute)?;
        Ok(before)
    }
}

impl Drop for Before {
    fn drop(&mut self) {
        self.driver.forget(self.event);
    }
}

impl Channels {
    pub(super) fn new(driver: Arc<dyn Driver>, compute: Stream) -> Self {
        Self { driver, compute, open: Mutex::default() }
    }

    /// See [`Carrier::message`](quadrille_comm::transport::Carrier::message).
    pub(super) fn post(&self, job: &Arc<Job>, group: &Group, call: Call, parcel: Box<dyn Parcel>) {
        if job.check().is_err() {
            return; // dropping the parcel reports the abort
        }
        let sends = call.operation == CollectiveKind::Send;
        let peer = call.peer.unwrap_or_default();
        let tag = call.tag.unwrap_or_default();
        let at = Occasion { group, call: &call, sequence: 0, mover: parcel.mover() };
        let after = match Before::now(&self.driver, self.compute) {
            Ok(after) => after,
            Err(fault) => {
                job.abort_carried(&at, fault.to_string());
                return;
            }
        };
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let channel = match open.entry((group.key(), peer, sends, tag)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => match self.start(job, group) {
                Ok(channel) => place.insert(channel),
                Err(error) => {
                    job.abort(group.rank(), call.activity, Cause::Spawn(Arc::new(error)));
                    return;
                }
            },
        };
        // A channel that has ended had its job aborted: then the errand is dropped with its parcel.
        let _ = channel.errands.send(Errand { call, after, parcel });
    }

    fn start(&self, job: &Arc<Job>, group: &Group) -> std::io::Result<Channel> {
        let (errands, come) = channel();
        let carried = Carried {
            driver: self.driver.clone(),
            job: job.clone(),
            group: group.clone(),
            stream: None,
            communicator: None,
            done: 0,
        };
        let thread = Builder::new().name(format!("messages {}", group.rank())).spawn(move || carried.serve(&come))?;
        Ok(Channel { errands, thread })
    }
}

impl Drop for Channels {
    fn drop(&mut self) {
        let open = std::mem::take(self.open.get_mut().unwrap_or_else(PoisonError::into_inner));
        for Channel { errands, thread } in open.into_values() {
            drop(errands);
            // The last buffer of a rank may go with its last message. A thread that panicked has aborted its job.
            if thread.thread().id() != current().id() {
                let _ = thread.join();
            }
        }
    }
}

/// What the thread of a channel has.
struct Carried {
    driver: Arc<dyn Driver>,
    job: Arc<Job>,
    group: Group,
    stream: Option<Stream>,
    communicator: Option<Communicator>,
    /// Messages that are done.
    done: u64,
}

impl Carried {
    fn serve(mut self, errands: &Receiver<Errand>) {
        while let Ok(errand) = errands.recv() {
            let job = self.job.clone();
            let rank = self.group.rank();
            // An error has aborted the job, and the parcel was dropped.
            let _ = job.catch(rank, || self.carry(errand));
        }
        let good = self.job.check().is_ok() && self.driver.device().enter().is_ok();
        if let Some(communicator) = self.communicator.take().filter(|_| good) {
            communicator.close();
        }
    }

    fn carry(&mut self, errand: Errand) -> Result<(), Aborted> {
        let Errand { call, after, mut parcel } = errand;
        self.job.check()?;
        let memory = parcel.memory();
        let address = memory.address();
        let elements = memory.elements();
        let kind = memory.kind();
        let bytes = memory.bytes();
        let group = self.group.clone();
        let job = self.job.clone();
        let at = Occasion { group: &group, call: &call, sequence: self.done + 1, mover: parcel.mover() };
        let told = |fault: Fault| job.abort_carried(&at, fault.to_string());
        let sends = call.operation == CollectiveKind::Send;
        let own = group.index();
        let peer = call.peer.unwrap_or_default();
        let ends = if sends { [own, peer] } else { [peer, own] };
        if self.communicator.is_none() {
            let tag = letters_of(call.tag.unwrap_or_default(), ends);
            self.communicator = Some(found(&job, at, self.driver.as_ref(), &ends, tag)?);
        }
        let Some(communicator) = &mut self.communicator else { unreachable!("it is there") };
        let stream = match self.stream {
            Some(stream) => stream,
            None => *self.stream.insert(self.driver.stream(true).map_err(told)?),
        };
        self.driver.wait(stream, after.event).map_err(told)?;
        let number = number_of(kind);
        let handle = stream.0 as *mut c_void;
        // In a communicator of two the sender comes first.
        let other = c_int::from(sends);
        perform(&job, at, self.driver.as_ref(), stream, communicator, |functions, pair| {
            // SAFETY: the parcel's memory, of so many elements, is lent until the work is done.
            fine(unsafe {
                if elements == 0 {
                    0
                } else if sends {
                    (functions.send)(address.cast(), elements, number, other, pair, handle)
                } else {
                    (functions.receive)(address.cast(), elements, number, other, pair, handle)
                }
            })
        })?;
        self.done += 1;
        if sends {
            job.traffic(group.rank()).moved_message(bytes);
        }
        parcel.complete(None);
        Ok(())
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        // Its commands are done, or those of a communicator that is aborted.
        self.communicator = None;
        self.stream.take().into_iter().for_each(|stream| self.driver.close(stream));
    }
}

/// The tag of letters by which a channel is founded: both directions of a tag have their own, which no message has. They are
/// counted down from that of groups.
fn letters_of(tag: u32, [from, to]: [usize; 2]) -> u32 {
    const { assert!(OF_GROUPS - 2 * MESSAGE_TAGS >= MESSAGE_TAGS, "letters have tags of their own") };
    assert!(tag < MESSAGE_TAGS, "groups refuse tag {tag}");
    OF_GROUPS - 1 - (2 * tag + u32::from(from > to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tag_and_direction_has_letters_of_its_own() {
        let some = (0..5).chain(MESSAGE_TAGS - 5..MESSAGE_TAGS);
        let mut tags: Vec<u32> = some.flat_map(|tag| [letters_of(tag, [3, 7]), letters_of(tag, [7, 3])]).collect();
        tags.push(OF_GROUPS);
        assert!(tags.iter().all(|tag| *tag >= MESSAGE_TAGS), "messages have them: {tags:?}");
        let all = tags.len();
        tags.sort_unstable();
        tags.dedup();
        assert_eq!(tags.len(), all);
    }
}
