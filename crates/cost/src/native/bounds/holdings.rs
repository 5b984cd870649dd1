//! Memory that the passes of a piece of layers take.

use quadrille_spec::Axis;
use quadrille_step::schedule::Pass;
use quadrille_step::{ChunkProgram, Lifetimes, Section, StageProgram, StorageId, ValueId};

/// How long a storage lives that outlives the pass that takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    /// From a microbatch's forward pass into its backward pass.
    InFlight,
    /// From the forward pass to the gradients of weights that are put off.
    Late,
    /// From the backward pass to the gradients of weights that are put off.
    PutOff,
    /// A message on its way.
    Message,
    /// The whole step: weights that stay gathered.
    Step,
}

impl Life {
    pub const ALL: [Self; 5] = [Self::InFlight, Self::Late, Self::PutOff, Self::Message, Self::Step];

    /// Of a storage that these passes touch.
    fn of(touched: [bool; 3]) -> Self {
        match touched {
            [true, _, true] => Self::Late,
            [true, true, false] => Self::InFlight,
            [false, true, true] => Self::PutOff,
            _ => Self::Message,
        }
    }
}

/// A storage is taken or given back. Searches hold many millions of them.
#[derive(Debug, Clone, Copy)]
struct Event {
    /// The number of its shape.
    storage: u32,
    takes: bool,
    /// Whether it lives from pass to pass.
    kept: bool,
}

/// The storages of a piece of layers.
#[derive(Debug, Clone, Default)]
pub(super) struct Holdings {
    /// By [`Life`]: storages and how many there are of each.
    lives: [Vec<(StorageId, usize)>; Life::ALL.len()],
    passes: [Vec<Event>; 3],
    update: Vec<Event>,
    /// Whether there are other stages.
    pipelined: bool,
}

/// Forward, backward, gradients of weights that are put off, and the update.
pub(super) const SECTIONS: usize = 4;

/// Bytes that a piece of layers takes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Held {
    /// Of one microbatch, by [`Life`].
    pub lives: [f64; Life::ALL.len()],
    /// The most that there is at once of what lives within passes: in each of them, and in the update.
    pub most: [f64; SECTIONS],
    /// The same with what lives from pass to pass, of a single microbatch; in a pipeline while it goes backward, since in
    /// other passes others are there, too.
    pub most_alone: f64,
}

impl Holdings {
    /// Of a stage with one piece, in these shapes of its storages.
    pub fn new(stage: &StageProgram, chunk: &ChunkProgram, shapes: &[StorageId]) -> Self {
        let parameters: Vec<StorageId> = stage
            .parameters
            .iter()
            .flat_map(|parameter| [parameter.value, parameter.gradient])
            .map(|value| stage.value(value).storage)
            .collect();
        let mut touched = vec![[false; 3]; stage.storages.len()];
        for (pass, section) in chunk.sections().into_iter().enumerate() {
            let mut touch = |value: ValueId| touched[stage.value(value).storage.0][pass] = true;
            for op in &section.ops {
                op.operation.operands().all().iter().for_each(|value| touch(*value));
            }
            section.receives.iter().chain(&section.sends).for_each(|message| touch(message.value));
        }
        let mut holdings = Self::default();
        for (index, touched) in touched.into_iter().enumerate() {
            let info = &stage.storages[index];
            let id = StorageId(index);
            let life = match (info.persistent, info.kept) {
                (true, _) if parameters.contains(&id) => continue,
                (true, _) => Life::Step,
                (false, true) => Life::of(touched),
                (false, false) => continue,
            };
            let shape = shapes[index];
            let list = &mut holdings.lives[life as usize];
            match list.iter_mut().find(|(known, _)| *known == shape) {
                Some((_, count)) => *count += 1,
                None => list.push((shape, 1)),
            }
        }
        let sections = [Pass::Forward, Pass::Backward, Pass::WeightGradient].map(|pass| chunk.section(pass));
        holdings.passes = sections.map(|section| events(stage, section, shapes));
        holdings.update = events(stage, &stage.update, shapes);
        holdings.pipelined = stage.grid().size(Axis::Pipe) > 1;
        holdings
    }

    /// In bytes; `bytes`: of each shape of a storage.
    pub fn held(&self, bytes: &[f64]) -> Held {
        let sum = |list: &Vec<(StorageId, usize)>| list.iter().map(|(id, count)| *count as f64 * bytes[id.0]).sum();
        let mut held = Held { lives: std::array::from_fn(|life| sum(&self.lives[life])), ..Held::default() };
        let mut now = 0.0;
        let mut alone = 0.0;
        for (section, events) in self.passes.iter().chain([&self.update]).enumerate() {
            let is_counted = !self.pipelined || section == 1;
            for event in events {
                let bytes = bytes[event.storage as usize];
                let change = if event.takes { bytes } else { -bytes };
                alone += change;
                if is_counted {
                    held.most_alone = held.most_alone.max(alone);
                }
                if !event.kept {
                    now += change;
                    held.most[section] = held.most[section].max(now);
                }
            }
        }
        held
    }
}

fn events(stage: &StageProgram, section: &Section, shapes: &[StorageId]) -> Vec<Event> {
    let Lifetimes { births, deaths } = &section.lifetimes;
    let mut events = Vec::new();
    for (births, deaths) in births.iter().zip(deaths) {
        for (ids, takes) in [(births, true), (deaths, false)] {
            events.extend(ids.iter().map(|id| {
                let kept = stage.storages[id.0].kept;
                Event { storage: shapes[id.0].0 as u32, takes, kept }
            }));
        }
    }
    events.shrink_to_fit();
    events
}
