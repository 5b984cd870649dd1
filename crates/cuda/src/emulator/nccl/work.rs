//! What a communicator's call does when its stream comes to it.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use quadrille_comm::{ElementKind, Host, Mover, Reduction};

use super::shelf::Shelf;
use crate::nccl::Code;

/// A command of a stream that waits for others.
pub trait Remote: Send + Debug {
    /// Does what can be done; whether that is all.
    fn step(&mut self) -> Result<bool, String>;
}

/// Another rank has failed: `ncclRemoteError`.
pub const REMOTE: Code = 6;

/// What becomes of a communicator.
#[derive(Debug, Default)]
pub struct Fate {
    /// What it does ends at once.
    pub aborted: AtomicBool,
    /// What `asynchronous` says, if not 0.
    pub error: AtomicI32,
}

/// What becomes of what was taken, one from each who leaves something for this rank.
#[derive(Debug)]
pub enum Finish {
    /// Nothing is.
    Nothing,
    /// Each, of so many bytes, goes to its place.
    Store { bytes: usize, to: Vec<usize> },
    /// All are combined, in their order.
    Reduce { how: Reduction, kind: ElementKind, n: usize, to: usize },
}

/// A call.
#[derive(Debug)]
pub struct Work {
    pub shelf: Shelf,
    pub fate: Arc<Fate>,
    /// Names, and what is left under them: an address and so many bytes.
    pub left: Vec<(String, usize, usize)>,
    /// Names that are taken, and what was.
    pub taken: Vec<(String, Option<Vec<u8>>)>,
    pub finish: Finish,
    /// It goes wrong in place of its work.
    pub fails: bool,
    /// It never ends.
    pub sticks: bool,
}

impl Work {
    /// # Safety
    /// What was lent to the call is there.
    unsafe fn leave(&mut self) -> Result<(), String> {
        for (name, from, bytes) in self.left.drain(..) {
            // SAFETY: the caller's promise; where there is nothing the address may be none.
            let lent = if bytes == 0 { &[] } else { unsafe { std::slice::from_raw_parts(from as *const u8, bytes) } };
            self.shelf.leave(&name, lent)?;
        }
        Ok(())
    }

    /// # Safety
    /// As above.
    unsafe fn finish(&mut self) -> Result<(), String> {
        let taken: Vec<Vec<u8>> = self.taken.drain(..).filter_map(|(_, bytes)| bytes).collect();
        match &self.finish {
            Finish::Nothing => {}
            Finish::Store { bytes, to } => {
                fit(&taken, *bytes)?;
                for (from, to) in taken.iter().zip(to) {
                    // SAFETY: the caller's promise, and as many bytes.
                    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), *to as *mut u8, *bytes) };
                }
            }
            Finish::Reduce { how, kind, n, to } => {
                fit(&taken, n * kind.bytes())?;
                // Bytes as words, so that they are aligned.
                let words = |bytes: &Vec<u8>| {
                    let mut words = vec![0u64; bytes.len().div_ceil(8)];
                    // SAFETY: there are at least as many bytes of words.
                    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), words.as_mut_ptr().cast(), bytes.len()) };
                    words
                };
                let taken: Vec<Vec<u64>> = taken.iter().map(words).collect();
                let from: Vec<*const u8> = taken.iter().map(|words| words.as_ptr().cast()).collect();
                // SAFETY: the caller's promise, and as many bytes of each.
                unsafe { Host.reduce(*how, *kind, &from, &[*to as *mut u8], *n, false) };
            }
        }
        Ok(())
    }
}

/// Whether as many bytes were taken from each as are expected.
fn fit(taken: &[Vec<u8>], bytes: usize) -> Result<(), String> {
    if taken.iter().all(|taken| taken.len() == bytes) {
        Ok(())
    } else {
        Err("the calls of a communicator's ranks do not fit together".into())
    }
}

impl Remote for Vec<Work> {
    fn step(&mut self) -> Result<bool, String> {
        let mut done = true;
        for work in self.iter_mut() {
            if work.fate.aborted.load(Ordering::SeqCst) {
                return Ok(true);
            }
            if work.fails {
                work.fate.error.store(REMOTE, Ordering::SeqCst);
            }
            // SAFETY: who has called has lent the memory until the stream is past this, or the communicator aborted.
            unsafe { work.leave() }?;
            for (name, bytes) in work.taken.iter_mut().filter(|(_, bytes)| bytes.is_none()) {
                *bytes = work.shelf.take(name);
            }
            done &= !work.sticks && !work.fails && work.taken.iter().all(|(_, bytes)| bytes.is_some());
        }
        if done {
            // SAFETY: as above.
            self.iter_mut().try_for_each(|work| unsafe { work.finish() })?;
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator::nccl::shelf::new_id;

    /// What a rank gets where another has left so many bytes, and it expects so many.
    fn stored(left: usize, expected: usize) -> (Result<bool, String>, Vec<u8>) {
        let shelf = Shelf::of(new_id());
        let mut to = vec![0; left.max(expected)];
        shelf.leave("one", &vec![7; left]).unwrap();
        let finish = Finish::Store { bytes: expected, to: vec![to.as_mut_ptr() as usize] };
        let taken = vec![("one".into(), None)];
        let fate = Arc::default();
        let work = Work { shelf: shelf.clone(), fate, left: Vec::new(), taken, finish, fails: false, sticks: false };
        let outcome = vec![work].step();
        shelf.clear();
        (outcome, to)
    }

    #[test]
    fn bytes_of_another_length_than_expected_are_refused_and_not_stored() {
        assert_eq!(stored(5, 5), (Ok(true), vec![7; 5]));
        for (left, expected) in [(6, 5), (5, 6), (0, 1)] {
            let (outcome, to) = stored(left, expected);
            assert!(outcome.unwrap_err().contains("do not fit together"), "{left} where {expected} are expected");
            assert!(to.iter().all(|byte| *byte == 0));
        }
    }
}
