//! The memory of a rank over a step: what storages take and give back, in the order of the stage's steps.

use quadrille_spec::{MemoryClass, MemoryLedger};

use crate::program::Section;
use crate::schedule::Step;
use crate::{Message, StageProgram, StorageId};

/// Walks the steps of the stage, then the update. AdamW keeps two states per element that it updates.
pub(crate) fn predict(program: &StageProgram) -> MemoryLedger {
    let mut walk = Walk { program, ledger: MemoryLedger::new() };
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
    walk.ledger.allocated = walk.permanent() + program.placement.buffer_bytes.iter().sum::<u64>();
    walk.ledger
}

/// What a section takes at most, of each class and of all together, and what it leaves taken.
struct Profile {
    classes: [(i64, i64); MemoryClass::ALL.len()],
    most: i64,
}

struct Walk<'a> {
    program: &'a StageProgram,
    ledger: MemoryLedger,
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
            self.ledger.take(info.class, copies * self.bytes(StorageId(index)));
        }
        for parameter in self.program.parameters.iter().filter(|_| self.program.trains()) {
            // Moments are of the type of the parameter.
            self.ledger.take(MemoryClass::Optimizer, 2 * self.program.local_bytes(parameter.updated));
        }
    }

    /// Bytes that have memory of their own beside the buffers of the placement.
    fn permanent(&self) -> u64 {
        let storages = self.program.storages.iter().enumerate().filter(|(_, info)| info.persistent);
        let states: u64 = storages.map(|(index, _)| self.bytes(StorageId(index))).sum();
        states + self.ledger.peak_of.get(&MemoryClass::Optimizer).copied().unwrap_or(0)
    }

    /// Received storages are taken when their receive is posted, sent ones given back when their send is released.
    fn messages(&mut self, messages: &[Message], take: bool) {
        for message in messages.iter().filter(|_| !self.program.is_message_driven()) {
            let storage = self.program.value(message.value).storage;
            let (class, bytes) = (self.program.storages[storage.0].class, self.bytes(storage));
            match take {
                true => self.ledger.take(class, bytes),
                false => self.ledger.give_back(class, bytes),
            }
        }
    }

    fn profile(&self, section: &Section) -> Profile {
        let mut profile = Profile { classes: [(0, 0); MemoryClass::ALL.len()], most: 0 };
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
        let before: u64 = self.ledger.now.values().sum();
        self.ledger.peak = self.ledger.peak.max(before.saturating_add_signed(profile.most));
        for (class, (net, most)) in MemoryClass::ALL.into_iter().zip(profile.classes) {
            let now = self.ledger.now.entry(class).or_default();
            let peak = self.ledger.peak_of.entry(class).or_default();
            *peak = (*peak).max(now.saturating_add_signed(most));
            *now = now.saturating_add_signed(net);
        }
    }
}
