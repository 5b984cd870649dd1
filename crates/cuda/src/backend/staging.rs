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
        let driver = lanes.driver().clone();
        let counter = lanes.pinned().clone();
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
struct Piece {
    memory: Option<Pinned>,
    under_way: Option<Event>,
    /// What [`Staging::send`] was told, until the copies are done.
    tag: u64,
}

impl Piece {
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
    pieces: RefCell<[Piece; 2]>,
}

/// Bytes of the host, and where they go.
pub type Sent<'a> = (&'a [u8], Array);

impl Staging {
    /// Two pieces of so many bytes, where it is more than none; more is pinned when it is needed.
    pub fn new(lanes: Arc<Lanes>, bytes: usize) -> Result<Self, Fault> {
        let mut pieces = <[Piece; 2]>::default();
        for one in pieces.iter_mut().filter(|_| bytes > 0) {
            one.at_least(&lanes, bytes)?;
        }
        Ok(Self { lanes, pieces: RefCell::new(pieces) })
    }

    /// After an error waits for the copies: one may be under way that no event tells of, and its piece is neither to be used nor
    /// given back before its end. If the device has failed it never comes.
    fn ended<R>(&self, done: Result<R, Fault>) -> Result<R, Fault> {
        done.inspect_err(|_| drop(self.lanes.driver().synchronize(self.lanes.compute())))
    }

    /// Copies bytes to the device in the order of kernels; they are the caller's again when it returns, though the copy may not
    /// be done. With a `tag`; gives the tag of the call before the last, if all that was issued before that one is known to be done.
    ///
    /// # Panics
    /// If bytes and array have different lengths.
    pub fn send(&self, all: &[Sent<'_>], tag: u64) -> Result<u64, Fault> {
        assert!(all.iter().all(|(from, to)| from.len() == to.bytes()), "bytes go where there is place for them");
        self.ended(self.issue(all, tag))
    }

    fn issue(&self, all: &[Sent<'_>], tag: u64) -> Result<u64, Fault> {
        let mut pieces = self.pieces.borrow_mut();
        pieces.swap(0, 1);
        let current = &mut pieces[0];
        let driver = self.lanes.driver();
        let sizes = all.iter().map(|(from, _)| from.len().next_multiple_of(ALIGNED));
        let memory = current.at_least(&self.lanes, sizes.sum())?;
        let mut first = 0;
        for (from, to) in all {
            let at = memory.part(first..first + from.len());
            // SAFETY: the piece has so many bytes from there on, and no copy uses it; it is used for nothing else until this
            // one is done.
            unsafe {
                ptr::copy_nonoverlapping(from.as_ptr(), at, from.len());
                driver.copy(self.lanes.compute(), Place::Host(at), Place::Device(to.at), from.len())?;
            }
            first += from.len().next_multiple_of(ALIGNED);
        }
        current.under_way = Some(self.lanes.mark()?);
        Ok(std::mem::replace(&mut current.tag, tag))
    }

    /// Copies an array to the host in the order of kernels, a piece after the other, the next one of which comes while the host
    /// copies the last; all commands before are done when it returns.
    ///
    /// # Panics
    /// If `to` has another length.
    pub fn receive(&self, from: Array, to: &mut [u8]) -> Result<(), Fault> {
        assert_eq!(from.bytes(), to.len());
        self.ended(self.receive_pieces(from, to))
    }

    fn receive_pieces(&self, from: Array, to: &mut [u8]) -> Result<(), Fault> {
        let mut pieces = self.pieces.borrow_mut();
        let driver = self.lanes.driver();
        let piece = driver.device().piece();
        let issue = |pieces: &mut [Piece; 2], first: usize| -> Result<(), Fault> {
            let current = &mut pieces[first / piece % 2];
            let bytes = piece.min(from.bytes() - first);
            // Whole pieces, though fewer bytes may do: to pin other memory takes long.
            let at = current.at_least(&self.lanes, piece)?.part(0..bytes);
            // SAFETY: the piece has so many bytes and nobody uses it; the array is of a buffer of this rank.
            unsafe {
                driver.copy(self.lanes.compute(), Place::Device(from.at.offset(first)), Place::HostMut(at), bytes)?;
            }
            current.under_way = Some(self.lanes.mark()?);
            Ok(())
        };
        if to.is_empty() {
            return driver.synchronize(self.lanes.compute());
        }
        issue(&mut pieces, 0)?;
        for (number, to) in to.chunks_mut(piece).enumerate() {
            let next = (number + 1) * piece;
            if next < from.bytes() {
                issue(&mut pieces, next)?;
            }
            let current = &mut pieces[number % 2];
            current.free(&self.lanes)?;
            let memory = current.memory.as_ref().expect("a copy to it was issued");
            // SAFETY: the copy of so many bytes is done, and no other is under way.
            unsafe { ptr::copy_nonoverlapping(memory.part(0..to.len()), to.as_mut_ptr(), to.len()) };
        }
        Ok(())
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // If the device has failed its copies never end.
        self.pieces.get_mut().iter_mut().for_each(|one| drop(one.free(&self.lanes)));
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
        let staging = Staging::new(lanes.clone(), 0).unwrap();
        let to: Vec<DeviceMemory> = (0..5).map(|_| lanes.take(4 * LEN).unwrap()).collect();
        for (number, to) in to.iter().enumerate() {
            let from: Vec<u8> = (0..4 * LEN).map(|at| (at * (number + 1)) as u8).collect();
            let before = staging.send(&[(&from, words(to))], 10 + number as u64).unwrap();
            assert_eq!(before, if number < 2 { 0 } else { 8 + number as u64 });
            if forgets {
                staging.pieces.borrow_mut().iter_mut().for_each(|one| one.under_way = None);
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
        let piece = lanes.driver().device().piece();
        let staging = Staging::new(lanes.clone(), piece).unwrap();
        assert_eq!(lanes.pinned().load(Ordering::Relaxed), 2 * piece as u64);
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
