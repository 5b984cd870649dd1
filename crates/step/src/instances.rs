//! How many copies of a storage exist at once: one for every microbatch between its birth and its death.

use std::collections::BTreeMap;

use crate::program::ChunkProgram;
use crate::schedule::{Pass, Step};
use crate::{StorageId, StorageInfo, Value, ValueId};

/// What happens to a microbatch on a stage, as far as memory is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Post(Pass),
    Run(Pass),
    Release(Pass),
}

/// Sets `kept` and `instances` of every storage of the chunks; `reserved`: copies where the order of passes is not known.
pub(crate) fn count(
    chunks: &[ChunkProgram],
    steps: &[Step],
    reserved: Option<usize>,
    values: &[Value],
    storages: &mut [StorageInfo],
) {
    storages.iter_mut().for_each(|info| (info.instances, info.kept) = (1, false));
    let mut lives = Vec::new();
    for (chunk, program) in chunks.iter().enumerate() {
        for (storage, (birth, death)) in events(program, values) {
            let info = &mut storages[storage.0];
            if !info.persistent && birth != death {
                info.kept = true;
                lives.push((storage, (chunk, birth, death)));
            }
        }
    }
    let most = most_alive(steps, lives.iter().map(|(_, life)| *life));
    for (storage, life) in lives {
        storages[storage.0].instances = reserved.unwrap_or(most[&life]);
    }
}

/// The events at which each storage that the chunk touches is taken and given back.
fn events(program: &ChunkProgram, values: &[Value]) -> BTreeMap<StorageId, (Event, Event)> {
    let passes = [Pass::Forward, Pass::Backward, Pass::WeightGradient];
    let storage = |value: ValueId| values[value.0].storage;
    let mut events: BTreeMap<StorageId, (Event, Event)> = BTreeMap::new();
    for (pass, section) in passes.into_iter().zip(program.sections()) {
        for op in &section.ops {
            for value in op.operation.operands().all() {
                let life = events.entry(storage(*value)).or_insert((Event::Run(pass), Event::Run(pass)));
                life.1 = Event::Run(pass);
            }
        }
        for received in &section.receives {
            let life = events.entry(storage(received.value)).or_insert((Event::Run(pass), Event::Run(pass)));
            life.0 = Event::Post(pass);
        }
        for sent in &section.sends {
            let life = events.entry(storage(sent.value)).or_insert((Event::Run(pass), Event::Run(pass)));
            life.1 = Event::Release(pass);
        }
    }
    events
}

/// A chunk, and the events between which something of it lives.
type Life = (usize, Event, Event);

/// By life: the most microbatches that are between its two events, as the steps go.
fn most_alive(steps: &[Step], lives: impl Iterator<Item = Life>) -> BTreeMap<Life, usize> {
    let mut counts: BTreeMap<Life, (usize, usize)> = lives.map(|life| (life, (0, 0))).collect();
    let mut of_chunk: BTreeMap<usize, Vec<Life>> = BTreeMap::new();
    for life in counts.keys() {
        of_chunk.entry(life.0).or_default().push(*life);
    }
    for step in steps {
        let (action, event) = match *step {
            Step::Post(action) => (action, Event::Post(action.pass)),
            Step::Run(action) => (action, Event::Run(action.pass)),
            Step::Release(action) => (action, Event::Release(action.pass)),
        };
        for life in of_chunk.get(&action.chunk).into_iter().flatten() {
            let Some((now, most)) = counts.get_mut(life) else { continue };
            if event == life.1 {
                *now += 1;
                *most = (*most).max(*now);
            }
            if event == life.2 {
                *now = now.saturating_sub(1);
            }
        }
    }
    counts.into_iter().map(|(life, (_, most))| (life, most)).collect()
}
