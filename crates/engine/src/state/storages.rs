//! The memory of a rank: a buffer per live storage, all allocated once.
//!
//! The program says which storages share a buffer; inside a step buffers only change hands. What is taken and given
//! back is counted by class.

use std::ops::Range;
use std::rc::Rc;

use quadrille_comm::{Element, Memory, Payload};
use quadrille_spec::{MemoryClass, MemoryLedger};
use quadrille_step::{StageProgram, StorageId, StorageInfo};

use crate::backend::Kind;
use crate::{Backend, EngineError};

/// The elements of one storage: the beginning of a buffer that may be larger.
pub(crate) struct Block<B: Backend> {
    buffer: B::Buffer,
    kind: Kind,
    len: usize,
}

impl<B: Backend> Block<B> {
    /// The first `len` elements, for a collective that leaves padding out.
    pub fn first(self, len: usize) -> Self {
        Self { len, ..self }
    }

    /// Some of the elements, to be read.
    pub fn view(&self, range: Range<usize>) -> B::View<'_> {
        assert!(range.end <= self.len, "elements {range:?} of {}", self.len);
        B::view(&self.buffer, self.kind, range)
    }

    /// Some of the elements, to be written.
    pub fn view_mut(&mut self, range: Range<usize>) -> B::ViewMut<'_> {
        assert!(range.end <= self.len, "elements {range:?} of {}", self.len);
        B::view_mut(&mut self.buffer, self.kind, range)
    }

    /// All elements, to be written.
    pub fn whole_mut(&mut self) -> B::ViewMut<'_> {
        self.view_mut(0..self.len)
    }

    /// Kind of the elements.
    pub fn kind(&self) -> Kind {
        self.kind
    }
}

impl<T: Element, B: Backend<Buffer: Payload<T>>> Payload<T> for Block<B> {
    type Mover = <B::Buffer as Payload<T>>::Mover;

    fn mover(&self) -> Self::Mover {
        self.buffer.mover()
    }

    fn memory(&mut self) -> Memory<'_> {
        self.buffer.memory().first(self.len)
    }
}

/// Kind of a storage's elements.
fn kind_of<B: Backend>(storage: &StorageInfo) -> Kind {
    if storage.element_bytes == size_of::<B::Stored>() as u64 { Kind::Stored } else { Kind::Real }
}

/// The storages of one rank.
pub(crate) struct Storages<'a, B: Backend> {
    backend: Rc<B>,
    program: &'a StageProgram,
    /// The microbatch whose copies are meant.
    microbatch: usize,
    /// By storage and copy: its elements while it lives and is not in flight.
    live: Vec<Vec<Option<Block<B>>>>,
    /// By buffer of the program's placement, while no storage uses it.
    idle: Vec<Option<B::Buffer>>,
    memory: MemoryLedger,
}

impl<'a, B: Backend> Storages<'a, B> {
    /// Allocates everything that `program` will need but the storages `lent`, which are counted and put in later. A message-driven stage reserves what its passes leave to each
    /// other, for all microbatches that may be in flight.
    pub fn new(backend: Rc<B>, program: &'a StageProgram, lent: &[StorageId]) -> Result<Self, EngineError> {
        let own = |index: &usize| !lent.contains(&StorageId(*index)) && program.storages[*index].persistent;
        let states = (0..program.storages.len()).filter(own).map(|index| program.storages[index].bytes());
        let sizes: Vec<u64> = program.placement.buffer_bytes.iter().copied().chain(states).collect();
        backend.reserve(&sizes)?;
        let idle = program.placement.buffer_bytes.iter().map(|bytes| backend.allocate(*bytes).map(Some));
        let mut storages = Self {
            idle: idle.collect::<Result<_, _>>()?,
            backend,
            program,
            microbatch: 0,
            live: program.storages.iter().map(|storage| (0..storage.instances).map(|_| None).collect()).collect(),
            memory: MemoryLedger::new(),
        };
        storages.memory.allocated = storages.idle.iter().flatten().map(B::bytes).sum();
        for (index, storage) in program.storages.iter().enumerate() {
            if lent.contains(&StorageId(index)) {
                storages.count_state(storage.class, storage.bytes());
            } else if storage.persistent {
                let buffer = storages.backend.allocate(storage.bytes())?;
                storages.count_state(storage.class, B::bytes(&buffer));
                storages.put(StorageId(index), Block { len: storage.elements, kind: kind_of::<B>(storage), buffer });
            } else if storage.kept && program.is_message_driven() {
                for microbatch in 0..storage.instances {
                    storages.select(microbatch);
                    storages.begin(StorageId(index))?;
                }
            }
        }
        storages.select(0);
        Ok(storages)
    }

    /// From now on the copies of `microbatch` are meant.
    pub fn select(&mut self, microbatch: usize) {
        self.microbatch = microbatch;
    }

    /// The copy of a storage that the selected microbatch uses.
    pub fn copy(&self, storage: StorageId) -> usize {
        self.microbatch % self.program.storages[storage.0].instances
    }

    /// Gives a storage its buffer, with whatever that contains.
    pub fn begin(&mut self, storage: StorageId) -> Result<(), EngineError> {
        let buffer = self.buffer_of(storage).and_then(|buffer| self.idle[buffer].take());
        let buffer = buffer.ok_or_else(|| self.not_live(storage))?;
        let info = &self.program.storages[storage.0];
        self.memory.take(info.class, info.bytes());
        self.put(storage, Block { buffer, kind: kind_of::<B>(info), len: info.elements });
        Ok(())
    }

    /// Takes the buffer back.
    pub fn end(&mut self, storage: StorageId) -> Result<(), EngineError> {
        let block = self.take(storage)?;
        let info = &self.program.storages[storage.0];
        self.memory.give_back(info.class, info.bytes());
        if let Some(buffer) = self.buffer_of(storage) {
            self.idle[buffer] = Some(block.buffer);
        }
        Ok(())
    }

    fn buffer_of(&self, storage: StorageId) -> Option<usize> {
        self.program.placement.buffer_of[storage.0].map(|first| first + self.copy(storage))
    }

    /// Some of the contents of a storage.
    pub fn read(&self, storage: StorageId, range: Range<usize>) -> Result<B::View<'_>, EngineError> {
        let block = self.live[storage.0][self.copy(storage)].as_ref();
        block.map(|block| block.view(range)).ok_or_else(|| self.not_live(storage))
    }

    /// Moves the elements out, to write to them beside reading others, or to send them.
    pub fn take(&mut self, storage: StorageId) -> Result<Block<B>, EngineError> {
        let copy = self.copy(storage);
        self.live[storage.0][copy].take().ok_or_else(|| self.not_live(storage))
    }

    /// Puts back what was taken.
    pub fn put(&mut self, storage: StorageId, block: Block<B>) {
        let copy = self.copy(storage);
        self.live[storage.0][copy] = Some(block.first(self.program.storages[storage.0].elements));
    }

    /// Moves some of the elements out, lets `write` fill them while it reads other storages, and puts them back.
    pub fn write<R>(
        &mut self,
        storage: StorageId,
        range: Range<usize>,
        write: impl FnOnce(&Self, &mut B::ViewMut<'_>) -> Result<R, EngineError>,
    ) -> Result<R, EngineError> {
        let mut block = self.take(storage)?;
        let result = write(self, &mut block.view_mut(range));
        self.put(storage, block);
        result
    }

    /// Memory that is held, was held at most, and is allocated.
    pub fn memory(&self) -> &MemoryLedger {
        &self.memory
    }

    /// Counts memory that is allocated for the whole run.
    pub fn count_state(&mut self, class: MemoryClass, bytes: u64) {
        self.memory.take(class, bytes);
        self.memory.allocated += bytes;
    }

    /// Counts memory of the host that is allocated for the whole run.
    pub fn count_host(&mut self, bytes: u64) {
        self.memory.take(MemoryClass::Host, bytes);
    }

    /// The error of a storage that holds nothing.
    pub fn not_live(&self, storage: StorageId) -> EngineError {
        let named = self.program.values.iter().rev().find(|value| value.storage == storage);
        EngineError::NotLive { value: named.map_or_else(String::new, |value| value.name.clone()) }
    }
}
