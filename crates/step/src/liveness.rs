//! When storages are taken and given back.

use crate::program::{ChunkProgram, Section};
use crate::{Op, StorageId, StorageInfo, Value, ValueId};

/// Per operation, the storages that are first touched by it and those that are last touched by it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lifetimes {
    /// Taken before the operation.
    pub births: Vec<Vec<StorageId>>,
    /// Given back after the operation.
    pub deaths: Vec<Vec<StorageId>>,
}

impl Lifetimes {
    /// The lifetimes of all storages that live only within `ops`.
    pub fn of<'a>(ops: impl ExactSizeIterator<Item = &'a Op>, values: &[Value], storages: &[StorageInfo]) -> Self {
        let mut lifetimes = Self { births: vec![Vec::new(); ops.len()], deaths: vec![Vec::new(); ops.len()] };
        for (storage, span) in spans(ops, values, storages.len()).into_iter().enumerate() {
            if let Some((first, last)) = span
                && !storages[storage].persistent
            {
                lifetimes.births[first].push(StorageId(storage));
                lifetimes.deaths[last].push(StorageId(storage));
            }
        }
        lifetimes
    }

    /// Sets the lifetimes of a chunk's sections. Received storages are taken, and sent ones given back, outside of
    /// them; with `reserved` memory so are all that live from pass to pass.
    pub fn set(chunk: &mut ChunkProgram, values: &[Value], storages: &[StorageInfo], reserved: bool) {
        let ops: Vec<&Op> = chunk.sections().into_iter().flat_map(|section| &section.ops).collect();
        let Self { mut births, mut deaths } = Self::of(ops.into_iter(), values, storages);
        let storage = |value: ValueId| values[value.0].storage;
        let received = storages_of(chunk, |section| &section.receives, storage);
        let sent = storages_of(chunk, |section| &section.sends, storage);
        let outside = |storage: &StorageId| reserved && storages[storage.0].kept;
        births.iter_mut().for_each(|births| births.retain(|each| !received.contains(each) && !outside(each)));
        deaths.iter_mut().for_each(|deaths| deaths.retain(|each| !sent.contains(each) && !outside(each)));
        for section in [&mut chunk.forward, &mut chunk.backward, &mut chunk.weight_gradient] {
            let rest = section.ops.len();
            let later_births = births.split_off(rest);
            let later_deaths = deaths.split_off(rest);
            section.lifetimes = Self { births, deaths };
            (births, deaths) = (later_births, later_deaths);
        }
    }
}

fn storages_of(
    chunk: &ChunkProgram,
    messages: impl Fn(&Section) -> &Vec<crate::Message>,
    storage: impl Fn(ValueId) -> StorageId,
) -> Vec<StorageId> {
    chunk.sections().into_iter().flat_map(messages).map(|message| storage(message.value)).collect()
}

/// By storage: the first and the last of `ops` that touch it.
fn spans<'a>(ops: impl Iterator<Item = &'a Op>, values: &[Value], storages: usize) -> Vec<Option<(usize, usize)>> {
    let mut spans: Vec<Option<(usize, usize)>> = vec![None; storages];
    for (index, op) in ops.enumerate() {
        for value in op.operation.operands().all() {
            let span = &mut spans[values[value.0].storage.0];
            *span = Some((span.map_or(index, |(first, _)| first), index));
        }
    }
    spans
}
