//! Owned memory of a device.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::array::{Array, Element};
use crate::driver::{Address, Driver, Fault, Stream};

/// Some bytes of a device, of any contents; given back when dropped. Whoever owns it sees to it that no command that is not
/// done uses it then.
pub struct DeviceMemory {
    driver: Arc<dyn Driver>,
    at: Address,
    bytes: usize,
    /// Bytes in use of this kind, while this is.
    counter: Arc<AtomicU64>,
}

impl DeviceMemory {
    /// So many bytes, counted while they are in use.
    pub fn new(driver: Arc<dyn Driver>, bytes: usize, counter: &Arc<AtomicU64>) -> Result<Self, Fault> {
        let at = driver.allocate(bytes)?;
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(Self { driver, at, bytes, counter: counter.clone() })
    }

    /// Where they begin.
    pub fn at(&self) -> Address {
        self.at
    }

    /// How many there are.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// As elements; what is left over behind the last is none.
    pub fn array(&self, element: Element) -> Array {
        Array { at: self.at, len: self.bytes / element.bytes(), element }
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        self.counter.fetch_sub(self.bytes as u64, Ordering::Relaxed);
        // SAFETY: it was allocated here, and its owner's promise. That it cannot be freed helps nobody.
        let _ = unsafe { self.driver.free(self.at) };
    }
}

/// Memory that grows to what is asked for, for the work of one stream that comes one after another.
pub struct Room {
    driver: Arc<dyn Driver>,
    stream: Stream,
    counter: Arc<AtomicU64>,
    memory: Mutex<Option<DeviceMemory>>,
}

impl Room {
    /// None at first; what there is later is counted.
    pub fn new(driver: &Arc<dyn Driver>, stream: Stream, counter: &Arc<AtomicU64>) -> Self {
        Self { driver: driver.clone(), stream, counter: counter.clone(), memory: Mutex::default() }
    }

    /// Where at least so many bytes begin, until more are asked for.
    pub fn at_least(&self, bytes: usize) -> Result<Address, Fault> {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        if memory.as_ref().is_none_or(|memory| memory.bytes() < bytes) {
            if memory.is_some() {
                // Work that uses it may not be done.
                self.driver.synchronize(self.stream)?;
            }
            *memory = None;
            *memory = Some(DeviceMemory::new(self.driver.clone(), bytes, &self.counter)?);
        }
        Ok(memory.as_ref().map_or(Address::NONE, DeviceMemory::at))
    }
}
