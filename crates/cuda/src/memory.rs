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
    counter: Option<Arc<AtomicU64>>,
}

impl DeviceMemory {
    /// So many bytes.
    pub fn new(driver: Arc<dyn Driver>, bytes: usize) -> Result<Self, Fault> {
        let at = driver.allocate(bytes)?;
        Ok(Self { driver, at, bytes, counter: None })
    }

    /// The same, counted while it is in use.
    pub fn counted(driver: Arc<dyn Driver>, bytes: usize, counter: &Arc<AtomicU64>) -> Result<Self, Fault> {
        let mut memory = Self::new(driver, bytes)?;
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
        memory.counter = Some(counter.clone());
        Ok(memory)
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
        if let Some(counter) = &self.counter {
            counter.fetch_sub(self.bytes as u64, Ordering::Relaxed);
        }
        // SAFETY: it was allocated here, and its owner's promise. That it cannot be freed helps nobody.
        let _ = unsafe { self.driver.free(self.at) };
    }
}
