//! Memory of the host that the device copies to and from by itself while the host goes on: two pieces that take turns.

use std::cell::RefCell;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::lanes::Lanes;
use crate::array::Array;
use crate::driver::{ALIGNED, Driver, Event, Fault, Place};

/// Pinned bytes of any contents; given back when dropped. Whoever owns them sees to it that no copy is under way then.
struct Pinned {
    driver: Arc<dyn Driver>,
    at: *mut u8,
    bytes: usize,
    counter: Arc<AtomicU64>,
}

impl Pinned {
    fn new(lanes: &Lanes, bytes: usize) -> Result<Self, Fault> {
        let (driver, counter) = (lanes.driver().clone(), lanes.pinned().clone());
        let at = driver.pin(bytes)?;
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(Self { driver, at, bytes, counter })
    }

    /// The memory from a byte on, of which so many more are there.
    fn part(&self, range: Range<usize>) -> *mut u8 {
        assert!(range.start <= range.end && range.end <= self.bytes, "bytes {range:?} of {}", self.bytes);
        // SAFETY: it lies within the memory, or at its end.
        unsafe { self.at.add(range.start) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.counter.fetch_sub(self.bytes as u64, Ordering::Relaxed);
        // SAFETY: it was taken of this driver, and its owner's promise. That it cannot be given back helps nobody.
        let _ = unsafe { self.driver.unpin(self.at) };
    }
}

/// A piece, and the event after the copies that use it.
#[derive(Default)]
struct Room {
    memory: Option<Pinned>,
    under_way: Option<Event>,
    /// What [`Staging::send`] was told, until the copies are done.
    tag: u64,
}

impl Room {
    /// Waits for the copies that use it.
    fn free(&mut self, lanes: &Lanes) -> Result<(), Fault> {
        let Some(event) = self.under_way.take() else { return Ok(()) };
        let reached = lanes.driver().await_event(event);
        lanes.give_back(event);
        reached
    }

    /// So many bytes that no copy uses.
    fn at_least(&mut self, lanes: &Lanes, bytes: usize) -> Result<&Pinned, Fault> {
        self.free(lanes)?;
        if self.memory.as_ref().is_none_or(|memory| memory.bytes < bytes) {
            self.memory = None;
            self.memory = Some(Pinned::new(lanes, bytes)?);
        }
        Ok(self.memory.as_ref().expect("it is there now"))
    }
}

/// Two pieces of a rank.
pub struct Staging {
    lanes: Arc<Lanes>,
    rooms: RefCell<[Room; 2]>,
}

/// Bytes of the host, and where they go.
pub type Sent<'a> = (&'a [u8], Array);

impl Staging {
    /// No memory yet.
    pub fn new(lanes: Arc<Lanes>) -> Self {
        Self { lanes, rooms: RefCell::default() }
    }

    /// Copies bytes to the device in the order of kernels; they are the caller's again when it returns, though the copy may not
    /// be done. With a `tag`; gives the tag of the call before the last, if all that was issued before that one is known to be done.
    pub fn send(&self, all: &[Sent<'_>], tag: u64) -> Result<u64, Fault> {
        let mut rooms = self.rooms.borrow_mut();
        rooms.swap(0, 1);
        let (room, driver) = (&mut rooms[0], self.lanes.driver());
        let sizes = all.iter().map(|(from, _)| from.len().next_multiple_of(ALIGNED));
        let memory = room.at_least(&self.lanes, sizes.sum())?;
        let mut first = 0;
        for (from, to) in all {
            assert_eq!(from.len(), to.bytes());
            let at = memory.part(first..first + from.len());
            // SAFETY: the piece has so many bytes from there on, and no copy uses it; it is used for nothing else until this
            // one is done.
            unsafe {
                ptr::copy_nonoverlapping(from.as_ptr(), at, from.len());
                driver.copy(self.lanes.compute(), Place::Host(at), Place::Device(to.at), from.len())?;
            }
            first += from.len().next_multiple_of(ALIGNED);
        }
        room.under_way = Some(self.lanes.mark()?);
        Ok(std::mem::replace(&mut room.tag, tag))
    }

    /// Copies an array to the host in the order of kernels, a piece after the other, the next one of which comes while the host
    /// copies the last; all commands before are done when it returns.
    ///
    /// # Panics
    /// If `to` has another length.
    pub fn receive(&self, from: Array, to: &mut [u8]) -> Result<(), Fault> {
        assert_eq!(from.bytes(), to.len());
        let (mut rooms, driver) = (self.rooms.borrow_mut(), self.lanes.driver());
        let piece = driver.piece();
        let issue = |rooms: &mut [Room; 2], first: usize| -> Result<(), Fault> {
            let room = &mut rooms[first / piece % 2];
            let bytes = piece.min(from.bytes() - first);
            // Whole pieces, though fewer bytes may do: to pin other memory takes long.
            let at = room.at_least(&self.lanes, piece)?.part(0..bytes);
            // SAFETY: the piece has so many bytes and nobody uses it; the array is of a buffer of this rank.
            unsafe {
                driver.copy(self.lanes.compute(), Place::Device(from.at.offset(first)), Place::HostMut(at), bytes)?;
            }
            room.under_way = Some(self.lanes.mark()?);
            Ok(())
        };
        if to.is_empty() {
            return driver.synchronize(self.lanes.compute());
        }
        issue(&mut rooms, 0)?;
        for (number, to) in to.chunks_mut(piece).enumerate() {
            let next = (number + 1) * piece;
            if next < from.bytes() {
                issue(&mut rooms, next)?;
            }
            let room = &mut rooms[number % 2];
            room.free(&self.lanes)?;
            let memory = room.memory.as_ref().expect("a copy to it was issued");
            // SAFETY: the copy of so many bytes is done, and no other is under way.
            unsafe { ptr::copy_nonoverlapping(memory.part(0..to.len()), to.as_mut_ptr(), to.len()) };
        }
        Ok(())
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // If the device has failed its copies never end.
        self.rooms.get_mut().iter_mut().for_each(|room| drop(room.free(&self.lanes)));
    }
}

#[cfg(test)]
#[cfg(emulated)]
mod tests {
    use super::*;
    use crate::array::Element;
    use crate::emulator::Emulator;
    use crate::memory::DeviceMemory;

    const LEN: usize = 300;

    fn lanes(seed: u64) -> Arc<Lanes> {
        Lanes::new(Arc::new(Emulator::new(seed))).unwrap()
    }

    fn words(memory: &DeviceMemory) -> Array {
        memory.array(Element::U32).part(0..LEN)
    }

    /// Sends five times, each time to other memory, and receives them all; with `forgets` pieces are used again before copies
    /// from them are done.
    fn sent(seed: u64, forgets: bool) -> bool {
        let lanes = lanes(seed);
        let staging = Staging::new(lanes.clone());
        let to: Vec<DeviceMemory> = (0..5).map(|_| lanes.take(4 * LEN).unwrap()).collect();
        for (number, to) in to.iter().enumerate() {
            let from: Vec<u8> = (0..4 * LEN).map(|at| (at * (number + 1)) as u8).collect();
            let before = staging.send(&[(&from, words(to))], 10 + number as u64).unwrap();
            assert_eq!(before, if number < 2 { 0 } else { 8 + number as u64 });
            if forgets {
                staging.rooms.borrow_mut().iter_mut().for_each(|room| room.under_way = None);
            }
        }
        let got = |memory: &DeviceMemory| {
            let mut bytes = vec![0; 4 * LEN];
            staging.receive(words(memory), &mut bytes).unwrap();
            bytes
        };
        to.iter().enumerate().all(|(number, to)| (0..).zip(got(to)).all(|(at, byte)| byte == (at * (number + 1)) as u8))
    }

    #[test]
    fn what_is_sent_arrives_and_pieces_that_are_used_too_early_are_found() {
        for seed in 1..5 {
            assert!(sent(seed, false));
            assert!(!sent(seed, true));
        }
    }

    #[test]
    fn arrays_come_in_pieces_after_all_kernels_and_pinned_memory_is_counted() {
        let lanes = lanes(1);
        let staging = Staging::new(lanes.clone());
        let piece = lanes.driver().piece();
        for bytes in [0, 4, piece, piece + 4, 5 * piece - 4] {
            let memory = lanes.take(bytes).unwrap();
            let all = memory.array(Element::U32);
            let numbers: Vec<u32> = (0..all.len as u32).map(|at| at * at + 1).collect();
            lanes.up(&numbers, all).unwrap();
            let mut got = vec![0; bytes];
            staging.receive(all, &mut got).unwrap();
            assert!(got.chunks_exact(4).zip(&numbers).all(|(got, number)| got == number.to_ne_bytes()));
        }
        assert_eq!(lanes.pinned().load(Ordering::Relaxed), 2 * piece as u64);
        drop(staging);
        assert_eq!(lanes.pinned().load(Ordering::Relaxed), 0);
    }
}
