//! One piece of a device's memory that many buffers are cut from.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::driver::{Address, Driver, Fault};
use crate::memory::DeviceMemory;

/// Buffers begin at multiples of so many bytes.
const ALIGNED: usize = 256;

/// What a buffer takes: behind it is at least a byte that is nobody's.
fn taken(bytes: usize) -> usize {
    (bytes + 1).next_multiple_of(ALIGNED)
}

/// Some bytes of memory that others have a part of as well.
pub struct Part {
    at: Address,
    bytes: usize,
    /// Bytes between it and the next.
    between: usize,
    given: Arc<Given>,
    /// Freed when its last part is.
    _memory: Arc<DeviceMemory>,
}

/// Bytes of buffers that there are, and of what lies between them.
#[derive(Default)]
struct Given {
    buffers: AtomicU64,
    between: AtomicU64,
}

impl Drop for Part {
    fn drop(&mut self) {
        self.given.buffers.fetch_sub(self.bytes as u64, Ordering::Relaxed);
        self.given.between.fetch_sub(self.between as u64, Ordering::Relaxed);
    }
}

impl Part {
    /// Where they begin.
    pub fn at(&self) -> Address {
        self.at
    }

    /// How many there are.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Where a rank's buffers come from.
#[derive(Default)]
pub struct Arena {
    /// The memory that was reserved last, and how many of its bytes are taken.
    reserved: RefCell<Option<(Arc<DeviceMemory>, usize)>>,
    given: Arc<Given>,
}

impl Arena {
    /// Takes memory for buffers of these sizes.
    ///
    /// # Errors
    /// There is too little: with what is needed, and what is free.
    pub fn reserve(&self, driver: &Arc<dyn Driver>, buffers: impl Iterator<Item = usize>) -> Result<(), Fault> {
        let needed: usize = buffers.map(taken).sum();
        if needed == 0 {
            return Ok(());
        }
        let memory = DeviceMemory::new(driver.clone(), needed).map_err(|fault| {
            let free = driver.memory().map(|memory| format!(", {} bytes are free", memory.total - memory.used));
            Fault { text: format!("{} for the buffers of a rank{}", fault.text, free.unwrap_or_default()), ..fault }
        })?;
        *self.reserved.borrow_mut() = Some((Arc::new(memory), 0));
        Ok(())
    }

    /// So many bytes, of any contents: of what is reserved, as long as that lasts.
    ///
    /// # Errors
    /// There is too little.
    pub fn take(&self, driver: &Arc<dyn Driver>, bytes: usize) -> Result<Part, Fault> {
        let mut reserved = self.reserved.borrow_mut();
        let last = reserved.as_mut().filter(|(memory, used)| memory.bytes() - used >= taken(bytes));
        let Some((memory, used)) = last else {
            drop(reserved);
            let memory = Arc::new(DeviceMemory::new(driver.clone(), bytes)?);
            return Ok(self.part(memory.at(), [bytes, 0], memory));
        };
        let (at, between) = (memory.at().offset(*used), taken(bytes) - bytes);
        *used += taken(bytes);
        driver.guard(at.offset(bytes), between);
        Ok(self.part(at, [bytes, between], memory.clone()))
    }

    fn part(&self, at: Address, [bytes, between]: [usize; 2], memory: Arc<DeviceMemory>) -> Part {
        self.given.buffers.fetch_add(bytes as u64, Ordering::Relaxed);
        self.given.between.fetch_add(between as u64, Ordering::Relaxed);
        Part { at, bytes, between, given: self.given.clone(), _memory: memory }
    }

    /// Bytes of the buffers that there are, and of what lies between them.
    pub fn given(&self) -> [u64; 2] {
        [&self.given.buffers, &self.given.between].map(|bytes| bytes.load(Ordering::Relaxed))
    }
}

#[cfg(all(test, emulated))]
mod tests {
    use super::*;
    use crate::emulator::Emulator;

    fn driver() -> Arc<dyn Driver> {
        Arc::new(Emulator::new(1))
    }

    #[test]
    fn buffers_are_parts_of_what_is_reserved_and_then_by_themselves() {
        let (driver, arena) = (driver(), Arena::default());
        arena.reserve(&driver, [100, 0, 256].into_iter()).unwrap();
        let used = driver.memory().unwrap().used;
        assert_eq!(used, 256 + 256 + 512);
        let parts = [100, 0, 256].map(|bytes| arena.take(&driver, bytes).unwrap());
        let first = parts[0].at();
        assert_eq!(parts.each_ref().map(|part| part.at().0 - first.0), [0, 256, 512]);
        assert_eq!((driver.memory().unwrap().used, arena.given()), (used, [356, 668]));
        let own = arena.take(&driver, 10).unwrap();
        assert_eq!((driver.memory().unwrap().used, own.bytes()), (used + 10, 10));
        drop((parts, own));
        assert_eq!(arena.given(), [0, 0]);
        drop(arena);
        assert_eq!(driver.memory().unwrap().used, 0);
    }

    #[test]
    fn writing_between_buffers_is_found() {
        let (driver, arena) = (driver(), Arena::default());
        let stream = driver.stream(false).unwrap();
        arena.reserve(&driver, [100, 100].into_iter()).unwrap();
        let first = arena.take(&driver, 100).unwrap();
        let _second = arena.take(&driver, 100).unwrap();
        // SAFETY: behind the buffer is what lies between it and the next.
        unsafe { driver.clear(stream, first.at(), 101) }.unwrap();
        let fault = driver.synchronize(stream).unwrap_err();
        assert!(fault.text.contains("beyond"), "{fault}");
    }
}
