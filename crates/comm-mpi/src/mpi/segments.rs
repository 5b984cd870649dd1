//! Data in segments: the receiver works on one while the next are under way.

use std::collections::VecDeque;

use quadrille_comm::{ElementKind, Memory};

use crate::mpi::library::{Lane, Library, Request};
use crate::mpi::port::Desk;

/// Bytes of a segment: a multiple of every element's size. With 64 KiB to 1 MiB, rates between processes of one machine
/// differ less than from run to run; 128 KiB had the best ones.
const SEGMENT: usize = 128 << 10;

/// Segments that are under way at a time, in each direction.
const WINDOW: usize = 8;

/// The segments of so many bytes.
#[derive(Clone, Copy)]
pub(super) struct Segments {
    bytes: usize,
    count: usize,
}

impl Segments {
    /// As few as carry them; both sides know how many bytes there are.
    pub(super) fn of(bytes: usize) -> Self {
        Self { bytes, count: parts(bytes, SEGMENT) }
    }

    /// With a last one that is not full, empty if need be, and so ends them: whoever expects other bytes meets a segment
    /// that is too short or too long.
    pub(super) fn with_end(bytes: usize) -> Self {
        Self { bytes, count: bytes / SEGMENT + 1 }
    }

    /// Start and length of a segment.
    fn segment(&self, number: usize) -> (usize, usize) {
        part(self.bytes, SEGMENT, number)
    }
}

/// Data on their way to a rank.
pub(super) struct Outgoing {
    address: *const u8,
    segments: Segments,
    to: usize,
    tag: i32,
    posted: usize,
    /// Bytes of the segments that the library has been given.
    pub(super) handed: usize,
    flight: VecDeque<Request>,
}

impl Outgoing {
    /// The bytes at an address, for a rank.
    pub(super) fn new(address: *const u8, segments: Segments, to: usize, tag: i32) -> Self {
        Self { address, segments, to, tag, posted: 0, handed: 0, flight: VecDeque::new() }
    }

    /// Sends what the window admits; whether something has left.
    ///
    /// # Safety
    /// The bytes at the address are there and do not change until `is_done`.
    pub(super) unsafe fn advance(&mut self, library: &mut Library) -> Result<bool, String> {
        let mut progressed = false;
        while let Some(front) = self.flight.front_mut() {
            if library.test(front).map_err(|error| error.to_string())?.is_none() {
                break;
            }
            self.flight.pop_front();
            progressed = true;
        }
        while self.posted < self.segments.count && self.flight.len() < WINDOW {
            let (start, bytes) = self.segments.segment(self.posted);
            // SAFETY: the segment lies within the bytes; the rest is the caller's.
            let request =
                unsafe { library.send(Lane::Collectives, self.address.wrapping_add(start), bytes, self.to, self.tag) };
            self.flight.push_back(request.map_err(|error| error.to_string())?);
            self.posted += 1;
            self.handed += bytes;
        }
        Ok(progressed)
    }

    pub(super) fn is_done(&self) -> bool {
        self.posted == self.segments.count && self.flight.is_empty()
    }
}

/// Where segments arrive.
enum Place {
    /// In the buffer that they are for.
    There(*mut u8),
    /// In blocks, one after the other, until they have been handled.
    Blocks(Vec<Vec<u64>>),
}

/// Data on their way from a rank.
pub(super) struct Incoming {
    place: Place,
    segments: Segments,
    kind: ElementKind,
    from: usize,
    tag: i32,
    posted: usize,
    arrived: usize,
    handled: usize,
    flight: VecDeque<Request>,
}

impl Incoming {
    /// The bytes from a rank, to an address; where there is none, into blocks, to be handed over.
    pub(super) fn new(
        desk: &mut Desk,
        to: Option<*mut u8>,
        segments: Segments,
        kind: ElementKind,
        from: usize,
        tag: i32,
    ) -> Self {
        let blocks = || Place::Blocks(desk.take_blocks(segments.count.min(WINDOW)));
        let place = to.map_or_else(blocks, Place::There);
        Self { place, segments, kind, from, tag, posted: 0, arrived: 0, handled: 0, flight: VecDeque::new() }
    }

    /// Receives what the window admits; whether something has come.
    ///
    /// # Safety
    /// Nobody else touches the place until `is_done`.
    pub(super) unsafe fn advance(&mut self, library: &mut Library) -> Result<bool, String> {
        let mut progressed = false;
        while let Some(front) = self.flight.front_mut() {
            let Some(arrived) = library.test(front).map_err(|error| error.to_string())? else { break };
            let (_, bytes) = self.segments.segment(self.arrived);
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
        while self.posted < self.segments.count && self.posted < self.handled + WINDOW {
            let (start, bytes) = self.segments.segment(self.posted);
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

    pub(super) fn is_done(&self) -> bool {
        self.handled == self.segments.count
    }

    /// Hands over the segments that have arrived in blocks.
    pub(super) fn hand_over(&mut self, handle: &mut dyn FnMut(usize, Memory<'_>)) {
        // No element is longer than the words of a block.
        const { assert!(SEGMENT.is_multiple_of(size_of::<u64>())) };
        let Place::Blocks(blocks) = &mut self.place else { return };
        while self.handled < self.arrived {
            let (start, bytes) = self.segments.segment(self.handled);
            let block = &mut blocks[self.handled % WINDOW];
            let start = start / self.kind.bytes();
            let elements = bytes / self.kind.bytes();
            // SAFETY: a block holds a segment, aligned for every element, and any bytes are an element.
            let arrived = unsafe { Memory::new(block.as_mut_ptr().cast(), elements, self.kind) };
            handle(start, arrived);
            self.handled += 1;
        }
    }
}

/// How many parts of at most `most` carry so many bytes: one, empty, also where there are none.
pub(super) fn parts(bytes: usize, most: usize) -> usize {
    bytes.div_ceil(most).max(1)
}

/// Start and length of a part.
pub(super) fn part(bytes: usize, most: usize, number: usize) -> (usize, usize) {
    let start = number * most;
    (start, (bytes - start).min(most))
}

impl Desk {
    /// So many blocks of a segment each.
    fn take_blocks(&mut self, count: usize) -> Vec<Vec<u64>> {
        (0..count).map(|_| self.blocks.pop().unwrap_or_else(|| vec![0; SEGMENT / size_of::<u64>()])).collect()
    }

    /// Keeps the blocks of what has been handed over.
    pub(super) fn give_blocks(&mut self, incoming: Incoming) {
        if let Place::Blocks(blocks) = incoming.place {
            self.blocks.extend(blocks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mpi::library::MOST_BYTES;

    #[test]
    fn parts_tile_the_bytes() {
        for most in [SEGMENT, MOST_BYTES] {
            for bytes in [0, 1, most - 8, most, most + 8, 5 * most + 16] {
                let mut end = 0;
                for number in 0..parts(bytes, most) {
                    let (start, length) = part(bytes, most, number);
                    assert_eq!(start, end);
                    assert!((length > 0 || bytes == 0) && length <= most);
                    end = start + length;
                }
                assert_eq!(end, bytes);
            }
        }
    }

    /// Two sides that expect different bytes meet a segment on which they differ, before the receiver has all.
    #[test]
    fn ends_are_seen_by_who_expects_another() {
        let lengths = [0, 1, SEGMENT - 1, SEGMENT, SEGMENT + 1, 2 * SEGMENT, 2 * SEGMENT + 5];
        for sent in lengths.map(Segments::with_end) {
            for expected in lengths.map(Segments::with_end) {
                let common = 0..sent.count.min(expected.count);
                let differ = common.into_iter().any(|number| sent.segment(number) != expected.segment(number));
                assert_eq!(differ, sent.bytes != expected.bytes);
            }
            assert_eq!((0..sent.count).map(|number| sent.segment(number).1).sum::<usize>(), sent.bytes);
        }
    }
}
