//! The memory of a rank over a step: what storages take and give back, in the order of the stage's steps.

mod moment;

pub use moment::{Held, Moment};

use std::collections::BTreeMap;

use quadrille_spec::{MemoryClass, MemoryLedger};

use crate::folded::{FoldedProgram, FoldedStage};
use crate::program::Section;
use crate::schedule::Step;
use crate::{Message, StageProgram, StorageId, ValueId};

/// Walks the steps of the stage, then the update. AdamW keeps its states of each element that it updates.
pub(crate) fn predict(program: &StageProgram) -> MemoryLedger {
    let Taken { now, most, most_together: peak } = Profiles::of(program).held(&program.steps);
    let by_class = |bytes: [u64; CLASSES]| MemoryClass::ALL.into_iter().zip(bytes).collect();
    let allocated = program.allocated().values().sum();
    let mut ledger = MemoryLedger { peak_of: by_class(most), peak, allocated, now: by_class(now) };
    if program.offloads() {
        ledger.take(MemoryClass::Host, program.host_bytes());
    }
    ledger
}

impl StageProgram {
    /// What lives at the worst moments of a step on a rank of the stage.
    pub fn living(&self) -> Living {
        Profiles::of(self).held(&self.steps).into()
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

    /// Bytes of the optimizer's states on a rank's device: moments, and master copies where there are any, of all that it
    /// updates or of the buckets that are there, and the places of what is kept of pruned weights.
    fn optimizer_bytes(&self) -> u64 {
        if self.offloads() {
            let (buckets, [masters, elements]) = self.bucket_room();
            let master = self.bucket_master_bytes();
            let moments = self.practice.formats.moments;
            let states = masters as u64 * master + elements as u64 * moments;
            return buckets as u64 * states + self.index_bytes();
        }
        let trained = self.parameters.iter().filter(|parameter| parameter.is_trained() && self.trains());
        let updated = trained.map(|parameter| parameter.updated);
        let states = |updated| self.master_bytes(updated) + self.practice.formats.moments;
        let states: u64 = updated.map(|updated| self.value(updated).local_elements as u64 * states(updated)).sum();
        states + self.index_bytes()
    }

    /// Bytes of an element's master copy; 0 of what is its own master.
    pub fn master_bytes(&self, parameter: ValueId) -> u64 {
        let masters = self.practice.formats.masters;
        if self.element_bytes(parameter) < masters { masters } else { 0 }
    }
}

impl FoldedProgram {
    /// What lives at the worst moments of a step on a rank of each stage.
    pub fn living(&self) -> Vec<Living> {
        let kinds: Vec<Profiles> = self.kinds.iter().map(Profiles::of).collect();
        self.stages.iter().map(|FoldedStage { kind, steps }| kinds[*kind].held(steps).into()).collect()
    }
}

const CLASSES: usize = MemoryClass::ALL.len();

/// The most bytes that live at once on a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Living {
    by_class: [u64; CLASSES],
    /// Of all classes together.
    pub peak: u64,
}

impl Living {
    /// Of one class, whenever that is.
    pub fn most(&self, class: MemoryClass) -> u64 {
        self.by_class[class as usize]
    }
}

impl From<Taken> for Living {
    fn from(held: Taken) -> Self {
        Self { by_class: held.most, peak: held.most_together }
    }
}

/// What a section takes at most, of each class and of all together, and what it leaves taken.
struct Profile {
    classes: [(i64, i64); CLASSES],
    most: i64,
}

/// Bytes by class, now and at most, and at most of all together.
#[derive(Clone, Copy, Default)]
struct Taken {
    now: [u64; CLASSES],
    most: [u64; CLASSES],
    most_together: u64,
}

impl Taken {
    fn take(&mut self, class: MemoryClass, bytes: u64) {
        let class = class as usize;
        self.now[class] += bytes;
        self.most[class] = self.most[class].max(self.now[class]);
        self.most_together = self.most_together.max(self.now.iter().sum());
    }

    fn give_back(&mut self, class: MemoryClass, bytes: u64) {
        self.now[class as usize] -= bytes;
    }

    fn run(&mut self, profile: &Profile) {
        let Self { now, most, most_together } = self;
        let before: u64 = now.iter().sum();
        *most_together = (*most_together).max(before.saturating_add_signed(profile.most));
        for (class, (net, highest)) in profile.classes.into_iter().enumerate() {
            most[class] = most[class].max(now[class].saturating_add_signed(highest));
            now[class] = now[class].saturating_add_signed(net);
        }
    }
}

/// What the sections of a stage take, in whatever order they come.
struct Profiles<'a> {
    program: &'a StageProgram,
    /// What is there before the first operation.
    states: Taken,
    /// By chunk and pass.
    chunks: Vec<[Profile; 3]>,
    update: Profile,
}

impl<'a> Profiles<'a> {
    fn of(program: &'a StageProgram) -> Self {
        let profile = |section: &Section| Profile::of(program, section);
        let chunks = program.chunks.iter().map(|chunk| chunk.sections().map(profile)).collect();
        Self { program, states: states(program), chunks, update: profile(&program.update) }
    }

    /// What is held over these steps and the update.
    fn held(&self, steps: &[Step]) -> Taken {
        let mut held = self.states;
        steps.iter().for_each(|step| self.step(*step, &mut held));
        held.run(&self.update);
        held
    }

    fn step(&self, step: Step, held: &mut Taken) {
        let program = self.program;
        match step {
            Step::Post(action) => messages(program, &program.section(action).receives, held, true),
            Step::Run(action) => held.run(&self.chunks[action.chunk][action.pass as usize]),
            Step::Release(action) => messages(program, &program.section(action).sends, held, false),
        }
    }
}

/// What is there before the first operation: persistent storages, the optimizer's states, and reserved copies.
fn states(program: &StageProgram) -> Taken {
    let mut held = Taken::default();
    for info in &program.storages {
        let copies = match info {
            info if info.persistent => 1,
            info if info.kept && program.is_message_driven() => info.instances as u64,
            _ => continue,
        };
        held.take(info.class, copies * info.bytes());
    }
    held.take(MemoryClass::Optimizer, program.optimizer_bytes());
    held
}

/// Received storages are taken when their receive is posted, sent ones given back when their send is released.
fn messages(program: &StageProgram, messages: &[Message], held: &mut Taken, take: bool) {
    for message in messages.iter().filter(|_| !program.is_message_driven()) {
        let info = &program.storages[program.value(message.value).storage.0];
        if take { held.take(info.class, info.bytes()) } else { held.give_back(info.class, info.bytes()) }
    }
}

impl Profile {
    fn of(program: &StageProgram, section: &Section) -> Self {
        let mut profile = Self { classes: [(0, 0); CLASSES], most: 0 };
        let mut total = 0;
        let of = |storage: &StorageId| {
            let info = &program.storages[storage.0];
            (info.class as usize, info.bytes() as i64)
        };
        for (births, deaths) in section.lifetimes.births.iter().zip(&section.lifetimes.deaths) {
            for (class, bytes) in births.iter().map(of) {
                let (now, most) = &mut profile.classes[class];
                *now += bytes;
                *most = (*most).max(*now);
                total += bytes;
                profile.most = profile.most.max(total);
            }
            for (class, bytes) in deaths.iter().map(of) {
                profile.classes[class].0 -= bytes;
                total -= bytes;
            }
        }
        profile
    }
}
