//! The memory of a rank: a buffer per live storage, all allocated once.
//!
//! The program's lifetimes are walked once to find out which storages of equal size can share a buffer; inside a
//! step buffers only change hands. What is taken and given back is counted by class.

use std::collections::BTreeMap;

use quadrille_spec::{MemoryClass, MemoryLedger};
use quadrille_step::{Section, StepProgram, StorageId};
use quadrille_tensor::Buffer;

use crate::{EngineError, Real};

/// The storages of one rank.
pub struct Slots<T> {
    /// By storage: its buffer while it lives and is not in flight.
    live: Vec<Option<Buffer<T>>>,
    /// By storage: the number of the buffer that it uses.
    home: Vec<Option<usize>>,
    /// Buffers that no live storage uses.
    idle: Vec<Option<Buffer<T>>>,
    classes: Vec<MemoryClass>,
    /// A name per storage, for messages.
    names: Vec<String>,
    memory: MemoryLedger,
}

impl<T: Real> Slots<T> {
    /// Allocates everything that `program` will need.
    pub fn new(program: &StepProgram) -> Self {
        let (home, sizes) = assign_buffers(program);
        let mut slots = Self {
            live: program.storages.iter().map(|_| None).collect(),
            home,
            idle: sizes.into_iter().map(|elements| Some(Buffer::new(elements))).collect(),
            classes: program.storages.iter().map(|storage| storage.class).collect(),
            names: vec![String::new(); program.storages.len()],
            memory: MemoryLedger::new(),
        };
        for value in &program.values {
            slots.names[value.storage.0].clone_from(&value.name);
        }
        for (index, storage) in program.storages.iter().enumerate().filter(|(_, storage)| storage.persistent) {
            slots.put(StorageId(index), Buffer::new(storage.elements));
            let bytes = slots.bytes(StorageId(index));
            slots.memory.take(storage.class, bytes);
        }
        slots
    }

    /// Gives a storage its buffer, with whatever that contains.
    pub(crate) fn begin(&mut self, storage: StorageId) -> Result<(), EngineError> {
        let buffer = self.home[storage.0].and_then(|home| self.idle[home].take());
        let buffer = buffer.ok_or_else(|| self.not_live(storage))?;
        self.memory.take(self.classes[storage.0], buffer.bytes() as u64);
        self.put(storage, buffer);
        Ok(())
    }

    /// Takes the buffer back.
    pub(crate) fn end(&mut self, storage: StorageId) -> Result<(), EngineError> {
        let buffer = self.take(storage)?;
        self.memory.give_back(self.classes[storage.0], buffer.bytes() as u64);
        if let Some(home) = self.home[storage.0] {
            self.idle[home] = Some(buffer);
        }
        Ok(())
    }

    /// The contents of a storage.
    pub(crate) fn read(&self, storage: StorageId) -> Result<&Buffer<T>, EngineError> {
        self.live[storage.0].as_ref().ok_or_else(|| self.not_live(storage))
    }

    /// Moves the buffer out, to write to it beside reading others, or to send it.
    pub(crate) fn take(&mut self, storage: StorageId) -> Result<Buffer<T>, EngineError> {
        self.live[storage.0].take().ok_or_else(|| self.not_live(storage))
    }

    /// Puts a buffer back that was taken.
    pub(crate) fn put(&mut self, storage: StorageId, buffer: Buffer<T>) {
        self.live[storage.0] = Some(buffer);
    }

    /// What is held, and was held at most.
    pub(crate) fn memory(&self) -> &MemoryLedger {
        &self.memory
    }

    /// Counts memory that lives outside the slots for the whole run.
    pub(crate) fn count_state(&mut self, class: MemoryClass, bytes: u64) {
        self.memory.take(class, bytes);
    }

    /// Bytes of all buffers, idle ones included: at least the peak of the live ones.
    pub fn allocated_bytes(&self) -> u64 {
        self.live.iter().chain(&self.idle).flatten().map(|buffer| buffer.bytes() as u64).sum()
    }

    fn bytes(&self, storage: StorageId) -> u64 {
        self.live[storage.0].as_ref().map_or(0, |buffer| buffer.bytes() as u64)
    }

    fn not_live(&self, storage: StorageId) -> EngineError {
        EngineError::NotLive { value: self.names[storage.0].clone() }
    }
}

/// Walks the lifetimes: which buffer each storage uses, and the buffers' sizes in elements.
fn assign_buffers(program: &StepProgram) -> (Vec<Option<usize>>, Vec<usize>) {
    let mut home = vec![None; program.storages.len()];
    let mut sizes: Vec<usize> = Vec::new();
    let mut free: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut walk = |section: &Section| {
        for (births, deaths) in section.lifetimes.births.iter().zip(&section.lifetimes.deaths) {
            for storage in births {
                let elements = program.storages[storage.0].elements;
                let buffer = free.get_mut(&elements).and_then(Vec::pop).unwrap_or_else(|| {
                    sizes.push(elements);
                    sizes.len() - 1
                });
                home[storage.0] = Some(buffer);
            }
            for storage in deaths {
                let elements = program.storages[storage.0].elements;
                free.entry(elements).or_default().extend(home[storage.0]);
            }
        }
    };
    walk(&program.pass);
    walk(&program.update);
    (home, sizes)
}
