//! What is measured, from what was typed: checked before anything runs.

use quadrille_comm::memory;
use quadrille_measure::collectives::{Case, Cases, CollectivesSpec, Runs};
use quadrille_run::{LayoutDefaults, described};

use super::arguments::BenchCollectivesArguments;

use crate::failure::Failure;
use crate::launch::Launch;
use crate::output::bytes;

/// Numbers of thread ranks that are measured unless others are asked for.
const RANKS: [usize; 2] = [2, 4];

/// Checks what was typed: also that the buffers fit into memory.
pub fn of(arguments: &BenchCollectivesArguments, launch: &Launch) -> Result<Cases, Failure> {
    let cluster = arguments.cluster.as_deref().map(described::cluster).transpose()?;
    let started = launch.defaults(&LayoutDefaults::USUAL)?;
    let mut ranks: Vec<usize> = arguments.ranks.iter().map(|ranks| usize::from(*ranks)).collect();
    if ranks.is_empty() {
        ranks = if launch.world.is_some() { vec![started.ranks] } else { RANKS.to_vec() };
    }
    ranks.iter().try_for_each(|ranks| launch.check_ranks(*ranks))?;
    let cases = Cases::new(&CollectivesSpec {
        collectives: arguments.collective.clone(),
        algorithms: arguments.algorithms.clone(),
        per_node: arguments.per_node.map(usize::from).or(started.per_node),
        runs: arguments.runs.map_or(Runs::Enough, Runs::Exactly),
        cluster,
        world: launch.world.clone(),
        ..CollectivesSpec::new(ranks, arguments.sizes.bytes().to_vec())
    })?;
    cases.cases().iter().try_for_each(|case| check_memory(case, launch))?;
    Ok(cases)
}

/// Refuses buffers for which this machine has no memory.
fn check_memory(case: &Case, launch: &Launch) -> Result<(), Failure> {
    let buffers = case.buffers();
    let needed = buffers.saturating_mul(launch.ranks_here(case.ranks) as u64).saturating_mul(case.bytes());
    match memory::available() {
        Some(available) if needed > available => Err(Failure::usage(format!(
            "--sizes {}B on --ranks {}: {buffers} buffers per rank take {}, but {} of memory are available; measure a \
             smaller size or fewer ranks",
            case.bytes(),
            case.ranks,
            bytes(needed),
            bytes(available)
        ))),
        _ => Ok(()),
    }
}
