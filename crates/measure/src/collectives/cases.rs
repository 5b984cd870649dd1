//! What is measured, from what was asked for: checked before anything runs.

use quadrille_comm::{JobOptions, World, memory};
use quadrille_engine::EngineError;
use quadrille_run::Processes;
use quadrille_run::units::bytes;
use quadrille_spec::{Algorithm, Choice, Cluster, CollectiveKind, Nodes, Routing, Tier};

use super::measure::{KINDS, Run, Runs, slowest, times};
use super::rates::Measured;
use crate::timing::median;
use crate::{MeasureError, OnProgress, Progress, Refusal, Setting};

/// Bytes of what the elements of a buffer are: f32.
pub const ELEMENT_BYTES: u64 = size_of::<f32>() as u64;

/// What is asked for.
#[derive(Debug, Clone)]
pub struct CollectivesSpec {
    /// Which collectives, in any order.
    pub collectives: Vec<CollectiveKind>,
    /// By which algorithms, in any order; [`Algorithm::Native`] is always measured.
    pub algorithms: Vec<Algorithm>,
    /// Numbers of ranks, in any order; where ranks are processes, that of the processes alone.
    pub ranks: Vec<usize>,
    /// Ranks that count as one node; `None`: as many as on a node of the cluster, or all.
    pub per_node: Option<usize>,
    /// Bytes of the full buffer of a rank: input of a reduce-scatter, output of an all-gather. In ascending order.
    pub sizes: Vec<u64>,
    /// How many runs are measured.
    pub runs: Runs,
    /// A cluster with tiers, for which times are predicted.
    pub cluster: Option<Cluster>,
    /// Where ranks are processes; `None`: they are threads of this one.
    pub world: Option<World>,
}

impl CollectivesSpec {
    /// All-reduces, all-gathers and reduce-scatters by every algorithm, of these ranks and sizes, as often as is usual.
    pub fn new(ranks: Vec<usize>, sizes: Vec<u64>) -> Self {
        Self {
            collectives: KINDS[..3].to_vec(),
            algorithms: Algorithm::ALL.to_vec(),
            ranks,
            per_node: None,
            sizes,
            runs: Runs::Enough,
            cluster: None,
            world: None,
        }
    }
}

/// A number of ranks on nodes, and a size.
#[derive(Debug, Clone)]
pub struct Case {
    /// How many ranks.
    pub ranks: usize,
    /// Ranks that count as one node.
    pub per_node: usize,
    /// The size that was asked for, in bytes.
    pub size: u64,
    /// Elements of a rank's part of the full buffer; what does not divide into equal parts is left out.
    pub part: usize,
    /// Native first, the yardstick of the others.
    pub algorithms: Vec<Algorithm>,
}

/// All that is measured.
#[derive(Debug, Clone)]
pub struct Cases {
    collectives: Vec<CollectiveKind>,
    cases: Vec<Case>,
    runs: Runs,
    /// Of the cluster for which times are predicted.
    tiers: Option<Vec<Tier>>,
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

    /// Full buffers that a rank holds at most: two, for the copy and for an all-to-all; the algorithms of this program may
    /// take a third to work in.
    pub fn buffers(&self) -> u64 {
        if self.algorithms.len() > 1 { 3 } else { 2 }
    }

    /// Where the ranks lie.
    pub(super) fn routing(&self, algorithm: Algorithm) -> Routing {
        let nodes = Nodes::equal(self.ranks, self.per_node);
        Routing { nodes, choice: Choice::Always(algorithm), grid: None }
    }

    fn new(ranks: usize, per_node: usize, size: u64, algorithms: &[Algorithm]) -> Result<Self, Refusal> {
        let part = size / ELEMENT_BYTES / ranks as u64;
        if part == 0 {
            let least = ranks as u64 * ELEMENT_BYTES;
            let rule = format!(
                " {ranks}: a buffer has at least one f32 for every rank, {least} B; measure larger sizes or fewer ranks"
            );
            return Err(Refusal::of(Setting::Sizes).text(format!(" {size}B on ")).name(Setting::Ranks).text(rule));
        }
        let two_levels = per_node > 1 && per_node < ranks;
        let ours = algorithms.iter().copied();
        let ours = ours.filter(|name| *name != Algorithm::Native && (*name != Algorithm::Hierarchical || two_levels));
        let algorithms = [Algorithm::Native].into_iter().chain(ours).collect();
        Ok(Self { ranks, per_node, size, part: part as usize, algorithms })
    }
}

impl Cases {
    /// Checks what was asked for.
    ///
    /// # Errors
    /// Fewer than two ranks, nodes that they do not fill equally, two levels without several nodes of several ranks, buffers that are too small, a
    /// cluster without tiers.
    pub fn new(spec: &CollectivesSpec) -> Result<Self, MeasureError> {
        if let Some(cluster) = spec.cluster.as_ref().filter(|cluster| cluster.tiers.is_empty()) {
            let rule = "predictions need the latency and bandwidth of its networks";
            let rule = format!(" = {}: {rule}; name one with [[tiers]], e.g. perlmutter", cluster.name);
            return Err(Refusal::of(Setting::Cluster).text(rule).into());
        }
        let ranks = ascending(&spec.ranks);
        let algorithms = ascending(&spec.algorithms);
        let mut cases = Vec::new();
        for ranks in ranks {
            let of_cluster = || spec.cluster.as_ref().map_or(ranks, |cluster| cluster.per_node(ranks));
            let per_node = spec.per_node.unwrap_or_else(of_cluster);
            check_nodes(ranks, per_node)?;
            let of_size = |size: &u64| Case::new(ranks, per_node, *size, &algorithms);
            cases.extend(spec.sizes.iter().map(of_size).collect::<Result<Vec<_>, _>>()?);
        }
        check_levels(&algorithms, &cases)?;
        // Each once, in one order.
        let asked = |kind: &CollectiveKind| spec.collectives.contains(kind);
        Ok(Self {
            collectives: KINDS.into_iter().filter(asked).collect(),
            cases,
            runs: spec.runs,
            tiers: spec.cluster.as_ref().map(|cluster| cluster.tiers.clone()),
            world: spec.world.clone(),
        })
    }

    /// Every number of ranks at every size.
    pub fn cases(&self) -> &[Case] {
        &self.cases
    }

    /// Refuses buffers for which this machine has no memory.
    ///
    /// # Errors
    /// The first case that takes more than is free.
    pub fn check_memory(&self) -> Result<(), Refusal> {
        let Some(available) = memory::available() else { return Ok(()) };
        let processes = Processes { world: self.world.clone(), ..Processes::THREADS };
        for case in &self.cases {
            let buffers = case.buffers();
            let here = processes.ranks_here(case.ranks) as u64;
            let needed = buffers.saturating_mul(here).saturating_mul(case.bytes());
            if needed > available {
                let needed = bytes(needed);
                let available = bytes(available);
                return Err(Refusal::of(Setting::Sizes).text(format!(" {}B on ", case.bytes())).name(Setting::Ranks).text(
                    format!(
                        " {}: {buffers} buffers per rank take {needed}, but {available} of memory are available; measure a \
                         smaller size or fewer ranks",
                        case.ranks
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Measures every case, ordered by collective, ranks, size and algorithm.
    ///
    /// # Errors
    /// A rank's failure.
    pub fn measure(&self, told: OnProgress) -> Result<Vec<Measured>, MeasureError> {
        let of = self.cases.len();
        let mut by_case = Vec::with_capacity(of);
        for (done, case) in self.cases.iter().enumerate() {
            let next = format!("{} ranks, {} bytes", case.ranks, case.bytes());
            told(Progress { done, of, next: Some(&next) });
            by_case.push(self.measure_one(case)?);
        }
        told(Progress { done: of, of, next: None });
        let of = |kind| by_case.iter().flatten().filter(move |measured| measured.kind == kind).cloned();
        Ok(self.collectives.iter().flat_map(|kind| of(*kind)).collect())
    }

    /// Every collective at one size; the copy before and after them, of which the faster counts.
    fn measure_one(&self, case: &Case) -> Result<Vec<Measured>, EngineError> {
        let copied = || {
            let job = self.job(case, Algorithm::Native);
            times(&job, Run::Copy.lengths(case.full(), case.part), self.runs, Run::Copy)
                .map(|times| median(slowest(&times)))
        };
        let before = copied()?;
        let mut measured = Vec::new();
        for kind in &self.collectives {
            let mut native = None;
            let run = Run::Collective(*kind);
            for algorithm in &case.algorithms {
                let times = times(&self.job(case, *algorithm), run.lengths(case.full(), case.part), self.runs, run)?;
                let of = Measured::new(case, *kind, *algorithm, slowest(&times), native, self.tiers.as_deref());
                native = native.or(Some(of.seconds));
                measured.push(of);
            }
        }
        let copied = before.min(copied()?);
        measured.iter_mut().for_each(|measured| measured.beside_copy(copied));
        Ok(measured)
    }

    /// A job whose collectives run by one algorithm.
    fn job(&self, case: &Case, algorithm: Algorithm) -> JobOptions {
        JobOptions { routing: case.routing(algorithm), world: self.world.clone(), ..JobOptions::new(case.ranks) }
    }
}

/// Each once.
fn ascending<T: Copy + Ord>(values: &[T]) -> Vec<T> {
    let mut values = values.to_vec();
    values.sort_unstable();
    values.dedup();
    values
}

fn check_nodes(ranks: usize, per_node: usize) -> Result<(), Refusal> {
    if ranks < 2 {
        return Err(
            Refusal::of(Setting::Ranks).text(format!(" {ranks}: a collective is of two ranks at least; use more"))
        );
    }
    if per_node >= ranks || ranks.is_multiple_of(per_node) {
        return Ok(());
    }
    let divisor = (1..per_node).rev().find(|divisor| ranks.is_multiple_of(*divisor)).unwrap_or(1);
    let refusal = Refusal::of(Setting::PerNode).text(format!(" = {per_node}: ")).name(Setting::Ranks);
    let rule = format!(" {ranks} fill nodes of {per_node} unequally; use a divisor of {ranks}, e.g. ");
    Err(refusal.text(rule).name(Setting::PerNode).text(format!(" {divisor}")))
}

/// Two levels that were asked for by themselves, rather than among all algorithms, are to be somewhere.
fn check_levels(asked: &[Algorithm], cases: &[Case]) -> Result<(), Refusal> {
    let only = asked.contains(&Algorithm::Hierarchical) && asked.len() < Algorithm::ALL.len();
    if only && !cases.iter().any(|case| case.algorithms.contains(&Algorithm::Hierarchical)) {
        let rule =
            format!(" = {}: it needs several nodes with several ranks on each; give e.g. ", Algorithm::Hierarchical);
        let refusal = Refusal::of(Setting::Algorithms).text(rule).name(Setting::Ranks).text(" 4 ");
        return Err(refusal.name(Setting::PerNode).text(" 2, or leave it out"));
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
        let error = Case::new(4, 4, 12, &[]).unwrap_err().to_string();
        assert!(error.starts_with("`sizes` 12B on `ranks` 4: a buffer has at least one f32"), "{error}");
        let message = check_nodes(6, 4).unwrap_err().to_string();
        assert_eq!(
            message,
            "`per_node` = 4: `ranks` 6 fill nodes of 4 unequally; use a divisor of 6, e.g. `per_node` 3"
        );
        assert_eq!((check_nodes(4, 8), check_nodes(6, 3)), (Ok(()), Ok(())));
        assert!(check_nodes(1, 1).unwrap_err().to_string().starts_with("`ranks` 1: "));
        let case = Case::new(4, 4, 64, &Algorithm::ALL).unwrap();
        let message = check_levels(&[Algorithm::Hierarchical], std::slice::from_ref(&case)).unwrap_err().to_string();
        assert!(message.contains("`algorithms` = hierarchical") && message.contains("`per_node` 2"), "{message}");
        assert_eq!(check_levels(&Algorithm::ALL, &[case]), Ok(()));
    }
}
