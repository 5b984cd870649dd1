//! The memory of a rank over a step: what storages take and give back, in the order of the stage's steps.

use std::collections::BTreeMap;

use quadrille_spec::{MemoryClass, MemoryLedger};

use crate::program::Section;
use crate::schedule::Step;
use crate::{Formats, Message, StageProgram, StorageId};

/// Walks the steps of the stage, then the update. AdamW keeps its states of each element that it updates.
pub(crate) fn predict(program: &StageProgram) -> MemoryLedger {
    let mut walk = Walk { program, held: Held::default() };
    walk.states();
    let profiles: Vec<[Profile; 3]> =
        program.chunks.iter().map(|chunk| chunk.sections().map(|section| walk.profile(section))).collect();
    for step in &program.steps {
        match *step {
            Step::Post(action) => walk.messages(&program.section(action).receives, true),
            Step::Run(action) => walk.run(&profiles[action.chunk][action.pass as usize]),
            Step::Release(action) => walk.messages(&program.section(action).sends, false),
        }
    }
    let update = walk.profile(&program.update);
    walk.run(&update);
    let Held { now, most, most_together: peak } = walk.held;
    let by_class = |bytes: [u64; CLASSES]| MemoryClass::ALL.into_iter().zip(bytes).collect();
    let allocated = program.allocated().values().sum();
    MemoryLedger { peak_of: by_class(most), peak, allocated, now: by_class(now) }
}

impl StageProgram {
    /// The memory of a rank of the stage over a step: what lives at once.
    pub fn memory(&self) -> MemoryLedger {
        predict(self)
    }

    /// Bytes that a rank of the stage allocates, by what they are counted as: states and other storages that outlive the
    /// step, and the buffers of all others. A buffer that several classes use counts under the first of them.
    pub fn allocated(&self) -> BTreeMap<MemoryClass, u64> {
        let mut bytes: BTreeMap<MemoryClass, u64> = MemoryClass::ALL.map(|class| (class, 0)).into();
        let mut add = |class: MemoryClass, more: u64| *bytes.entry(class).or_default() += more;
        let mut of_buffer = vec![None; self.placement.buffer_bytes.len()];
        for (info, buffer) in self.storages.iter().zip(&self.placement.buffer_of) {
            match buffer {
                None if info.persistent => add(info.class, info.bytes()),
                None => {}
                Some(first) => of_buffer[*first..first + info.instances].iter_mut().for_each(|class| {
                    *class = Some(class.map_or(info.class, |other: MemoryClass| other.min(info.class)));
                }),
            }
        }
        for (class, bytes) in of_buffer.into_iter().zip(&self.placement.buffer_bytes) {
            add(class.unwrap_or(MemoryClass::Buffers), *bytes);
        }
        add(MemoryClass::Optimizer, self.optimizer_bytes());
        bytes
    }

    /// Bytes of the optimizer's states on a rank: moments, and master copies where there are any.
    fn optimizer_bytes(&self) -> u64 {
        let Formats { masters, moments, .. } = self.practice.formats;
        let updated = self.parameters.iter().filter(|_| self.trains());
        updated.map(|parameter| self.value(parameter.updated).local_elements as u64 * (masters + moments)).sum()
    }
}

const CLASSES: usize = MemoryClass::ALL.len();

/// What a section takes at most, of each class and of all together, and what it leaves taken.
struct Profile {
    classes: [(i64, i64); CLASSES],
    most: i64,
}

/// Bytes by class, now and at most, and at most of all together.
#[derive(Default)]
struct Held {
    now: [u64; CLASSES],
    most: [u64; CLASSES],
    most_together: u64,
}

impl Held {
    fn take(&mut self, class: MemoryClass, bytes: u64) {
        let class = class as usize;
        self.now[class] += bytes;
        self.most[class] = self.most[class].max(self.now[class]);
        self.most_together = self.most_together.max(self.now.iter().sum());
    }

    fn give_back(&mut self, class: MemoryClass, bytes: u64) {
        self.now[class as usize] -= bytes;
    }
}

struct Walk<'a> {
    program: &'a StageProgram,
    held: Held,
}

impl Walk<'_> {
    fn bytes(&self, storage: StorageId) -> u64 {
        self.program.storages[storage.0].bytes()
    }

    /// What is there before the first operation: persistent storages, the optimizer's states, and reserved copies.
    fn states(&mut self) {
        for (index, info) in self.program.storages.iter().enumerate() {
            let copies = match info {
                info if info.persistent => 1,
                info if info.kept && self.program.is_message_driven() => info.instances as u64,
                _ => continue,
            };
            self.held.take(info.class, copies * self.bytes(StorageId(index)));
        }
        self.held.take(MemoryClass::Optimizer, self.program.optimizer_bytes());
    }

    /// Received storages are taken when their receive is posted, sent ones given back when their send is released.
    fn messages(&mut self, messages: &[Message], take: bool) {
        for message in messages.iter().filter(|_| !self.program.is_message_driven()) {
            let storage = self.program.value(message.value).storage;
            let (class, bytes) = (self.program.storages[storage.0].class, self.bytes(storage));
            match take {
                true => self.held.take(class, bytes),
                false => self.held.give_back(class, bytes),
            }
        }
    }

    fn profile(&self, section: &Section) -> Profile {
        let mut profile = Profile { classes: [(0, 0); CLASSES], most: 0 };
        let mut total = 0;
        for (births, deaths) in section.lifetimes.births.iter().zip(&section.lifetimes.deaths) {
            for storage in births {
                let bytes = self.bytes(*storage) as i64;
                let (now, most) = &mut profile.classes[self.program.storages[storage.0].class as usize];
                *now += bytes;
                *most = (*most).max(*now);
                total += bytes;
                profile.most = profile.most.max(total);
            }
            for storage in deaths {
                let bytes = self.bytes(*storage) as i64;
                profile.classes[self.program.storages[storage.0].class as usize].0 -= bytes;
                total -= bytes;
            }
        }
        profile
    }

    fn run(&mut self, profile: &Profile) {
        let Held { now, most, most_together } = &mut self.held;
        let before: u64 = now.iter().sum();
        *most_together = (*most_together).max(before.saturating_add_signed(profile.most));
        for (class, (net, highest)) in profile.classes.into_iter().enumerate() {
            most[class] = most[class].max(now[class].saturating_add_signed(highest));
            now[class] = now[class].saturating_add_signed(net);
        }
    }
}
