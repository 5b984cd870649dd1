//! What pieces of layers do, each computation and each collective once.

use std::hash::Hash;

use quadrille_spec::{AxisSet, CollectiveKind};
use quadrille_step::{
    BlockKind, Collective, Format, Layer, Members, Operation, Scalar, StageProgram, ValueId, most_elements,
};
use rustc_hash::FxHashMap;

use crate::native::machine::NativeMachine;
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

/// What computations and collectives take on a machine, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Priced {
    /// Seconds of each computation, on the device and for the host.
    pub works: Vec<f64>,
    pub hosts: Vec<f64>,
    /// Seconds of each collective, and its communication stream.
    pub collectives: Vec<f64>,
    pub streams: Vec<usize>,
    /// Seconds for which the host is busy with a collective.
    pub host: f64,
}

impl Told {
    /// On a machine, in the sizes of a program.
    pub fn price(&self, program: &StageProgram, machine: &NativeMachine) -> Priced {
        let host = machine.host_seconds();
        let mut priced = Priced { host, ..Priced::default() };
        for work in &self.works.all {
            let (taken, kernels) = machine.cost(program, work);
            priced.works.push(taken.seconds());
            priced.hosts.push(kernels * host);
        }
        let mut links: Vec<(AxisSet, Link)> = Vec::new();
        for communication in &self.collectives.all {
            let (kind, axes, members, bytes, together) = match communication {
                Communication::Values(collective, block) => {
                    let Collective { kind, axes, .. } = *collective;
                    let bytes = most_elements(program, collective) as u64 * program.sent_element_bytes(collective);
                    let together = machine
                        .sent_at_once(program.format(collective.output), block.map(|block| block.of(&program.model)));
                    (kind, axes, collective.size(program.grid()), bytes, together)
                }
                Communication::Scalars(axes, count) => {
                    let members = program.grid().size_of(*axes);
                    (CollectiveKind::AllReduce, *axes, members, *count as u64 * Scalar::BYTES, None)
                }
            };
            let known = links.iter().position(|(known, _)| *known == axes).unwrap_or_else(|| {
                links.push((axes, machine.link(axes)));
                links.len() - 1
            });
            priced.collectives.push(machine.seconds_on(&links[known].1, kind, axes, members, bytes, together));
            priced.streams.push(if machine.streams_by_group() { known } else { 0 });
        }
        priced
    }
}
