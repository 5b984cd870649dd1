//! One step of a collective's algorithm: segments to one rank and from another, both under way at once.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::{size_of, size_of_val};
use std::thread::park;

use crate::element::Element;
use crate::error::{Aborted, CollectiveError};
use crate::job::Job;
use crate::mpi::inquiry::Wait;
use crate::mpi::library::{Lane, Library, Request};
use crate::mpi::pace::Pace;
use crate::mpi::port::Port;
use crate::transport::{Exchange, Occasion, Receive};

/// Bytes of a segment: a multiple of every element's size. The work on one runs while the next are under way.
const SEGMENT: usize = 128 << 10;

/// Segments that are under way at a time, in each direction.
const WINDOW: usize = 8;

/// Never returns: the library may still read and write what the caller has lent. The process ends soon.
pub(super) fn strand() -> ! {
    loop {
        park();
    }
}

/// What must agree between the two sides of an exchange, as a number. Programs that do not fit together do not match, but
/// for one in four million at the least.
pub(super) fn hash(job: &Job, at: &Occasion<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    let call = at.call;
    let reduction = call.reduction.map(|reduction| reduction as u8);
    (job.number(), at.group.shared.key, at.sequence).hash(&mut hasher);
    (call.operation, reduction, call.peer, call.element, call.input, call.output).hash(&mut hasher);
    hasher.finish()
}

struct Outgoing {
    address: *const u8,
    bytes: usize,
    to: usize,
    tag: i32,
    posted: usize,
    flight: VecDeque<Request>,
}

impl Outgoing {
    /// Sends what the window admits; whether something has left.
    ///
    /// # Safety
    /// The bytes at the address are there and do not change until `is_done`.
    unsafe fn advance(&mut self, library: &mut Library) -> Result<bool, String> {
        let mut progressed = false;
        while let Some(front) = self.flight.front_mut() {
            if library.test(front).map_err(|error| error.to_string())?.is_none() {
                break;
            }
            self.flight.pop_front();
            progressed = true;
        }
        while self.posted < segments(self.bytes) && self.flight.len() < WINDOW {
            let (start, bytes) = segment(self.bytes, self.posted);
            // SAFETY: the segment lies within the bytes; the rest is the caller's.
            let request =
                unsafe { library.send(Lane::Collectives, self.address.wrapping_add(start), bytes, self.to, self.tag) };
            self.flight.push_back(request.map_err(|error| error.to_string())?);
            self.posted += 1;
        }
        Ok(progressed)
    }

    fn is_done(&self) -> bool {
        self.posted == segments(self.bytes) && self.flight.is_empty()
    }
}

/// Where segments arrive.
enum Place {
    /// In the buffer that they are for.
    There(*mut u8),
    /// In blocks, one after the other, until they have been handled.
    Blocks(Vec<Vec<u64>>),
}

struct Incoming {
    place: Place,
    bytes: usize,
    from: usize,
    tag: i32,
    posted: usize,
    arrived: usize,
    handled: usize,
    flight: VecDeque<Request>,
}

impl Incoming {
    /// Receives what the window admits; whether something has come.
    ///
    /// # Safety
    /// Nobody else touches the place until `is_done`.
    unsafe fn advance(&mut self, library: &mut Library) -> Result<bool, String> {
        let mut progressed = false;
        while let Some(front) = self.flight.front_mut() {
            let Some(arrived) = library.test(front).map_err(|error| error.to_string())? else { break };
            let (_, bytes) = segment(self.bytes, self.arrived);
            if arrived.bytes != bytes {
                return Err(format!(
                    "{} bytes came from rank {} where {bytes} were expected",
                    arrived.bytes, self.from
                ));
            }
            self.flight.pop_front();
            self.arrived += 1;
            progressed = true;
        }
        if let Place::There(_) = self.place {
            self.handled = self.arrived;
        }
        while self.posted < segments(self.bytes) && self.posted < self.handled + WINDOW {
            let (start, bytes) = segment(self.bytes, self.posted);
            let address = match &mut self.place {
                Place::There(address) => address.wrapping_add(start),
                Place::Blocks(blocks) => blocks[self.posted % WINDOW].as_mut_ptr().cast(),
            };
            // SAFETY: the segment lies within the buffer, or within a block that has been handled; the rest is the caller's.
            let request = unsafe { library.receive(Lane::Collectives, address, bytes, Some(self.from), self.tag) };
            self.flight.push_back(request.map_err(|error| error.to_string())?);
            self.posted += 1;
        }
        Ok(progressed)
    }

    fn is_done(&self) -> bool {
        self.handled == segments(self.bytes)
    }

    /// Hands over the segments that have arrived in blocks.
    fn hand_over<T: Element>(&mut self, handle: &mut dyn FnMut(usize, &[T])) {
        const { assert!(SEGMENT.is_multiple_of(size_of::<T>()) && align_of::<T>() <= align_of::<u64>()) };
        let Place::Blocks(blocks) = &self.place else { return };
        while self.handled < self.arrived {
            let (start, bytes) = segment(self.bytes, self.handled);
            let block = &blocks[self.handled % WINDOW];
            let (start, elements) = (start / size_of::<T>(), bytes / size_of::<T>());
            // SAFETY: a block holds a segment, aligned for every element, and any bytes are an element.
            let arrived = unsafe { std::slice::from_raw_parts(block.as_ptr().cast::<T>(), elements) };
            handle(start, arrived);
            self.handled += 1;
        }
    }
}

/// How many segments carry so many bytes: one, empty, also where there are none.
fn segments(bytes: usize) -> usize {
    bytes.div_ceil(SEGMENT).max(1)
}

/// Start and length of a segment.
fn segment(bytes: usize, number: usize) -> (usize, usize) {
    let start = number * SEGMENT;
    (start, (bytes - start).min(SEGMENT))
}

impl Port {
    /// See [`Transport::exchange`](crate::transport::Transport::exchange). After an abort it does not return while the
    /// library may still touch what was lent; waits for the collective end by the abort all the same.
    pub(crate) fn exchange<T: Element>(
        &self,
        job: &Job,
        at: Occasion<'_>,
        exchange: Exchange<'_, T>,
    ) -> Result<(), Aborted> {
        self.exchange_as(hash(job, &at), job, at, exchange)
    }

    /// As `exchange`, matched by this number.
    pub(super) fn exchange_as<T: Element>(
        &self,
        hash: u64,
        job: &Job,
        at: Occasion<'_>,
        exchange: Exchange<'_, T>,
    ) -> Result<(), Aborted> {
        job.check()?;
        let rank = |member: usize| at.group.members()[member];
        let mut handle = None;
        let (mut outgoing, mut incoming) = {
            let mut desk = self.enter();
            let tag = desk.library.tag(hash);
            let outgoing = exchange.send.map(|(to, data)| Outgoing {
                address: data.as_ptr().cast(),
                bytes: size_of_val(data),
                to: rank(to),
                tag,
                posted: 0,
                flight: VecDeque::new(),
            });
            let incoming = exchange.receive.map(|(from, receive)| {
                let bytes = receive.elements() * size_of::<T>();
                let place = match receive {
                    Receive::Into(output) => Place::There(output.as_mut_ptr().cast()),
                    Receive::Pieces(_, pieces) => {
                        handle = Some(pieces);
                        Place::Blocks(desk.take_blocks(segments(bytes).min(WINDOW)))
                    }
                };
                Incoming {
                    place,
                    bytes,
                    from: rank(from),
                    tag,
                    posted: 0,
                    arrived: 0,
                    handled: 0,
                    flight: VecDeque::new(),
                }
            });
            (outgoing, incoming)
        };
        let mut wait = Wait::new(at.group, at.call, at.sequence, None);
        let mut pace = Pace::start();
        loop {
            let progressed = {
                let library = &mut self.enter().library;
                // First what comes: then there is a place for it when it does.
                // SAFETY: the slices are borrowed until this function returns, which it does only when both are done.
                let received = incoming.as_mut().map_or(Ok(false), |incoming| unsafe { incoming.advance(library) });
                // SAFETY: as above.
                let sent = outgoing.as_mut().map_or(Ok(false), |outgoing| unsafe { outgoing.advance(library) });
                received.and_then(|received| Ok(received | sent?))
            };
            let progressed = match progressed {
                Ok(progressed) => progressed,
                Err(text) => {
                    self.abort_exchange(job, &at, text);
                    strand()
                }
            };
            if let (Some(incoming), Some(handle)) = (&mut incoming, &mut handle) {
                let handled = job.catch(self.rank, || {
                    incoming.hand_over::<T>(handle);
                    Ok(())
                });
                if handled.is_err() {
                    strand()
                }
            }
            if incoming.as_ref().is_none_or(Incoming::is_done) && outgoing.as_ref().is_none_or(Outgoing::is_done) {
                break;
            }
            if job.check().is_err() {
                strand()
            }
            if progressed {
                pace.progressed();
                wait.progressed();
                continue;
            }
            if let Some((rank, activity, error)) = wait.look(self, job) {
                job.abort_collective(rank, activity, error);
                strand()
            }
            pace.pause();
        }
        wait.end(self);
        if let Some(Incoming { place: Place::Blocks(blocks), .. }) = incoming {
            self.enter().blocks.extend(blocks);
        }
        job.check()
    }

    /// Aborts because the library could not carry out a collective.
    pub(super) fn abort_exchange(&self, job: &Job, at: &Occasion<'_>, error: String) -> Aborted {
        let (group, call) = (at.group.shared_name(), Box::new(*at.call));
        let error = CollectiveError::Transport { group, sequence: at.sequence, call, error };
        job.abort_collective(self.rank, at.call.activity, error)
    }
}

impl super::port::Desk {
    /// So many blocks of a segment each.
    fn take_blocks(&mut self, count: usize) -> Vec<Vec<u64>> {
        (0..count).map(|_| self.blocks.pop().unwrap_or_else(|| vec![0; SEGMENT / size_of::<u64>()])).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_tile_the_bytes() {
        for bytes in [0, 1, SEGMENT - 8, SEGMENT, SEGMENT + 8, 5 * SEGMENT + 16] {
            let mut end = 0;
            for number in 0..segments(bytes) {
                let (start, length) = segment(bytes, number);
                assert_eq!(start, end);
                assert!(length > 0 || bytes == 0);
                end = start + length;
            }
            assert_eq!(end, bytes);
        }
    }
}
