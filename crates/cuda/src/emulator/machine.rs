//! Several emulated devices of a process, and whose memory is where.
//!
//! All of it is the host's, so that copies between devices need nothing. What a kernel may use is looked at: its own device's
//! memory, and that of the neighbours by number. So with three devices some reach each other, and some do not.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::driver::Address;

/// Allocations by where they begin: where they end, and the number of their device.
static OWNED: Mutex<BTreeMap<Address, (Address, usize)>> = Mutex::new(BTreeMap::new());

fn owned() -> MutexGuard<'static, BTreeMap<Address, (Address, usize)>> {
    OWNED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A device's place among others; by default it is alone.
#[derive(Debug, Default)]
pub struct Place {
    number: Option<usize>,
}

impl Place {
    /// The place of a number.
    pub fn of(number: usize) -> Self {
        Self { number: Some(number) }
    }

    /// Its number, or that of the first.
    pub fn number(&self) -> usize {
        self.number.unwrap_or(0)
    }

    /// Memory is this device's.
    pub fn own(&self, at: Address, bytes: usize) {
        if let Some(number) = self.number {
            owned().insert(at, (at.offset(bytes), number));
        }
    }

    /// Memory is freed.
    pub fn disown(&self, at: Address) {
        if self.number.is_some() {
            owned().remove(&at);
        }
    }

    /// Whether kernels may use what is at an address: it is no other device's, or a neighbour's.
    pub fn reaches(&self, at: Address) -> bool {
        let Some(number) = self.number else { return true };
        let before = owned().range(..=at).next_back().map(|(_, owner)| *owner);
        before.filter(|(end, _)| at < *end).is_none_or(|(_, owner)| number.abs_diff(owner) <= 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_reach_their_own_memory_and_their_neighbours() {
        // No allocation is there.
        let at = |offset: u64| Address(16 + offset);
        let [first, second, third] = [0, 1, 2].map(Place::of);
        first.own(at(0), 100);
        for (place, reaches) in [(&first, true), (&second, true), (&third, false)] {
            assert_eq!([at(0), at(99), at(100)].map(|at| place.reaches(at)), [reaches, reaches, true]);
        }
        assert!(Place::default().reaches(at(5)));
        first.disown(at(0));
        assert!(third.reaches(at(5)));
    }
}
