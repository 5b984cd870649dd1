//! How to measure, and what the ranks agree on before they do.

use quadrille_comm::{RankContext, World, memory};
use quadrille_engine::{Device, Processor};
use quadrille_run::{LayoutDefaults, Processes};
use quadrille_spec::Algorithm;

use super::measurements::Measurements;
use super::ranks;
use super::sizes::Sizes;
use crate::{MeasureError, Progress, Refusal, Setting};

/// Operands of a streaming update, and as much again for what else runs.
const STREAMED_OPERANDS: u64 = 8;

/// How to measure. Where ranks are processes, each of them says so of itself.
#[derive(Debug, Clone)]
pub struct CalibrationSpec {
    /// Ranks that measure, at least two.
    pub ranks: usize,
    /// Ranks that share a node: a divisor of `ranks`.
    pub per_node: usize,
    /// Threads of each rank, at least one.
    pub threads: usize,
    /// Runs of each measurement, at least one; the median counts.
    pub runs: usize,
    /// Fewer shapes and sizes.
    pub quick: bool,
    /// Cores that the ranks of this machine share, at least one.
    pub cores: usize,
    /// Ranks of this machine.
    pub ranks_here: usize,
    /// Where ranks are processes; `None`: they are threads of this one.
    pub world: Option<World>,
    /// What ranks compute on.
    pub device: &'static dyn Device,
}

impl CalibrationSpec {
    /// So many ranks on so many cores of this machine, of one thread each; seven runs of everything.
    pub fn new(ranks: usize, cores: usize) -> Self {
        let ranks_here = ranks;
        let per_node = ranks;
        let world = None;
        let device = &Processor;
        Self { ranks, per_node, threads: 1, runs: 7, quick: false, cores, ranks_here, world, device }
    }

    /// The same where ranks are these processes, or threads of this one: so many as are asked for, else all of the processes or
    /// as many as a run has, on nodes as they are, else on one; with as many threads each as those of a run, and on the same device.
    ///
    /// # Errors
    /// Other ranks than there are processes, or other nodes.
    pub fn on(processes: &Processes, ranks: Option<usize>, per_node: Option<usize>) -> Result<Self, MeasureError> {
        let cores = quadrille_run::cores();
        let LayoutDefaults { ranks: started, per_node: placed, .. } = processes.defaults(&LayoutDefaults::USUAL)?;
        let ranks = ranks.unwrap_or(started);
        processes.check_ranks(ranks)?;
        let per_node = per_node.or(placed).unwrap_or(ranks);
        if let Some(placed) = placed.filter(|placed| *placed != per_node) {
            let rule = format!(" {per_node}: the launcher put {placed} ranks on a node; leave it out");
            return Err(Refusal::of(Setting::PerNode).text(rule).into());
        }
        let ranks_here = processes.ranks_here(ranks);
        let world = processes.world.clone();
        let threads = processes.threads(None, ranks)?;
        Ok(Self { per_node, ranks_here, threads, world, device: processes.device, ..Self::new(ranks, cores) })
    }

    /// Measures everything: minutes, or seconds if it is to be quick. The first rank tells before each case which comes next.
    ///
    /// # Errors
    /// Nodes that ranks do not fill, fewer than two ranks, too little free memory for the bandwidth of memory; a rank's
    /// failure.
    pub fn measure(self, told: &(dyn Fn(Progress) + Sync)) -> Result<Measurements, MeasureError> {
        Measurements::take(self.agreed()?, told)
    }

    /// With what the worst placed ranks have: all of them measure the same, equally often.
    fn agreed(self) -> Result<Setup, MeasureError> {
        let Self { ranks, per_node, .. } = self;
        if ranks < 2 || per_node > ranks || !ranks.is_multiple_of(per_node) {
            let rule = format!(" {per_node}: nodes are full of ranks, and there are {ranks}; use a divisor of ");
            let refusal = Refusal::of(Setting::PerNode).text(rule).name(Setting::Ranks);
            return Err(refusal.text(", and two ranks at least").into());
        }
        let here = Here::of(&self)?;
        let share = |_: &RankContext| Ok((here.memory, here.sharing, (self.ranks_here, self.cores)));
        let shares = ranks::on_ranks(&self, Algorithm::Native, share)?;
        let memory = shares.iter().map(|(memory, ..)| *memory).min().unwrap_or(0);
        let sharing = shares.iter().map(|(_, sharing, _)| *sharing).max().unwrap_or(here.sharing);
        let on_cores: Vec<(usize, usize)> = shares.into_iter().map(|(.., on_cores)| on_cores).collect();
        let (ranks_here, cores) = most_crowded(&on_cores).unwrap_or((self.ranks_here, self.cores));
        let device = here.device.map(|name| OnDevice { name, sharing });
        let sizes = match &device {
            None => Sizes::of_processor(self.quick, self.world.is_some()),
            Some(_) if self.device.is_emulated() => Sizes::of_emulator(),
            Some(_) => Sizes::of_device(self.quick),
        };
        let fitting = memory / (STREAMED_OPERANDS * size_of::<f32>() as u64);
        let streamed = fitting.min(sizes.streamed as u64) as usize / 64 * 64;
        if streamed < sizes.streamed / 16 {
            let rule = "bytes of memory are free for each, too few to measure its bandwidth; use fewer";
            return Err(Refusal::of(Setting::Ranks).text(format!(" {ranks}: {memory} {rule}")).into());
        }
        Ok(Setup { spec: Self { ranks_here, cores, ..self }, sizes, device, streamed, memory })
    }

    /// How collectives are carried out; two levels need several nodes of several ranks.
    pub(super) fn algorithms(&self) -> Vec<Algorithm> {
        let mut algorithms = vec![Algorithm::Native, Algorithm::Ring, Algorithm::Recursive];
        if self.per_node > 1 && self.per_node < self.ranks {
            algorithms.push(Algorithm::Hierarchical);
        }
        algorithms
    }

    /// Threads of ranks that share a core, at least 1.
    pub fn crowding(&self) -> f64 {
        ((self.ranks_here * self.threads) as f64 / self.cores as f64).max(1.0)
    }

    /// Where the ranks are, in words.
    pub(super) fn place(&self) -> String {
        let ranks = self.ranks;
        let nodes = self.ranks / self.per_node;
        match (nodes, &self.world) {
            (1, _) => format!("{ranks} ranks of this machine"),
            (_, Some(_)) => format!("{ranks} ranks on {nodes} nodes"),
            // Threads, of which the description says so.
            (_, None) => format!("{ranks} ranks of this machine, taken as {nodes} nodes"),
        }
    }
}

/// What all ranks have agreed on.
#[derive(Debug, Clone)]
pub struct Setup {
    /// What was asked for; cores and the ranks that share them are those where most ranks share a core.
    pub spec: CalibrationSpec,
    /// Sizes of what is measured.
    pub sizes: Sizes,
    /// The device; `None`: ranks compute on the processor.
    pub device: Option<OnDevice>,
    /// Numbers in each operand of element-wise work out of cache.
    pub streamed: usize,
    /// Bytes of memory of a rank: the least that a process has free for each of its own, on all of its devices together.
    pub memory: u64,
}

/// A device that ranks compute on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnDevice {
    /// What it is called.
    pub name: String,
    /// Ranks that share one, where most do.
    pub sharing: usize,
}

impl Setup {
    /// Ranks that share a device, or threads that share a core of the processor; at least 1.
    pub fn crowding(&self) -> f64 {
        self.device.as_ref().map_or_else(|| self.spec.crowding(), |device| device.sharing as f64)
    }

    /// Threads that share a core while ranks begin operations, at least 1: for a device each rank does so by one.
    pub(super) fn crowding_of_hosts(&self) -> f64 {
        match self.device {
            None => self.spec.crowding(),
            Some(_) => (self.spec.ranks_here as f64 / self.spec.cores as f64).max(1.0),
        }
    }

    /// Where the ranks are, in words.
    pub(super) fn place(&self) -> String {
        let place = self.spec.place();
        match &self.device {
            None => place,
            Some(OnDevice { name, sharing: 1 }) => format!("{place}, each on a device of its own: {name}"),
            Some(OnDevice { name, sharing }) => format!("{place}, up to {sharing} on a device: {name}"),
        }
    }
}

/// What a process knows of its machine.
struct Here {
    /// Bytes that are free for a rank.
    memory: u64,
    /// Ranks that share a device.
    sharing: usize,
    /// What that is called.
    device: Option<String>,
}

impl Here {
    fn of(spec: &CalibrationSpec) -> Result<Self, MeasureError> {
        let device = spec.device.name()?;
        let ranks = spec.ranks_here;
        let devices = spec.device.devices(ranks)?.unwrap_or(1);
        let sharing = ranks.div_ceil(devices);
        if let Some(free) = spec.device.free(ranks)? {
            return Ok(Self { memory: free / (devices * sharing) as u64, sharing, device });
        }
        let available = memory::available().ok_or(MeasureError::UnknownMemory)?;
        Ok(Self { memory: available / ranks as u64, sharing, device })
    }
}

/// Ranks of a machine and the cores that they share, where most share one; of what every rank says of itself.
fn most_crowded(shares: &[(usize, usize)]) -> Option<(usize, usize)> {
    // Of a / b < c / d, without rounding.
    let fewer = |a: &(usize, usize), b: &(usize, usize)| (a.0 * b.1).cmp(&(b.0 * a.1));
    shares.iter().copied().max_by(fewer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ranks_take_what_the_most_crowded_has() {
        // 4 ranks on 8 cores, 3 on 2, 2 on 2.
        assert_eq!(most_crowded(&[(4, 8), (3, 2), (2, 2)]), Some((3, 2)));
        assert_eq!(most_crowded(&[]), None);
    }

    #[test]
    fn every_rank_agrees_on_a_share() {
        let agreed = CalibrationSpec::new(2, 2).agreed().unwrap();
        assert_eq!((agreed.spec.ranks_here, agreed.spec.cores, agreed.crowding()), (2, 2, 1.0));
        assert!(agreed.memory > 0 && agreed.streamed > 0);
    }

    #[test]
    fn nodes_are_full() {
        for (ranks, per_node) in [(1, 1), (4, 3), (2, 4), (4, 0)] {
            let spec = CalibrationSpec { per_node, ..CalibrationSpec::new(ranks, 2) };
            let message = spec.agreed().unwrap_err().to_string();
            let expected = format!(
                "`per_node` {per_node}: nodes are full of ranks, and there are {ranks}; use a divisor of `ranks`"
            );
            assert!(message.starts_with(&expected), "{message}");
        }
    }

    #[test]
    fn nodes_are_named_where_there_are_several() {
        let place = |per_node| CalibrationSpec { per_node, ..CalibrationSpec::new(4, 2) }.place();
        assert_eq!(
            (place(4).as_str(), place(2).as_str()),
            ("4 ranks of this machine", "4 ranks of this machine, taken as 2 nodes")
        );
    }
}
