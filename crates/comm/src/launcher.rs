//! What the environment says about the launcher that started this process.

use std::env;

/// A launcher of parallel processes that has started this one, as the environment tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launched {
    /// The launcher: `mpirun`, `a PMIx launcher`, `srun`, ...
    pub by: &'static str,
    /// How many processes it has started; `None` if it does not say.
    pub ranks: Option<usize>,
    /// This process's rank among them.
    pub rank: usize,
}

/// Launchers by the variables that they set: rank, then number of processes. The first whose rank is set counts: Slurm's
/// come last, since they are set also for what a batch script starts by other means.
const LAUNCHERS: [(&str, &str, &str); 5] = [
    ("mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("mpiexec", "PMI_RANK", "PMI_SIZE"),
    ("mpiexec", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("a PMIx launcher", "PMIX_RANK", "PMIX_SIZE"),
    ("srun", "SLURM_PROCID", "SLURM_NTASKS"),
];

impl Launched {
    /// The launcher of this process; `None` if it was started by itself. A batch script's own shell under Slurm, which is
    /// one process, counts as started by itself.
    pub fn from_environment() -> Option<Self> {
        Self::from_variables(|name| env::var(name).ok())
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let number = |name: &str| variable(name)?.trim().parse::<usize>().ok();
        let (by, rank, ranks) = LAUNCHERS.iter().find_map(|(by, rank, ranks)| Some((*by, number(rank)?, *ranks)))?;
        // In the shell of a batch script Slurm sets the same variables as for a step's first task, but no step.
        if by == "srun" && variable("SLURM_STEP_ID").is_none() {
            return None;
        }
        let ranks = number(ranks).or_else(|| if by == "a PMIx launcher" { number("SLURM_NTASKS") } else { None });
        Some(Self { by, ranks, rank })
    }

    /// Whether it has started more than this process, or does not say.
    pub fn is_parallel(&self) -> bool {
        self.ranks != Some(1)
    }
}

/// Processors of this machine, also those on which launchers do not let this process run; `None` where the system does not
/// say.
pub fn processors() -> Option<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").ok()?;
    text.trim()
        .split(',')
        .map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some(last.parse::<usize>().ok()?.checked_sub(first.parse().ok()?)? + 1)
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launched(variables: &[(&str, &str)]) -> Option<Launched> {
        let find =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        Launched::from_variables(find)
    }

    #[test]
    fn launchers_are_told_by_their_variables() {
        assert_eq!(launched(&[("HOME", "/")]), None);
        let open_mpi = [("OMPI_COMM_WORLD_RANK", "3"), ("OMPI_COMM_WORLD_SIZE", "8"), ("PMIX_RANK", "3")];
        assert_eq!(launched(&open_mpi), Some(Launched { by: "mpirun", ranks: Some(8), rank: 3 }));
        let mpich = [("PMI_RANK", "0"), ("PMI_SIZE", "1")];
        assert_eq!(launched(&mpich).map(|launched| launched.is_parallel()), Some(false));
        let pmix = [("PMIX_RANK", "1"), ("SLURM_PROCID", "1"), ("SLURM_NTASKS", "4"), ("SLURM_STEP_ID", "0")];
        assert_eq!(launched(&pmix), Some(Launched { by: "a PMIx launcher", ranks: Some(4), rank: 1 }));
    }

    #[test]
    fn a_batch_script_is_no_launcher() {
        assert_eq!(launched(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")]), None);
        let step = [("SLURM_PROCID", "2"), ("SLURM_NTASKS", "4"), ("SLURM_STEP_ID", "0")];
        assert_eq!(launched(&step), Some(Launched { by: "srun", ranks: Some(4), rank: 2 }));
    }
}
