//! What pieces of layers do, each computation and each collective once.

use std::collections::HashMap;
use std::hash::Hash;

use quadrille_spec::{AxisSet, CollectiveKind};
use quadrille_step::{At, Collective, Members, Operation, StageProgram, ValueId, payload_bytes};

use crate::native::machine::NativeMachine;
use crate::native::network::Link;

/// Bytes of a scalar that is reduced.
const SCALAR_BYTES: u64 = 8;

/// Things by their numbers, each once.
#[derive(Debug, Clone)]
pub(super) struct Numbered<T> {
    /// In the order of their numbers.
    pub all: Vec<T>,
    numbers: HashMap<T, usize>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { all: Vec::new(), numbers: HashMap::new() }
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
    /// Of values.
    Values(Collective),
    /// The sum of so many scalars.
    Scalars(AxisSet, usize),
}

impl Communication {
    /// Of a collective on values whose shapes are these.
    pub fn of(collective: Collective, shape: impl Fn(ValueId) -> ValueId) -> Self {
        let Collective { members, input, output, .. } = collective;
        // Whoever is the root, it takes as long.
        let members = if let Members::Root(_) = members { Members::Root(0) } else { members };
        Self::Values(Collective { members, input: shape(input), output: shape(output), ..collective })
    }
}

/// Computations and collectives, on values of a program.
#[derive(Debug, Clone, Default)]
pub(super) struct Told {
    pub works: Numbered<Operation>,
    pub collectives: Numbered<Communication>,
}

impl Told {
    /// Seconds of all computations, and of all collectives.
    pub fn seconds(&self, program: &StageProgram, machine: &NativeMachine) -> (Vec<f64>, Vec<f64>) {
        let at = At::first(program);
        let works = self.works.all.iter().map(|work| machine.taken(&work.work(at)).seconds()).collect();
        let mut links: Vec<(AxisSet, Link)> = Vec::new();
        let collectives = self.collectives.all.iter().map(|communication| {
            let (kind, axes, members, bytes) = match communication {
                Communication::Values(collective) => {
                    let Collective { kind, axes, .. } = *collective;
                    (kind, axes, collective.size(program.grid()), payload_bytes(program, collective))
                }
                Communication::Scalars(axes, count) => {
                    let members = program.grid().size_of(*axes);
                    (CollectiveKind::AllReduce, *axes, members, *count as u64 * SCALAR_BYTES)
                }
            };
            let known = links.iter().position(|(known, _)| *known == axes).unwrap_or_else(|| {
                links.push((axes, machine.link(axes)));
                links.len() - 1
            });
            machine.seconds_on(&links[known].1, kind, axes, members, bytes)
        });
        (works, collectives.collect())
    }
}
