//! The emulated device's memory, every byte of which is 0xff, and so no number, before it is written and after it is freed.

use std::collections::BTreeMap;
use std::ops::Range;

use super::fault;
use crate::driver::{Address, Fault};

/// What the device says that it has.
pub const TOTAL: usize = 8 << 30;
/// What every byte is that holds nothing.
const POISON: u8 = 0xff;
/// Bytes of poison around each allocation, which nobody may write.
const GUARD: usize = 256;
/// Allocations whose ends are checked at once.
const CHECKED: usize = 64;
/// Freed bytes that are kept, so that whoever still uses them finds poison.
const KEPT: usize = 256 << 10;

/// Memory with a guard on either side; blocks begin at multiples of [`GUARD`].
struct Allocation {
    blocks: Vec<Block>,
    bytes: usize,
    /// Bytes between its parts, which nobody may write either.
    guards: Vec<Range<usize>>,
}

#[derive(Clone, Copy)]
#[repr(C, align(256))]
struct Block([u8; GUARD]);

impl Allocation {
    fn new(bytes: usize) -> Self {
        Self { blocks: vec![Block([POISON; GUARD]); bytes.div_ceil(GUARD) + 2], bytes, guards: Vec::new() }
    }

    fn address(&mut self) -> Address {
        Address(self.blocks.as_mut_ptr() as u64 + GUARD as u64)
    }

    /// Whether nobody has written beyond either end.
    fn is_sound(&self) -> bool {
        let last = 1 + self.bytes / GUARD;
        let used = self.bytes % GUARD;
        let is_poison = |bytes: &[u8]| bytes == &[POISON; GUARD][..bytes.len()];
        is_poison(&self.blocks[0].0)
            && is_poison(&self.blocks[last].0[used..])
            && is_poison(&self.blocks[self.blocks.len() - 1].0)
    }

    /// Where the bytes between two of its parts begin that somebody has written.
    fn written_between(&self) -> Option<usize> {
        let all = self.blocks.as_ptr().cast::<u8>();
        // SAFETY: guards lie within the allocation, which begins behind the first block.
        let guard = |at: &Range<usize>| unsafe { std::slice::from_raw_parts(all.add(GUARD + at.start), at.len()) };
        let is_poison = |bytes: &[u8]| bytes == &[POISON; GUARD][..bytes.len()];
        self.guards.iter().find(|at| !guard(at).chunks(GUARD).all(is_poison)).map(|at| at.start)
    }
}

/// All memory in use, and some that was.
#[derive(Default)]
pub struct Allocations {
    used: BTreeMap<Address, Allocation>,
    /// The first address whose ends are to be checked next.
    checked: Address,
    freed: Vec<Allocation>,
}

impl Allocations {
    /// So many bytes, if there are as many.
    pub fn allocate(&mut self, bytes: usize) -> Result<Address, Fault> {
        if self.used().saturating_add(bytes) > TOTAL {
            return Err(fault(format!("out of memory, allocating {bytes} bytes")));
        }
        let mut allocation = Allocation::new(bytes);
        let address = allocation.address();
        self.used.insert(address, allocation);
        Ok(address)
    }

    pub fn free(&mut self, at: Address) -> Result<(), Fault> {
        let allocation = self.used.remove(&at).ok_or_else(|| fault(format!("{:#x} was not allocated", at.0)))?;
        self.check_one(at, &allocation)?;
        let mut allocation = allocation;
        allocation.blocks.fill(Block([POISON; GUARD]));
        self.freed.push(allocation);
        while self.freed.iter().map(|allocation| allocation.bytes).sum::<usize>() > KEPT {
            self.freed.remove(0);
        }
        Ok(())
    }

    /// Bytes of an allocation are nobody's from now on.
    pub fn guard(&mut self, at: Address, bytes: usize) {
        if let Some((start, allocation)) = self.used.range_mut(..=at).next_back() {
            let first = (at.0 - start.0) as usize;
            assert!(first + bytes <= allocation.bytes, "a guard beyond its memory");
            allocation.guards.push(first..first + bytes);
        }
    }

    /// How many bytes were allocated at an address; of none none.
    pub fn bytes(&self, at: Address) -> usize {
        self.used.get(&at).map_or(0, |allocation| allocation.bytes)
    }

    /// Bytes in use.
    pub fn used(&self) -> usize {
        self.used.values().map(|allocation| allocation.bytes).sum()
    }

    /// Whether somebody has written beyond the ends of what was allocated, of many allocations of some more with every call,
    /// or to what was freed.
    pub fn check(&mut self) -> Result<(), Fault> {
        let before = ..self.checked;
        let after = self.checked..;
        let next = self.used.range(after).chain(self.used.range(before)).take(CHECKED);
        let mut last = None;
        for (at, allocation) in next {
            self.check_one(*at, allocation)?;
            last = Some(*at);
        }
        self.checked = last.map_or(Address::NONE, |at| at.offset(1));
        let is_poison = |allocation: &Allocation| allocation.blocks.iter().all(|block| block.0 == [POISON; GUARD]);
        if self.freed.iter().all(is_poison) { Ok(()) } else { Err(fault("memory was written after it was freed")) }
    }

    fn check_one(&self, at: Address, allocation: &Allocation) -> Result<(), Fault> {
        if let Some(start) = allocation.written_between() {
            return Err(fault(format!("something wrote beyond the end of a buffer, at {:#x}", at.offset(start).0)));
        }
        if allocation.is_sound() {
            return Ok(());
        }
        Err(fault(format!("something wrote beyond the {} bytes at {:#x}", allocation.bytes, at.0)))
    }
}
