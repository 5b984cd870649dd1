//! Which storages share a buffer.

use std::collections::BTreeSet;

use crate::{Lifetimes, StorageId, StorageInfo};

/// The buffers that a rank allocates once, and which of them each storage uses while it lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// By storage: the number of its buffer; `None` for those that outlive the pass and have memory of their own.
    pub buffer_of: Vec<Option<usize>>,
    /// By buffer: its size in elements.
    pub buffer_elements: Vec<usize>,
}

impl Placement {
    /// Walks the lifetimes; each new storage takes the smallest idle buffer that is large enough, or a new one if
    /// that would leave more than half of it unused: small values would keep large buffers from large ones.
    pub fn of(lifetimes: &[&Lifetimes], storages: &[StorageInfo]) -> Self {
        let mut placement = Self { buffer_of: vec![None; storages.len()], buffer_elements: Vec::new() };
        let mut idle: BTreeSet<(usize, usize)> = BTreeSet::new();
        for lifetimes in lifetimes {
            for (births, deaths) in lifetimes.births.iter().zip(&lifetimes.deaths) {
                for storage in births {
                    placement.place(*storage, storages[storage.0].elements, &mut idle);
                }
                for buffer in deaths.iter().filter_map(|storage| placement.buffer_of[storage.0]) {
                    idle.insert((placement.buffer_elements[buffer], buffer));
                }
            }
        }
        placement
    }

    /// `idle` holds (elements, buffer).
    fn place(&mut self, storage: StorageId, elements: usize, idle: &mut BTreeSet<(usize, usize)>) {
        let fitting = idle.range((elements, 0)..=(2 * elements, usize::MAX)).next().copied();
        let buffer = match fitting {
            Some(found) => {
                idle.remove(&found);
                found.1
            }
            None => {
                self.buffer_elements.push(elements);
                self.buffer_elements.len() - 1
            }
        };
        self.buffer_of[storage.0] = Some(buffer);
    }
}
