//! How many copies of a storage exist at once: one for every microbatch between its birth and its death.

use crate::program::ChunkProgram;
use crate::schedule::{Pass, Step};
use crate::{StorageId, StorageInfo, Value, ValueId};

/// What happens to a microbatch on a stage, as far as memory is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    let mut lives: Vec<Lives> = chunks.iter().map(|chunk| Lives::of(chunk, values, storages)).collect();
    most_alive(steps, &mut lives);
    for life in lives.iter().flat_map(|lives| &lives.all) {
        for storage in &life.storages {
            let info = &mut storages[storage.0];
            (info.kept, info.instances) = (true, reserved.unwrap_or(life.most));
        }
    }
}

/// What lives from one event to another, of a chunk.
struct Life {
    birth: Event,
    death: Event,
    storages: Vec<StorageId>,
    /// Microbatches that are between the two now, and the most so far.
    now: usize,
    most: usize,
}

/// What lives longer than an event, of a chunk.
struct Lives {
    all: Vec<Life>,
}

impl Lives {
    fn of(program: &ChunkProgram, values: &[Value], storages: &[StorageInfo]) -> Self {
        let mut lives = Self { all: Vec::new() };
        for (storage, span) in events(program, values, storages.len()).into_iter().enumerate() {
            if let Some((birth, death)) = span
                && birth != death
                && !storages[storage].persistent
            {
                lives.of_span(birth, death).storages.push(StorageId(storage));
            }
        }
        lives
    }

    fn of_span(&mut self, birth: Event, death: Event) -> &mut Life {
        let known = self.all.iter().position(|life| (life.birth, life.death) == (birth, death));
        let index = known.unwrap_or_else(|| {
            self.all.push(Life { birth, death, storages: Vec::new(), now: 0, most: 0 });
            self.all.len() - 1
        });
        &mut self.all[index]
    }
}

/// By storage: the events at which the chunk takes it and gives it back, if it touches it.
fn events(program: &ChunkProgram, values: &[Value], storages: usize) -> Vec<Option<(Event, Event)>> {
    let passes = [Pass::Forward, Pass::Backward, Pass::WeightGradient];
    let mut events: Vec<Option<(Event, Event)>> = vec![None; storages];
    let mut at = |value: ValueId, birth: Event, death: Event, begins: bool| {
        let span = &mut events[values[value.0].storage.0];
        let first = span.map_or(birth, |(first, _)| if begins { birth } else { first });
        *span = Some((first, death));
    };
    for (pass, section) in passes.into_iter().zip(program.sections()) {
        let run = Event::Run(pass);
        for op in &section.ops {
            op.operation.operands().all().iter().for_each(|value| at(*value, run, run, false));
        }
        // The message itself is posted before, or released after, all that the pass does with it.
        section.receives.iter().for_each(|received| at(received.value, Event::Post(pass), run, true));
        section.sends.iter().for_each(|sent| at(sent.value, run, Event::Release(pass), false));
    }
    events
}

/// Counts for every life the most microbatches that are between its two events, as the steps go.
fn most_alive(steps: &[Step], lives: &mut [Lives]) {
    for step in steps {
        let (action, event) = match *step {
            Step::Post(action) => (action, Event::Post(action.pass)),
            Step::Run(action) => (action, Event::Run(action.pass)),
            Step::Release(action) => (action, Event::Release(action.pass)),
        };
        for life in &mut lives[action.chunk].all {
            if event == life.birth {
                life.now += 1;
                life.most = life.most.max(life.now);
            }
            if event == life.death {
                life.now = life.now.saturating_sub(1);
            }
        }
    }
}
