//! The memory of a rank over a step by name: how much each pass holds at most, and what lives when most does.

use std::collections::BTreeMap;

use quadrille_spec::MemoryClass;

use super::{CLASSES, Profiles, Taken};
use crate::program::Section;
use crate::schedule::{Action, Step};
use crate::{Message, StageProgram, StorageId, ValueId};

/// When a rank holds the most bytes, and what they are. All of it together are the peak of the ledger.
#[derive(Debug, Clone, PartialEq)]
pub struct Moment {
    /// The step in which it comes first: a pass, or a message between passes; `None`: the update.
    pub step: Option<Step>,
    /// What lives: in the order of the classes, the largest first.
    pub living: Vec<Held>,
}

/// Something that is held.
#[derive(Debug, Clone, PartialEq)]
pub struct Held {
    /// What it is counted as.
    pub class: MemoryClass,
    /// What the numbers are; `None`: the optimizer's states.
    pub value: Option<ValueId>,
    /// Copies of it, for microbatches in flight.
    pub copies: usize,
    /// Of all copies.
    pub bytes: u64,
}

impl StageProgram {
    /// The most bytes that each pass of a step holds on a rank of the stage, of each class and together, in the order of the
    /// step; the update is last, with no action.
    pub fn held_by_passes(&self) -> Vec<(Option<Action>, [u64; CLASSES], u64)> {
        let profiles = Profiles::of(self);
        let mut held = profiles.states;
        let mut passes = Vec::new();
        let mut most = |held: &Taken, action| passes.push((action, held.most, held.most_together));
        for step in &self.steps {
            held = Taken { most: held.now, most_together: held.now.iter().sum(), ..held };
            profiles.step(*step, &mut held);
            if let Step::Run(action) = *step {
                most(&held, Some(action));
            }
        }
        held = Taken { most: held.now, most_together: held.now.iter().sum(), ..held };
        held.run(&profiles.update);
        most(&held, None);
        passes
    }

    /// What lives on a rank of the stage when a step holds the most.
    pub fn fullest_moment(&self) -> Moment {
        let profiles = Profiles::of(self);
        let peak = profiles.held(&self.steps).most_together;
        let mut held = profiles.states;
        let mut counts = Counts::of(self);
        for step in &self.steps {
            let before = held;
            profiles.step(*step, &mut held);
            if held.most_together == peak {
                return counts.at(*step, peak - before.now.iter().sum::<u64>());
            }
            counts.after(*step);
        }
        counts.within(&self.update, peak - held.now.iter().sum::<u64>());
        counts.moment(None)
    }
}

/// How many copies of each storage live.
struct Counts<'a> {
    program: &'a StageProgram,
    copies: Vec<usize>,
}

impl<'a> Counts<'a> {
    /// Before the first operation.
    fn of(program: &'a StageProgram) -> Self {
        let reserved = program.is_message_driven();
        let copies = program.storages.iter().map(|info| match info {
            info if info.persistent => 1,
            info if info.kept && reserved => info.instances,
            _ => 0,
        });
        Self { program, copies: copies.collect() }
    }

    fn messages(&mut self, messages: &[Message], take: bool) {
        for message in messages.iter().filter(|_| !self.program.is_message_driven()) {
            let copies = &mut self.copies[self.program.value(message.value).storage.0];
            *copies = if take { *copies + 1 } else { copies.saturating_sub(1) };
        }
    }

    fn run(&mut self, section: &Section, ops: usize, with_last: bool) {
        let lifetimes = &section.lifetimes;
        for (index, births) in lifetimes.births[..ops].iter().enumerate() {
            births.iter().for_each(|storage| self.copies[storage.0] += 1);
            if index + 1 < ops || with_last {
                lifetimes.deaths[index].iter().for_each(|storage| self.copies[storage.0] -= 1);
            }
        }
    }

    fn after(&mut self, step: Step) {
        let section = |action| self.program.section(action);
        match step {
            Step::Post(action) => self.messages(&section(action).receives, true),
            Step::Run(action) => self.run(section(action), section(action).ops.len(), true),
            Step::Release(action) => self.messages(&section(action).sends, false),
        }
    }

    /// Goes into a section as far as it has taken so many bytes more than at its begin.
    fn within(&mut self, section: &Section, more: u64) {
        let bytes = |storages: &[StorageId]| -> i64 {
            storages.iter().map(|storage| self.program.storages[storage.0].bytes() as i64).sum()
        };
        let mut now = 0;
        let taken = section.lifetimes.births.iter().zip(&section.lifetimes.deaths).position(|(births, deaths)| {
            now += bytes(births);
            let is_there = now == more as i64;
            now -= bytes(deaths);
            is_there
        });
        self.run(section, taken.map_or(0, |index| index + 1), false);
    }

    fn at(mut self, step: Step, more: u64) -> Moment {
        match step {
            Step::Run(action) => self.within(self.program.section(action), more),
            Step::Post(_) | Step::Release(_) => self.after(step),
        }
        self.moment(Some(step))
    }

    fn moment(&self, step: Option<Step>) -> Moment {
        let program = self.program;
        let mut names: BTreeMap<StorageId, ValueId> = BTreeMap::new();
        for (index, value) in program.values.iter().enumerate() {
            // The last name: what it is in the end.
            names.insert(value.storage, ValueId(index));
        }
        let storages = program.storages.iter().zip(&self.copies).enumerate().filter(|(_, (_, copies))| **copies > 0);
        let held = storages.map(|(index, (info, copies))| Held {
            class: info.class,
            value: names.get(&StorageId(index)).copied(),
            copies: *copies,
            bytes: *copies as u64 * info.bytes(),
        });
        let states = program.optimizer_bytes();
        let states =
            (states > 0).then_some(Held { class: MemoryClass::Optimizer, value: None, copies: 1, bytes: states });
        let mut living: Vec<Held> = held.chain(states).collect();
        living.sort_by(|a, b| a.class.cmp(&b.class).then(b.bytes.cmp(&a.bytes)));
        Moment { step, living }
    }
}

#[cfg(test)]
mod tests {
    use quadrille_spec::{Layout, LayoutRequest, Model, Recompute, Schedule, Zero};

    use crate::schedule::Step;
    use crate::{StepProgram, predict_rank};

    #[test]
    fn what_lives_at_the_fullest_moment_is_the_peak_of_the_ledger() {
        let model = Model::gpt(4, 16, 2, 13, 8);
        let schedules =
            [Schedule::Gpipe, Schedule::OneForwardOneBackward, Schedule::ZeroBubble, Schedule::MessageDriven];
        for (grid, schedule) in ["x=2,y=2", "z=2,data=2", "x=2,pipe=2", "data=2,pipe=4"]
            .into_iter()
            .flat_map(|grid| schedules.map(|schedule| (grid, schedule)))
        {
            for (zero, recompute) in [(Zero::Off, Recompute::None), (Zero::Gradients, Recompute::Full { every: 1 })] {
                let request =
                    LayoutRequest { schedule, zero, recompute, ..LayoutRequest::new(grid.parse().unwrap(), 16) };
                let request = LayoutRequest { microbatch: Some(2), ..request };
                let Some(layout) = Layout::if_legal(&model, &request) else { continue };
                let program = StepProgram::new(&model, &layout).unwrap();
                for stage in &program.stages {
                    let rank =
                        (0..layout.grid.ranks()).find(|rank| program.of_rank(*rank).stage == stage.stage).unwrap();
                    let peak = predict_rank(&program, rank).memory.peak;
                    let moment = stage.fullest_moment();
                    let living: u64 = moment.living.iter().map(|held| held.bytes).sum();
                    assert_eq!(living, peak, "{grid} {schedule} {zero} {recompute}");
                    let most = stage.held_by_passes().into_iter().map(|(_, _, together)| together).max();
                    let between = matches!(moment.step, Some(Step::Post(_) | Step::Release(_)));
                    assert!(most <= Some(peak) && (between || most == Some(peak)), "{grid} {schedule}");
                }
            }
        }
    }
}
