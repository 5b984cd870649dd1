//! How many copies of a storage exist at once: one for every microbatch between its birth and its death.

use std::collections::BTreeMap;

use quadrille_spec::{Axis, Layout, Schedule};

use crate::liveness::spans;
use crate::program::ChunkProgram;
use crate::schedule::{Action, Pass, Step};
use crate::{StorageInfo, Value};

/// What happens to a microbatch on a stage, as far as memory is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Post(Pass),
    Run(Pass),
    Release(Pass),
}

/// Sets `kept` and `instances` of every storage of the chunks.
pub(crate) fn count(
    chunks: &[ChunkProgram],
    steps: &[Step],
    layout: &Layout,
    values: &[Value],
    storages: &mut [StorageInfo],
) {
    storages.iter_mut().for_each(|info| (info.instances, info.kept) = (1, false));
    for (chunk, program) in chunks.iter().enumerate() {
        let mut alive: BTreeMap<(Event, Event), usize> = BTreeMap::new();
        for (storage, (birth, death)) in events(program, values, storages.len()) {
            let info = &mut storages[storage];
            if info.persistent || birth == death {
                continue;
            }
            info.kept = true;
            info.instances = match layout.schedule {
                // The order of passes is not known: the limit is reserved.
                Schedule::MessageDriven => layout.grid.size(Axis::Pipe).min(layout.microbatches()),
                _ => *alive.entry((birth, death)).or_insert_with(|| most_alive(steps, chunk, birth, death)),
            };
        }
    }
}

/// The events at which each storage that the chunk touches is taken and given back.
fn events(program: &ChunkProgram, values: &[Value], storages: usize) -> Vec<(usize, (Event, Event))> {
    let passes = [Pass::Forward, Pass::Backward, Pass::WeightGradient];
    let mut events: BTreeMap<usize, (Event, Event)> = BTreeMap::new();
    for (pass, section) in passes.into_iter().zip(program.sections()) {
        for (storage, span) in spans(section.ops.iter(), values, storages).into_iter().enumerate() {
            if span.is_some() {
                let birth = events.get(&storage).map_or(Event::Run(pass), |(birth, _)| *birth);
                events.insert(storage, (birth, Event::Run(pass)));
            }
        }
        let storage = |message: &crate::Message| values[message.value.0].storage.0;
        for received in section.receives.iter().map(storage) {
            let death = events.get(&received).map_or(Event::Run(pass), |(_, death)| *death);
            events.insert(received, (Event::Post(pass), death));
        }
        for sent in section.sends.iter().map(storage) {
            let birth = events.get(&sent).map_or(Event::Run(pass), |(birth, _)| *birth);
            events.insert(sent, (birth, Event::Release(pass)));
        }
    }
    events.into_iter().collect()
}

/// The most microbatches of `chunk` that are between the two events, as the steps go.
fn most_alive(steps: &[Step], chunk: usize, birth: Event, death: Event) -> usize {
    let (mut now, mut most) = (0_usize, 0);
    for step in steps {
        let (action, event): (Action, Event) = match *step {
            Step::Post(action) => (action, Event::Post(action.pass)),
            Step::Run(action) => (action, Event::Run(action.pass)),
            Step::Release(action) => (action, Event::Release(action.pass)),
        };
        if action.chunk != chunk {
            continue;
        }
        if event == birth {
            now += 1;
            most = most.max(now);
        }
        if event == death {
            now = now.saturating_sub(1);
        }
    }
    most
}
