//! Small tables that the host makes and kernels read: rows of tokens, scopes of routers, starts of experts.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;

use super::lanes::Lanes;
use crate::array::{Array, Element};
use crate::driver::{Fault, Place};
use crate::memory::DeviceMemory;

/// The least words that are allocated at once.
const LEAST: usize = 1024;

/// Tables on their way to kernels, and memory for others.
pub struct Uploads {
    lanes: Arc<Lanes>,
    /// Copies and kernels that may not be done use these, the first of which has this number.
    used: RefCell<VecDeque<(Vec<u32>, DeviceMemory)>>,
    first: Cell<u64>,
    spare: RefCell<Vec<DeviceMemory>>,
}

impl Uploads {
    /// None yet.
    pub fn new(lanes: Arc<Lanes>) -> Self {
        Self { lanes, used: RefCell::default(), first: Cell::default(), spare: RefCell::default() }
    }

    /// The table where kernels read it that are issued before [`Self::settled`].
    pub fn put(&self, table: Vec<u32>) -> Result<Array, Fault> {
        let driver = self.lanes.driver();
        let bytes = table.len() * size_of::<u32>();
        let mut spare = self.spare.borrow_mut();
        let fitting = spare.iter().enumerate().filter(|(_, memory)| memory.bytes() >= bytes);
        let memory = match fitting.min_by_key(|(_, memory)| memory.bytes()).map(|(position, _)| position) {
            Some(position) => spare.swap_remove(position),
            None => {
                let words = table.len().next_power_of_two().max(LEAST);
                self.lanes.take(words * size_of::<u32>())?
            }
        };
        let from = Place::Host(table.as_ptr().cast());
        let to = Place::Device(memory.at());
        // SAFETY: both are kept until the stream is done.
        unsafe { driver.copy(self.lanes.compute(), from, to, bytes) }?;
        let array = memory.array(Element::U32).part(0..table.len());
        self.used.borrow_mut().push_back((table, memory));
        Ok(array)
    }

    /// As [`Self::put`], of numbers that `u32` has.
    pub fn put_numbers(&self, numbers: impl Iterator<Item = usize>) -> Result<Array, Fault> {
        self.put(numbers.map(|number| number as u32).collect())
    }

    /// How many tables there have been so far.
    pub fn count(&self) -> u64 {
        self.first.get() + self.used.borrow().len() as u64
    }

    /// The rank's stream of kernels is done: nothing uses tables any more.
    pub fn settled(&self) {
        self.settled_to(self.count());
    }

    /// Nothing uses the first so many tables any more.
    pub fn settled_to(&self, count: u64) {
        let mut used = self.used.borrow_mut();
        let mut spare = self.spare.borrow_mut();
        while self.first.get() < count
            && let Some((_, memory)) = used.pop_front()
        {
            self.first.set(self.first.get() + 1);
            spare.push(memory);
        }
    }
}
