//! What is measured, from what was typed: checked before anything runs.

use quadrille_comm::{JobOptions, World};
use quadrille_measure::collectives::{Collective, Runs};
use quadrille_spec::{Algorithm, Choice, Nodes, Routing, SpecError, Tier};

use super::arguments::BenchCollectivesArguments;
use super::sizes::ELEMENT_BYTES;
use crate::failure::Failure;
use crate::launch::Launch;
use crate::output::bytes;
use crate::resources;
use crate::settings::{self, Defaults};

/// Numbers of thread ranks that are measured unless others are asked for.
const RANKS: [usize; 2] = [2, 4];

/// A number of ranks on nodes, and a size.
#[derive(Debug, Clone)]
pub struct Case {
    pub ranks: usize,
    pub per_node: usize,
    /// The size that was asked for, in bytes.
    pub size: u64,
    /// Elements of a rank's part of the full buffer; what does not divide into equal parts is left out.
    pub part: usize,
    /// Native first, the yardstick of the others.
    pub algorithms: Vec<Algorithm>,
}

/// All that is measured.
pub struct Cases {
    pub collectives: Vec<Collective>,
    pub cases: Vec<Case>,
    pub runs: Runs,
    /// Of the cluster for which times are predicted.
    pub tiers: Option<Vec<Tier>>,
    /// Where ranks are processes.
    world: Option<World>,
}

impl Case {
    /// Elements of the full buffer.
    pub fn full(&self) -> usize {
        self.part * self.ranks
    }

    /// Bytes of the full buffer.
    pub fn bytes(&self) -> u64 {
        self.full() as u64 * ELEMENT_BYTES
    }

    /// Where the ranks lie.
    pub fn routing(&self, algorithm: Algorithm) -> Routing {
        let nodes = Nodes::equal(self.ranks, self.per_node);
        Routing { nodes, choice: Choice::Always(algorithm), grid: None }
    }

    fn new(ranks: usize, per_node: usize, size: u64, algorithms: &[Algorithm]) -> Result<Self, Failure> {
        let part = size / ELEMENT_BYTES / ranks as u64;
        if part == 0 {
            return Err(Failure::usage(format!(
                "--sizes {size}B on --ranks {ranks}: a buffer has at least one f32 for every rank, {} B; measure larger \
                 sizes or fewer ranks",
                ranks as u64 * ELEMENT_BYTES
            )));
        }
        let two_levels = per_node > 1 && per_node < ranks;
        let ours = algorithms.iter().copied();
        let ours = ours.filter(|name| *name != Algorithm::Native && (*name != Algorithm::Hierarchical || two_levels));
        let algorithms = [Algorithm::Native].into_iter().chain(ours).collect();
        let case = Self { ranks, per_node, size, part: part as usize, algorithms };
        Ok(case)
    }

    /// Two full buffers on every rank, for the copy and for an all-to-all; the algorithms of this program may take a third
    /// to work in.
    fn check_memory(&self, launch: &Launch) -> Result<(), Failure> {
        let buffers: u64 = if self.algorithms.len() > 1 { 3 } else { 2 };
        let needed = buffers.saturating_mul(launch.ranks_here(self.ranks) as u64).saturating_mul(self.bytes());
        match resources::proc_bytes("/proc/meminfo", "MemAvailable") {
            Some(available) if needed > available => Err(Failure::usage(format!(
                "--sizes {}B on --ranks {}: {buffers} buffers per rank take {}, but {} of memory are available; measure a \
                 smaller size or fewer ranks",
                self.bytes(),
                self.ranks,
                bytes(needed),
                bytes(available)
            ))),
            _ => Ok(()),
        }
    }
}

impl Cases {
    /// A job whose collectives run by one algorithm.
    pub fn job(&self, case: &Case, algorithm: Algorithm) -> JobOptions {
        JobOptions { routing: case.routing(algorithm), world: self.world.clone(), ..JobOptions::new(case.ranks) }
    }

    /// Checks what was typed.
    ///
    /// # Errors
    /// Nodes that ranks do not fill equally, two levels without several nodes of several ranks, buffers that are too small or
    /// do not fit into memory, a cluster without tiers.
    pub fn new(arguments: &BenchCollectivesArguments, launch: &Launch) -> Result<Self, Failure> {
        let cluster = arguments.cluster.as_deref().map(settings::cluster).transpose()?;
        if let Some(cluster) = cluster.as_ref().filter(|cluster| cluster.tiers.is_empty()) {
            let rule = "predictions need the latency and bandwidth of its networks";
            return Err(SpecError::invalid(
                "--cluster",
                &cluster.name,
                rule,
                "name one with [[tiers]], e.g. perlmutter",
            )
            .into());
        }
        let mut algorithms = arguments.algorithms.clone();
        algorithms.sort_unstable();
        algorithms.dedup();
        let started = launch.defaults(&Defaults::USUAL)?;
        let mut ranks: Vec<usize> = arguments.ranks.iter().map(|ranks| usize::from(*ranks)).collect();
        if ranks.is_empty() {
            ranks = if launch.world.is_some() { vec![started.ranks] } else { RANKS.to_vec() };
        }
        ranks.iter().try_for_each(|ranks| launch.check_ranks(*ranks))?;
        ranks.sort_unstable();
        ranks.dedup();
        let mut cases = Vec::new();
        for ranks in ranks {
            let typed = arguments.per_node.map(usize::from).or(started.per_node);
            let per_node = typed.unwrap_or_else(|| cluster.as_ref().map_or(ranks, |cluster| cluster.per_node(ranks)));
            check_nodes(ranks, per_node)?;
            for size in arguments.sizes.bytes() {
                let case = Case::new(ranks, per_node, *size, &algorithms)?;
                case.check_memory(launch)?;
                cases.push(case);
            }
        }
        check_levels(&algorithms, &cases)?;
        let runs = arguments.runs.map_or(Runs::Enough, Runs::Exactly);
        Ok(Self {
            collectives: arguments.collectives(),
            cases,
            runs,
            tiers: cluster.map(|cluster| cluster.tiers),
            world: launch.world.clone(),
        })
    }
}

fn check_nodes(ranks: usize, per_node: usize) -> Result<(), SpecError> {
    if per_node >= ranks || ranks.is_multiple_of(per_node) {
        return Ok(());
    }
    let rule = format!("--ranks {ranks} fill nodes of {per_node} unequally");
    let divisor = (1..per_node).rev().find(|divisor| ranks.is_multiple_of(*divisor)).unwrap_or(1);
    let remedy = format!("use a divisor of {ranks}, e.g. --per-node {divisor}");
    Err(SpecError::invalid("--per-node", per_node, rule, remedy))
}

/// Two levels that were asked for by themselves, rather than among all algorithms, are to be somewhere.
fn check_levels(asked: &[Algorithm], cases: &[Case]) -> Result<(), SpecError> {
    let only = asked.contains(&Algorithm::Hierarchical) && asked.len() < Algorithm::ALL.len();
    if only && !cases.iter().any(|case| case.algorithms.contains(&Algorithm::Hierarchical)) {
        let rule = "it needs several nodes with several ranks on each";
        let remedy = "give e.g. --ranks 4 --per-node 2, or leave it out";
        return Err(SpecError::invalid("--algorithms", Algorithm::Hierarchical, rule, remedy));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_comes_first_and_two_levels_need_nodes() {
        let algorithms = |ranks, per_node| Case::new(ranks, per_node, 64, &Algorithm::ALL).unwrap().algorithms;
        let [ring, recursive, hierarchical, native] = Algorithm::ALL;
        assert_eq!(algorithms(4, 2), [native, ring, recursive, hierarchical]);
        for (ranks, per_node) in [(4, 4), (4, 1), (2, 4)] {
            assert_eq!(algorithms(ranks, per_node), [native, ring, recursive]);
        }
    }

    #[test]
    fn what_does_not_divide_is_left_out() {
        let case = Case::new(3, 3, 1 << 10, &[]).unwrap();
        assert_eq!((case.part, case.full(), case.bytes()), (85, 255, 1020));
    }

    #[test]
    fn refusals_name_value_rule_and_remedy() {
        let Err(Failure::Usage(error)) = Case::new(4, 4, 12, &[]) else { panic!("12 B on 4 ranks") };
        assert!(error.to_string().starts_with("--sizes 12B on --ranks 4: a buffer has at least one f32"), "{error}");
        let message = check_nodes(6, 4).unwrap_err().to_string();
        assert_eq!(
            message,
            "--per-node = 4: --ranks 6 fill nodes of 4 unequally; use a divisor of 6, e.g. --per-node 3"
        );
        assert_eq!((check_nodes(4, 8), check_nodes(6, 3)), (Ok(()), Ok(())));
        let case = Case::new(4, 4, 64, &Algorithm::ALL).unwrap();
        let message = check_levels(&[Algorithm::Hierarchical], std::slice::from_ref(&case)).unwrap_err().to_string();
        assert!(message.contains("--algorithms = hierarchical") && message.contains("--per-node 2"), "{message}");
        assert_eq!(check_levels(&Algorithm::ALL, &[case]), Ok(()));
    }
}
