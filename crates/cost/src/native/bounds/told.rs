//! What pieces of layers do, each computation and each collective once.

use std::hash::Hash;

use quadrille_spec::{Axis, AxisSet, CollectiveKind};
use quadrille_step::{
    BlockKind, Collective, Format, Layer, Members, Operation, Scalar, StageProgram, ValueId, most_elements,
};
use rustc_hash::FxHashMap;

use crate::native::machine::{NativeMachine, Sending};
use crate::native::network::Link;
use crate::simulation::Machine;

/// Things by their numbers, each once.
#[derive(Debug, Clone)]
pub(super) struct Numbered<T> {
    /// In the order of their numbers.
    pub all: Vec<T>,
    numbers: FxHashMap<T, usize>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { all: Vec::new(), numbers: FxHashMap::default() }
    }
}

impl<T: Hash + Eq + Clone> Numbered<T> {
    /// The number of a thing, new or known.
    pub fn number(&mut self, thing: T) -> usize {
        if let Some(number) = self.numbers.get(&thing) {
            return *number;
        }
        self.numbers.insert(thing.clone(), self.all.len());
        self.all.push(thing);
        self.all.len() - 1
    }
}

/// A collective as it is priced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Communication {
    /// Of values; of gathered weights with the kind of their block.
    Values(Collective, Option<BlockKind>),
    /// The sum of so many scalars.
    Scalars(AxisSet, usize),
}

impl Communication {
    /// Of a collective of a layer of `stage` on values whose shapes are these.
    pub fn of(stage: &StageProgram, layer: Layer, collective: Collective, shape: impl Fn(ValueId) -> ValueId) -> Self {
        let Collective { members, input, output, .. } = collective;
        let gathered = stage.format(output) == Format::Gathered;
        let block = if gathered { BlockKind::at(&stage.model, layer) } else { None };
        // Whoever is the root, it takes as long.
        let members = if let Members::Root(_) = members { Members::Root(0) } else { members };
        Self::Values(Collective { members, input: shape(input), output: shape(output), ..collective }, block)
    }
}

/// Computations and collectives, on values of a program.
#[derive(Debug, Clone, Default)]
pub(super) struct Told {
    pub works: Numbered<Operation>,
    pub collectives: Numbered<Communication>,
}

/// What computations take in the sizes of a program, by their numbers: wherever its ranks lie.
#[derive(Debug, Clone, Default)]
pub(super) struct Computed {
    /// Seconds on the device.
    pub works: Vec<f64>,
    /// And for the host.
    pub hosts: Vec<f64>,
}

/// A collective in the sizes of a program.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transfer {
    kind: CollectiveKind,
    axes: AxisSet,
    members: usize,
    bytes: u64,
    sending: Sending,
}

/// The links of groups where the ranks of a candidate lie, each made once.
pub(super) struct Links<'a> {
    machine: &'a NativeMachine<'a>,
    known: Vec<(AxisSet, Link)>,
}

impl<'a> Links<'a> {
    /// None is known yet.
    pub fn new(machine: &'a NativeMachine<'a>) -> Self {
        Self { machine, known: Vec::with_capacity(Axis::COUNT) }
    }

    /// Seconds of a collective, and its communication stream.
    pub fn seconds(&mut self, transfer: &Transfer) -> (f64, usize) {
        let Transfer { kind, axes, members, bytes, sending } = *transfer;
        let known = self.known.iter().position(|(known, _)| *known == axes).unwrap_or_else(|| {
            self.known.push((axes, self.machine.link(axes)));
            self.known.len() - 1
        });
        let seconds = self.machine.seconds_on(&self.known[known].1, kind, axes, members, bytes, sending);
        (seconds, if self.machine.streams_by_group() { known } else { 0 })
    }
}

impl Told {
    /// What computations take on a machine, in the sizes of a program.
    pub fn computed(&self, program: &StageProgram, machine: &NativeMachine) -> Computed {
        let host = machine.host_seconds();
        let costs = self.works.all.iter().map(|work| machine.cost(program, work));
        let (works, hosts) = costs.map(|(taken, kernels)| (taken.seconds(), kernels * host)).unzip();
        Computed { works, hosts }
    }

    /// Collectives in the sizes of a program.
    pub fn transfers(&self, program: &StageProgram, machine: &NativeMachine) -> Vec<Transfer> {
        self.collectives.all.iter().map(|communication| communication.transfer(program, machine)).collect()
    }
}

impl Communication {
    fn transfer(&self, program: &StageProgram, machine: &NativeMachine) -> Transfer {
        match self {
            Self::Values(collective, block) => {
                let format = program.format(collective.output);
                let block = block.map(|block| block.of(&program.model));
                Transfer {
                    kind: collective.kind,
                    axes: collective.axes,
                    members: collective.size(program.grid()),
                    bytes: most_elements(program, collective) as u64 * program.sent_element_bytes(collective),
                    sending: machine.sending(format, block),
                }
            }
            Self::Scalars(axes, count) => Transfer {
                kind: CollectiveKind::AllReduce,
                axes: *axes,
                members: program.grid().size_of(*axes),
                bytes: *count as u64 * Scalar::BYTES,
                sending: Sending::Alone,
            },
        }
    }
}
