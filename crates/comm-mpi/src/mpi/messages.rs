//! Messages between two ranks: posted at once on the rank's own thread, completed by whoever looks at the library.
//!
//! A channel is one direction of one tag in one group; MPI keeps the order of messages with equal tags. Its MPI tag is a
//! hash; two channels of a pair of ranks with one hash are an error.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use quadrille_comm::transport::{Job, MESSAGE_TAGS, Parcel};
use quadrille_comm::{Call, CollectiveError, Group};
use quadrille_spec::CollectiveKind;

use crate::mpi::inquiry::Wait;
use crate::mpi::library::{Lane, Library, MOST_BYTES, Request};
use crate::mpi::packet::ChannelKey;
use crate::mpi::port::Port;
use crate::mpi::segments::{part, parts};

#[derive(Default)]
pub(super) struct Messages {
    active: Vec<Message>,
    channels: BTreeMap<ChannelKey, Channel>,
    /// Channels by what the library tells them apart by: the other rank, the direction, the MPI tag.
    tags: BTreeMap<(usize, bool, i32), ChannelKey>,
    completed: u64,
}

#[derive(Default)]
struct Channel {
    posted: u64,
}

struct Message {
    job: Arc<Job>,
    group: Group,
    call: Call,
    sequence: u64,
    channel: ChannelKey,
    requests: Vec<Request>,
    /// Bytes that have come, and that are expected; of a send both are 0.
    bytes: (usize, usize),
    parcel: ParcelAddress,
    wait: Wait,
}

/// The buffer and whom to tell, where the library may read and write until the message is done: on the heap, by address, so
/// that whatever happens to the message it is not freed before.
struct ParcelAddress(*mut dyn Parcel);

// SAFETY: the address of a box of what is `Send`, owned by this alone.
unsafe impl Send for ParcelAddress {}

impl Messages {
    /// Whether messages are under way.
    pub(super) fn outstanding(&self) -> bool {
        !self.active.is_empty()
    }

    /// Messages that are done.
    pub(super) fn completed(&self) -> u64 {
        self.completed
    }

    /// Messages that this rank has posted on a channel.
    pub(super) fn posted(&self, channel: &ChannelKey) -> u64 {
        self.channels.get(channel).map_or(0, |channel| channel.posted)
    }

    /// This rank is at the message of a number on a channel whose messages somebody else carries.
    pub(super) fn watched(&mut self, channel: ChannelKey, number: u64) {
        self.channels.entry(channel).or_default().posted = number;
    }

    /// Completes what is done, and finds messages that nobody sends or receives.
    pub(super) fn progress(&mut self, port: &Port, library: &mut Library) {
        let mut position = 0;
        while position < self.active.len() {
            match self.active[position].progress(port, library) {
                Ok(false) => position += 1,
                Ok(true) => {
                    let message = self.active.remove(position);
                    message.wait.end(port);
                    self.completed += 1;
                    // SAFETY: the address is of the box that `post` gave away, and the library is done with it.
                    let parcel = unsafe { Box::from_raw(message.parcel.0) };
                    // Code of the buffer's type may panic when it is dropped.
                    let _ = message.job.catch(port.rank, || {
                        parcel.complete(None);
                        Ok(())
                    });
                }
                Err(()) => {
                    // The job is aborted; the library may go on using the buffer, which is not freed.
                    self.active.remove(position);
                }
            }
        }
    }

    /// Gives up what is under way in a job that is over: nobody will send or receive it.
    pub(super) fn retire(&mut self, library: &mut Library, job: u64) {
        for message in self.active.extract_if(.., |message| message.channel.job == job) {
            if !message.channel.sends {
                message.requests.into_iter().for_each(|request| library.cancel(request));
            }
        }
        self.channels.retain(|channel, _| channel.job != job);
        self.tags.retain(|_, channel| channel.job != job);
    }
}

impl Message {
    /// Whether it is done; an error has aborted the job.
    fn progress(&mut self, port: &Port, library: &mut Library) -> Result<bool, ()> {
        while let Some(request) = self.requests.first_mut() {
            match library.test(request) {
                Ok(Some(arrived)) => {
                    self.requests.remove(0);
                    self.wait.progressed();
                    if !self.channel.sends {
                        self.bytes.0 += arrived.bytes;
                    }
                }
                Ok(None) => {
                    self.job.check().map_err(|_| ())?;
                    // Who waits for a letter watches the call that it is for.
                    let is_letter = self.channel.tag >= MESSAGE_TAGS;
                    let fault = if is_letter { None } else { self.wait.look(port, &self.job) };
                    if let Some((rank, activity, error)) = fault {
                        self.job.abort_collective(rank, activity, error);
                        return Err(());
                    }
                    return Ok(false);
                }
                Err(error) => return self.fail(port, error.to_string()),
            }
        }
        let (came, expected) = self.bytes;
        if came == expected {
            return Ok(true);
        }
        let from = self.channel.other;
        self.fail(port, format!("{came} bytes came from rank {from} where {expected} were expected"))
    }

    fn fail(&self, port: &Port, error: String) -> Result<bool, ()> {
        let group = self.group.shared_name();
        let call = Box::new(self.call);
        let error = CollectiveError::Transport { group, sequence: self.sequence, call, error };
        self.job.abort_collective(port.rank, self.call.activity, error);
        Err(())
    }
}

impl Port {
    /// Posts one side of a message; `call.peer` is the other member. The parcel learns of the outcome, but of an abort.
    pub(crate) fn post(&self, job: &Arc<Job>, group: &Group, call: Call, parcel: Box<dyn Parcel>) {
        if job.check().is_err() {
            return; // dropping the parcel reports the abort
        }
        let sends = call.operation == CollectiveKind::Send;
        let Some(channel) = ChannelKey::of(job, group, &call) else { unreachable!("messages have tags") };
        let side = Box::into_raw(parcel);
        let view = job.catch(self.rank, || {
            // SAFETY: the box was just given away to this function; the buffer's address is used while it is alive.
            let memory = unsafe { (*side).memory() };
            Ok((memory.address(), memory.bytes()))
        });
        let Ok((address, bytes)) = view else {
            // SAFETY: nobody has got the address.
            drop(unsafe { Box::from_raw(side) });
            return;
        };
        let mut desk = self.enter();
        let desk = &mut *desk;
        let mpi_tag = desk.library.tag(tag_hash(&channel, &call));
        let known = desk.messages.tags.entry((channel.other, sends, mpi_tag)).or_insert(channel);
        if *known != channel {
            let text = format!(
                "its tag meets tag {} of a group with the same ranks {} and {} in the MPI library's tags; use another",
                known.tag, self.rank, channel.other
            );
            let error = CollectiveError::Transport {
                group: group.shared_name(),
                sequence: 0,
                call: Box::new(call),
                error: text,
            };
            job.abort_collective(self.rank, call.activity, error);
            // SAFETY: nobody has got the address.
            drop(unsafe { Box::from_raw(side) });
            return;
        }
        let counter = desk.messages.channels.entry(channel).or_default();
        counter.posted += 1;
        let sequence = counter.posted;
        let mut message = Message {
            job: job.clone(),
            group: group.clone(),
            call,
            sequence,
            channel,
            requests: Vec::new(),
            bytes: (0, if sends { 0 } else { bytes }),
            parcel: ParcelAddress(side),
            wait: Wait::new(group, &call, sequence, Some(channel)),
        };
        // SAFETY: the buffer stays where it is, in a box that only the completed message opens; `bytes` is its length.
        match unsafe { start(&mut desk.library, &channel, mpi_tag, address, bytes) } {
            Ok((requests, handed)) => {
                message.requests = requests;
                if sends {
                    job.traffic(self.rank).moved_message(handed);
                }
                desk.messages.active.push(message);
                self.ring();
            }
            Err(error) => {
                let _aborted = message.fail(self, error);
            }
        }
    }
}

/// Starts the parts of a message; also returns how many bytes the library has been given.
///
/// # Safety
/// There are `bytes` at `address`, which nobody else touches until all requests are done.
unsafe fn start(
    library: &mut Library,
    channel: &ChannelKey,
    tag: i32,
    address: *mut u8,
    bytes: usize,
) -> Result<(Vec<Request>, usize), String> {
    let mut requests = Vec::new();
    let mut handed = 0;
    for number in 0..parts(bytes, MOST_BYTES) {
        let (start, bytes) = part(bytes, MOST_BYTES, number);
        let address = address.wrapping_add(start);
        // SAFETY: the part lies within the bytes; the rest is the caller's.
        let request = unsafe {
            if channel.sends {
                library.send(Lane::Messages, address, bytes, channel.other, tag)
            } else {
                library.receive(Lane::Messages, address, bytes, Some(channel.other), tag)
            }
        };
        requests.push(request.map_err(|error| error.to_string())?);
        handed += bytes;
    }
    Ok((requests, handed))
}

/// The two sides of a channel have one hash; messages of different element types none in common.
fn tag_hash(channel: &ChannelKey, call: &Call) -> u64 {
    let mut hasher = DefaultHasher::new();
    (channel.job, channel.group, channel.tag, call.element).hash(&mut hasher);
    hasher.finish()
}
