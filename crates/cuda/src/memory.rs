//! Owned memory of a device.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::array::{Array, Element};
use crate::driver::{Address, Driver, Fault};

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
