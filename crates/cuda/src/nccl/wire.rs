//! What carries a rank's collectives between devices: the library's own, or the steps of an algorithm by its sends and
//! receives.
//!
//! Of a collective's members nobody compares the calls once their communicator is there: calls that do not fit end by the job's
//! timeout.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use quadrille_comm::transport::{Carrier, Exchange, Job, Occasion, Parcel, Receive, Slices};
use quadrille_comm::{Aborted, Call, Group, Memory, Reduction};
use quadrille_spec::CollectiveKind;

use super::channel::Channels;
use super::communicator::Communicator;
use super::founding::found;
use super::functions::{Code, Functions, Handle, IN_PROGRESS, SUCCESS, number_of, number_of_reduction};
use crate::driver::{Driver, Fault, Stream};
use crate::memory::Room;

/// The tag of letters by which a group's communicator is founded. Those of channels are less.
pub(super) const OF_GROUPS: u32 = u32::MAX;

/// A rank's communicators.
pub(crate) struct Wire {
    driver: Arc<dyn Driver>,
    /// Of collectives.
    traffic: Stream,
    /// What arrives, before it is reduced.
    arrivals: Room,
    /// Communicators of groups, by members; used by one collective at a time.
    groups: Mutex<BTreeMap<Arc<[usize]>, Communicator>>,
    channels: Channels,
    /// The job that it is of.
    job: OnceLock<Weak<Job>>,
}

impl Wire {
    /// Of a rank on a device, with the streams of its kernels and its collectives.
    pub(crate) fn new(driver: &Arc<dyn Driver>, compute: Stream, traffic: Stream, arrivals: Room) -> Self {
        Self {
            driver: driver.clone(),
            traffic,
            arrivals,
            groups: Mutex::default(),
            channels: Channels::new(driver.clone(), compute),
            job: OnceLock::new(),
        }
    }

    fn groups(&self) -> MutexGuard<'_, BTreeMap<Arc<[usize]>, Communicator>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn belongs_to(&self, job: &Arc<Job>) {
        self.job.get_or_init(|| Arc::downgrade(job));
    }

    /// Calls functions with the communicator of the group, and returns when all of it is done.
    fn perform(
        &self,
        job: &Arc<Job>,
        at: Occasion<'_>,
        call: impl FnOnce(&Functions, Handle) -> Result<(), Code>,
    ) -> Result<(), Aborted> {
        self.belongs_to(job);
        let mut groups = self.groups();
        let members = at.group.shared_members();
        if !groups.contains_key(&members) {
            let all: Vec<usize> = (0..at.group.size()).collect();
            groups.insert(members.clone(), found(job, at, self.driver.as_ref(), &all, OF_GROUPS)?);
        }
        let Some(communicator) = groups.get_mut(&members) else { unreachable!("it was just put there") };
        perform(job, at, self.driver.as_ref(), self.traffic, communicator, call)
    }

    fn stream(&self) -> *mut c_void {
        self.traffic.0 as *mut c_void
    }
}

/// Calls functions with a communicator on a stream of the rank's device, and returns when what they have put into the stream is
/// done. After an abort the communicator is none any more.
pub(super) fn perform(
    job: &Job,
    at: Occasion<'_>,
    driver: &dyn Driver,
    stream: Stream,
    communicator: &mut Communicator,
    call: impl FnOnce(&Functions, Handle) -> Result<(), Code>,
) -> Result<(), Aborted> {
    job.check()?; // after an abort there is no communicator
    let begun = driver.device().enter().and_then(|()| driver.event());
    let done = begun.map_err(|fault| job.abort_carried(&at, fault.to_string()))?;
    let outcome = communicator.call(at.call.operation.name(), call);
    let outcome = outcome.map_err(|fault| job.abort_carried(&at, fault.to_string())).and_then(|()| {
        let mut recorded = false;
        let mut look = || -> Result<bool, Fault> {
            // Until the library has put all of it there, the stream has no place behind it.
            if !communicator.is_ready()? {
                return Ok(false);
            }
            if !std::mem::replace(&mut recorded, true) {
                driver.record(done, stream)?;
            }
            driver.query(done)
        };
        job.watch(at, &mut || look().map_err(|fault| fault.to_string()))
    });
    if outcome.is_err() {
        communicator.abort();
    }
    driver.forget(done);
    outcome
}

/// What a function said, as an error if it is one.
pub(super) fn fine(code: Code) -> Result<(), Code> {
    if code == SUCCESS || code == IN_PROGRESS { Ok(()) } else { Err(code) }
}

/// Calls functions as one group; what it begins it ends.
fn together(functions: &Functions, calls: impl FnOnce() -> Result<(), Code>) -> Result<(), Code> {
    // SAFETY: takes nothing.
    fine(unsafe { (functions.group_start)() })?;
    let called = calls();
    // SAFETY: as above.
    called.and(fine(unsafe { (functions.group_end)() }))
}

impl Carrier for Wire {
    fn native(&self, job: &Arc<Job>, at: Occasion<'_>, slices: Slices<'_>) -> Result<(), Aborted> {
        let size = at.group.size();
        let index = at.group.index();
        let (input, output) = slices.lengths(size);
        let Some(kind) = slices.kind().filter(|kind| at.call.kind == Some(*kind)) else {
            unreachable!("a call describes its own buffers")
        };
        let (from, to) = slices.addresses(size, index);
        let number = number_of(kind);
        let stream = self.stream();
        let how = number_of_reduction(at.call.reduction.unwrap_or(Reduction::Sum));
        let root = at.call.peer.unwrap_or(0) as c_int;
        let mut handed = 0;
        let mut hand = |elements: usize, parts: usize| {
            handed += elements * parts;
            elements
        };
        self.perform(job, at, |functions, group| {
            let from = from.cast::<c_void>();
            let to = to.cast::<c_void>();
            // In all arms: buffers of the lengths that the call states, lent until the work is done, on the device of the
            // communicator; `broken_rule` has admitted the lengths.
            fine(match at.call.operation {
                CollectiveKind::AllReduce => {
                    // SAFETY: as above.
                    unsafe { (functions.all_reduce)(from, to, hand(input, 1), number, how, group, stream) }
                }
                CollectiveKind::Reduce => {
                    // SAFETY: as above.
                    unsafe { (functions.reduce)(from, to, hand(input, 1), number, how, root, group, stream) }
                }
                CollectiveKind::ReduceScatter => {
                    // SAFETY: as above.
                    unsafe { (functions.reduce_scatter)(from, to, hand(output, size), number, how, group, stream) }
                }
                CollectiveKind::AllGather => {
                    // SAFETY: as above.
                    unsafe { (functions.all_gather)(from, to, hand(input, 1), number, group, stream) }
                }
                CollectiveKind::Broadcast => {
                    // SAFETY: as above.
                    unsafe { (functions.broadcast)(from, to, hand(input, 1), number, root, group, stream) }
                }
                CollectiveKind::AllToAll => {
                    let each = hand(input / size, size);
                    let place = |member: usize| member * each * kind.bytes();
                    return together(functions, || {
                        (0..size).filter(|_| each > 0).try_for_each(|member| {
                            let from = from.wrapping_byte_add(place(member));
                            let to = to.wrapping_byte_add(place(member));
                            let member = member as c_int;
                            // SAFETY: as above.
                            unsafe {
                                fine((functions.send)(from, each, number, member, group, stream))?;
                                fine((functions.receive)(to, each, number, member, group, stream))
                            }
                        })
                    });
                }
                CollectiveKind::Barrier
                | CollectiveKind::Send
                | CollectiveKind::Receive
                | CollectiveKind::Fetch
                | CollectiveKind::Store => unreachable!("{} moves no memory of a group", at.call.operation.name()),
            })
        })?;
        job.traffic(at.group.rank()).moved(handed * kind.bytes());
        Ok(())
    }

    fn native_bytes(&self, _group: &Group, call: &Call, _slices: &Slices<'_>) -> u64 {
        call.bytes(call.input)
    }

    fn message(&self, job: &Arc<Job>, group: &Group, call: Call, parcel: Box<dyn Parcel>) {
        self.belongs_to(job);
        self.channels.post(job, group, call, parcel);
    }

    fn exchange(&self, job: &Arc<Job>, at: Occasion<'_>, exchange: Exchange<'_>) -> Result<(), Aborted> {
        let Some(kind) = at.call.kind else { unreachable!("calls of this process have a kind") };
        let Exchange { send, receive } = exchange;
        let send = send.filter(|(_, memory)| memory.elements() > 0);
        let receive = receive.filter(|(_, receive)| receive.elements() > 0);
        if send.is_none() && receive.is_none() {
            return job.check();
        }
        let arriving = match &receive {
            None => None,
            Some((from, Receive::Into(memory))) => Some((*from, memory.address(), memory.elements())),
            Some((from, Receive::Pieces(elements, _))) => {
                let room = self.arrivals.at_least(elements * kind.bytes());
                let room = room.map_err(|fault| job.abort_carried(&at, fault.to_string()))?;
                Some((*from, room.0 as *mut u8, *elements))
            }
        };
        let number = number_of(kind);
        let stream = self.stream();
        self.perform(job, at, |functions, group| {
            together(functions, || {
                // SAFETY: memory of so many elements, lent until the work is done, on the device of the communicator.
                unsafe {
                    if let Some((to, memory)) = send {
                        let from = memory.address().cast_const().cast();
                        fine((functions.send)(from, memory.elements(), number, to as c_int, group, stream))?;
                    }
                    if let Some((from, to, elements)) = arriving {
                        fine((functions.receive)(to.cast(), elements, number, from as c_int, group, stream))?;
                    }
                }
                Ok(())
            })
        })?;
        if let Some((_, memory)) = send {
            job.traffic(at.group.rank()).moved(memory.bytes());
        }
        if let (Some((_, Receive::Pieces(_, take))), Some((_, address, elements))) = (receive, arriving) {
            // SAFETY: so many have just arrived there, in memory that one collective uses at a time.
            take(0, unsafe { Memory::new(address, elements, kind) });
        }
        job.check()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        // Of a job that failed others may never come to the end.
        let failed = self.job.get().and_then(Weak::upgrade).is_none_or(|job| job.check().is_err());
        let groups = std::mem::take(self.groups.get_mut().unwrap_or_else(PoisonError::into_inner));
        let entered = self.driver.device().enter().is_ok();
        for mut communicator in groups.into_values() {
            if failed || !entered { communicator.abort() } else { communicator.close() }
        }
    }
}
