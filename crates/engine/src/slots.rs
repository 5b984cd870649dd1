//! The memory of a rank: a buffer per live storage, all allocated once.
//!
//! The program says which storages share a buffer; inside a step buffers only change hands. What is taken and given
//! back is counted by class.

use std::ops::{Deref, DerefMut};

use quadrille_spec::{MemoryClass, MemoryLedger};
use quadrille_step::{StageProgram, StorageId};
use quadrille_tensor::Buffer;

use crate::{EngineError, Real};

/// The elements of one storage: the beginning of a buffer that may be larger.
pub(crate) struct Block<T> {
    buffer: Buffer<T>,
    len: usize,
}

impl<T> Block<T> {
    /// The first `len` elements, for a collective that leaves padding out.
    pub fn first(self, len: usize) -> Self {
        Self { len, ..self }
    }
}

impl<T> Deref for Block<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.buffer[..self.len]
    }
}

impl<T> DerefMut for Block<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.buffer[..self.len]
    }
}

impl<T> AsRef<[T]> for Block<T> {
    fn as_ref(&self) -> &[T] {
        self
    }
}

impl<T> AsMut<[T]> for Block<T> {
    fn as_mut(&mut self) -> &mut [T] {
        self
    }
}

/// The storages of one rank.
pub(crate) struct Slots<'a, T> {
    program: &'a StageProgram,
    /// The microbatch whose copies are meant.
    microbatch: usize,
    /// By storage and copy: its elements while it lives and is not in flight.
    live: Vec<Vec<Option<Block<T>>>>,
    /// By buffer of the program's placement, while no storage uses it.
    idle: Vec<Option<Buffer<T>>>,
    memory: MemoryLedger,
}

impl<'a, T: Real> Slots<'a, T> {
    /// Allocates everything that `program` will need but the storages `lent`, which are counted and put in later. A message-driven stage reserves what its passes leave to each
    /// other, for all microbatches that may be in flight.
    pub fn new(program: &'a StageProgram, lent: &[StorageId]) -> Result<Self, EngineError> {
        // The program counts in bytes of its own type of elements, whichever it is run in.
        let element = program.layout.dtype.bytes();
        let buffers = program.placement.buffer_bytes.iter();
        let mut slots = Self {
            program,
            microbatch: 0,
            live: program.storages.iter().map(|storage| (0..storage.instances).map(|_| None).collect()).collect(),
            idle: buffers.map(|bytes| Some(Buffer::new((*bytes / element) as usize))).collect(),
            memory: MemoryLedger::new(),
        };
        slots.memory.allocated = slots.idle.iter().flatten().map(|buffer| buffer.bytes() as u64).sum();
        for (index, storage) in program.storages.iter().enumerate() {
            if lent.contains(&StorageId(index)) {
                slots.count_state(storage.class, (storage.elements * size_of::<T>()) as u64);
            } else if storage.persistent {
                let buffer = Buffer::new(storage.elements);
                slots.count_state(storage.class, buffer.bytes() as u64);
                slots.put(StorageId(index), Block { len: buffer.len(), buffer });
            } else if storage.kept && program.is_message_driven() {
                for microbatch in 0..storage.instances {
                    slots.select(microbatch);
                    slots.begin(StorageId(index))?;
                }
            }
        }
        slots.select(0);
        Ok(slots)
    }

    /// From now on the copies of `microbatch` are meant.
    pub fn select(&mut self, microbatch: usize) {
        self.microbatch = microbatch;
    }

    /// Which copy of a storage the selected microbatch uses.
    pub fn copy(&self, storage: StorageId) -> usize {
        self.microbatch % self.program.storages[storage.0].instances
    }

    /// Gives a storage its buffer, with whatever that contains.
    pub fn begin(&mut self, storage: StorageId) -> Result<(), EngineError> {
        let buffer = self.buffer_of(storage).and_then(|buffer| self.idle[buffer].take());
        let buffer = buffer.ok_or_else(|| self.not_live(storage))?;
        let info = &self.program.storages[storage.0];
        let block = Block { buffer, len: info.elements };
        self.memory.take(info.class, size_of_val(&*block) as u64);
        self.put(storage, block);
        Ok(())
    }

    /// Takes the buffer back.
    pub fn end(&mut self, storage: StorageId) -> Result<(), EngineError> {
        let block = self.take(storage)?;
        self.memory.give_back(self.program.storages[storage.0].class, size_of_val(&*block) as u64);
        if let Some(buffer) = self.buffer_of(storage) {
            self.idle[buffer] = Some(block.buffer);
        }
        Ok(())
    }

    fn buffer_of(&self, storage: StorageId) -> Option<usize> {
        self.program.placement.buffer_of[storage.0].map(|first| first + self.copy(storage))
    }

    /// The contents of a storage.
    pub fn read(&self, storage: StorageId) -> Result<&[T], EngineError> {
        self.live[storage.0][self.copy(storage)].as_deref().ok_or_else(|| self.not_live(storage))
    }

    /// Moves the elements out, to write to them beside reading others, or to send them.
    pub fn take(&mut self, storage: StorageId) -> Result<Block<T>, EngineError> {
        let copy = self.copy(storage);
        self.live[storage.0][copy].take().ok_or_else(|| self.not_live(storage))
    }

    /// Puts back what was taken.
    pub fn put(&mut self, storage: StorageId, block: Block<T>) {
        let copy = self.copy(storage);
        self.live[storage.0][copy] = Some(block.first(self.program.storages[storage.0].elements));
    }

    /// What is held, was held at most, and is allocated.
    pub fn memory(&self) -> &MemoryLedger {
        &self.memory
    }

    /// Counts memory that is allocated for the whole run.
    pub fn count_state(&mut self, class: MemoryClass, bytes: u64) {
        self.memory.take(class, bytes);
        self.memory.allocated += bytes;
    }

    /// The error of a storage that holds nothing.
    pub fn not_live(&self, storage: StorageId) -> EngineError {
        let named = self.program.values.iter().rev().find(|value| value.storage == storage);
        EngineError::NotLive { value: named.map_or_else(String::new, |value| value.name.clone()) }
    }
}
