//! Which storages share a buffer.

use std::collections::BTreeSet;

use crate::program::{ChunkProgram, Section};
use crate::{StorageId, StorageInfo};

/// The buffers that a rank allocates once, and which of them each storage uses while it lives.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Placement {
    /// By storage: the number of its first copy's buffer, those of the others follow; `None` for those that outlive
    /// the step and have memory of their own.
    pub buffer_of: Vec<Option<usize>>,
    /// By buffer: its size.
    pub buffer_bytes: Vec<u64>,
}

impl Placement {
    /// Storages that live from pass to pass have buffers of their own where several microbatches may be in flight
    /// (`pipelined`, or several copies) or are reserved. For the others the lifetimes are walked; each new storage takes the
    /// smallest idle buffer that is large enough, or a new one if that would leave more than half of it unused: small
    /// values would keep large buffers from large ones.
    pub fn of(chunks: &[ChunkProgram], update: &Section, storages: &[StorageInfo], pipelined: bool) -> Self {
        let mut placement = Self { buffer_of: vec![None; storages.len()], buffer_bytes: Vec::new() };
        let alone = !pipelined && storages.iter().all(|storage| storage.instances == 1);
        for (index, storage) in storages.iter().enumerate() {
            if storage.kept && !alone {
                placement.buffer_of[index] = Some(placement.buffer_bytes.len());
                placement.buffer_bytes.extend(vec![storage.bytes(); storage.instances]);
            }
        }
        let shares = |storage: &&StorageId| !storages[storage.0].kept || alone;
        let mut idle: BTreeSet<(u64, usize)> = BTreeSet::new();
        for section in chunks.iter().flat_map(ChunkProgram::sections).chain([update]) {
            for (births, deaths) in section.lifetimes.births.iter().zip(&section.lifetimes.deaths) {
                for storage in births.iter().filter(shares) {
                    placement.place(*storage, storages[storage.0].bytes(), &mut idle);
                }
                for buffer in deaths.iter().filter(shares).filter_map(|storage| placement.buffer_of[storage.0]) {
                    idle.insert((placement.buffer_bytes[buffer], buffer));
                }
            }
        }
        placement
    }

    /// `idle` holds (bytes, buffer).
    fn place(&mut self, storage: StorageId, bytes: u64, idle: &mut BTreeSet<(u64, usize)>) {
        let fitting = idle.range((bytes, 0)..=(2 * bytes, usize::MAX)).next().copied();
        let buffer = match fitting {
            Some(found) => {
                idle.remove(&found);
                found.1
            }
            None => {
                self.buffer_bytes.push(bytes);
                self.buffer_bytes.len() - 1
            }
        };
        self.buffer_of[storage.0] = Some(buffer);
    }
}
