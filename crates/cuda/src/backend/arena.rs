//! One piece of a device's memory that many buffers are cut from.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::driver::{ALIGNED, Address, Driver, Fault};
use crate::memory::DeviceMemory;

/// What a buffer takes: behind it is at least a byte that is nobody's.
fn taken(bytes: usize) -> usize {
    (bytes + 1).next_multiple_of(ALIGNED)
}

/// Some bytes of memory that others have a part of as well.
pub struct Part {
    at: Address,
    bytes: usize,
    /// Bytes of all parts.
    parts: Arc<AtomicU64>,
    /// Freed when its last part is.
    _memory: Arc<DeviceMemory>,
}

impl Drop for Part {
    fn drop(&mut self) {
        self.parts.fetch_sub(self.bytes as u64, Ordering::Relaxed);
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
    /// Bytes of all memory that buffers are cut from, and of all buffers.
    memory: Arc<AtomicU64>,
    parts: Arc<AtomicU64>,
}

impl Arena {
    /// Takes memory for buffers of these sizes, which are to be taken before more is reserved.
    ///
    /// # Errors
    /// There is too little: with what is needed, and what is free.
    ///
    /// # Panics
    /// If buffers that were reserved before have not been taken.
    pub fn reserve(&self, driver: &Arc<dyn Driver>, buffers: impl Iterator<Item = usize>) -> Result<(), Fault> {
        let needed: usize = buffers.map(taken).sum();
        if needed == 0 {
            return Ok(());
        }
        let memory = DeviceMemory::new(driver.clone(), needed, &self.memory).map_err(|fault| {
            let free =
                driver.device().memory().map(|memory| format!(", {} bytes are free", memory.total - memory.used));
            Fault { text: format!("{} for the buffers of a rank{}", fault.text, free.unwrap_or_default()), ..fault }
        })?;
        if let Some((memory, used)) = self.reserved.replace(Some((Arc::new(memory), 0))) {
            assert_eq!(used, memory.bytes(), "buffers were reserved that nobody has taken");
        }
        Ok(())
    }

    /// So many bytes, of any contents: of what is reserved, as long as that lasts.
    ///
    /// # Errors
    /// There is too little.
    pub fn take(&self, driver: &Arc<dyn Driver>, bytes: usize) -> Result<Part, Fault> {
        let mut reserved = self.reserved.borrow_mut();
        let last = reserved.as_mut().filter(|(memory, used)| memory.bytes() - used >= taken(bytes));
        let (at, memory) = match last {
            None => {
                let memory = Arc::new(DeviceMemory::new(driver.clone(), bytes, &self.memory)?);
                (memory.at(), memory)
            }
            Some((memory, used)) => {
                let at = memory.at().offset(*used);
                *used += taken(bytes);
                driver.guard(at.offset(bytes), taken(bytes) - bytes);
                (at, memory.clone())
            }
        };
        self.parts.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(Part { at, bytes, parts: self.parts.clone(), _memory: memory })
    }

    /// Bytes of the buffers that there are, and of what lies between them.
    pub fn given(&self) -> [u64; 2] {
        let [memory, parts] = [&self.memory, &self.parts].map(|bytes| bytes.load(Ordering::Relaxed));
        [parts, memory - parts]
    }
}

#[cfg(test)]
#[cfg(emulated)]
mod tests {
    use super::*;
    use crate::emulator::Emulator;

    fn driver() -> Arc<dyn Driver> {
        Arc::new(Emulator::new(1))
    }

    #[test]
    fn buffers_are_parts_of_what_is_reserved_and_then_by_themselves() {
        let driver = driver();
        let arena = Arena::default();
        arena.reserve(&driver, [100, 0, 256].into_iter()).unwrap();
        let used = driver.device().memory().unwrap().used;
        assert_eq!(used, 256 + 256 + 512);
        let parts = [100, 0, 256].map(|bytes| arena.take(&driver, bytes).unwrap());
        let first = parts[0].at();
        assert_eq!(parts.each_ref().map(|part| part.at().0 - first.0), [0, 256, 512]);
        assert_eq!((driver.device().memory().unwrap().used, arena.given()), (used, [356, 668]));
        let own = arena.take(&driver, 10).unwrap();
        assert_eq!((driver.device().memory().unwrap().used, own.bytes()), (used + 10, 10));
        drop((parts, own));
        assert_eq!(arena.given(), [0, used as u64]);
        drop(arena);
        assert_eq!(driver.device().memory().unwrap().used, 0);
    }

    #[test]
    fn too_little_memory_is_told_with_what_is_needed_and_free() {
        let driver = driver();
        let arena = Arena::default();
        let total = driver.device().memory().unwrap().total;
        let _other = arena.take(&driver, 1000).unwrap();
        let fault = arena.reserve(&driver, [total / 2, total / 2].into_iter()).unwrap_err().to_string();
        let needed = 2 * taken(total / 2);
        let free = total - 1000;
        assert!(fault.contains(&format!("{needed} bytes for the buffers of a rank, {free} bytes are free")), "{fault}");
    }

    #[test]
    #[should_panic(expected = "nobody has taken")]
    fn what_is_reserved_is_taken() {
        let driver = driver();
        let arena = Arena::default();
        arena.reserve(&driver, [100, 100].into_iter()).unwrap();
        let _first = arena.take(&driver, 100).unwrap();
        arena.reserve(&driver, [100].into_iter()).unwrap();
    }

    #[test]
    fn writing_between_buffers_is_found() {
        let driver = driver();
        let arena = Arena::default();
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
