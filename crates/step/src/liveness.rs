//! When storages are taken and given back.

use crate::{Op, StorageId, StorageInfo, Value};

/// Per operation, the storages that are first touched by it and those that are last touched by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lifetimes {
    /// Taken before the operation.
    pub births: Vec<Vec<StorageId>>,
    /// Given back after the operation.
    pub deaths: Vec<Vec<StorageId>>,
}

impl Lifetimes {
    /// The lifetimes of all storages that live only within `ops`.
    pub fn of(ops: &[Op], values: &[Value], storages: &[StorageInfo]) -> Self {
        let mut span: Vec<Option<(usize, usize)>> = vec![None; storages.len()];
        for (index, op) in ops.iter().enumerate() {
            let (reads, writes) = op.operation.operands();
            for value in reads.into_iter().chain(writes) {
                let storage = values[value.0].storage.0;
                let first = span[storage].map_or(index, |(first, _)| first);
                span[storage] = Some((first, index));
            }
        }
        let mut births = vec![Vec::new(); ops.len()];
        let mut deaths = vec![Vec::new(); ops.len()];
        for (storage, span) in span.into_iter().enumerate() {
            if let Some((first, last)) = span
                && !storages[storage].persistent
            {
                births[first].push(StorageId(storage));
                deaths[last].push(StorageId(storage));
            }
        }
        Self { births, deaths }
    }
}
