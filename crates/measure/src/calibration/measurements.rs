//! Everything that was measured, and the cluster that it makes.

use std::time::Instant;

use quadrille_engine::{Hyper, TrainOptions};
use quadrille_spec::{
    Algorithm, Calibration, Cluster, ElementType, MeasuredCollective, MeasuredOperation, Origin, Origins,
};

use super::cases::Case;
use super::statistics::Runs;
use super::tiers::{self, Compared, Fitted};
use super::{CalibrationSpec, Setup, clock, device, ranks};
use crate::constants::operation_latency;
use crate::{MeasureError, Progress};

/// A case with its runs.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    /// What was measured.
    pub case: Case,
    /// Of the slowest rank each.
    pub runs: Runs,
}

/// Everything that was measured.
#[derive(Debug, Clone)]
pub struct Measurements {
    /// How it was measured.
    pub setup: Setup,
    /// The operations of a rank, then collectives by one algorithm after the other, `native` first.
    pub cases: Vec<Measured>,
    /// Seconds that an operation of the engine takes beside its work; on a device those of the host, which begins it.
    pub launch_seconds: f64,
    /// Seconds that all of it took.
    pub seconds: f64,
}

impl Measurements {
    pub(super) fn take(setup: Setup, told: &(dyn Fn(Progress) + Sync)) -> Result<Self, MeasureError> {
        let start = Instant::now();
        let spec = &setup.spec;
        let mut measured = Vec::new();
        let parts = spec.algorithms().into_iter().map(|algorithm| (algorithm, Case::all(&setup, algorithm)));
        let parts: Vec<(Algorithm, Vec<Case>)> = parts.collect();
        let of = parts.iter().map(|(_, cases)| cases.len()).sum();
        for (algorithm, cases) in parts {
            let done = measured.len();
            let begin = |at: usize| told(Progress { done: done + at, of, next: Some(&cases[at].name()) });
            let by_rank = ranks::on_ranks(spec, algorithm, |context| clock::measure(context, &setup, &cases, &begin))?;
            measured.extend(cases.iter().enumerate().map(|(at, case)| {
                let runs: Vec<&[f64]> = by_rank.iter().map(|cases| cases[at].as_slice()).collect();
                Measured { case: *case, runs: Runs::slowest(&runs) }
            }));
        }
        let latency = operation_latency(spec.device, setup.sizes.values, spec.ranks, &options(&setup))?;
        // A rank that is not interrupted looks as fast as if it had a core for itself.
        let launch_seconds = setup.crowding_of_hosts() * latency;
        Ok(Self { setup, cases: measured, launch_seconds, seconds: start.elapsed().as_secs_f64() })
    }

    /// The tiers for which collectives take what was measured, as nearly as tiers can: each is fitted to the groups that it is
    /// the outermost tier of, from the innermost on.
    ///
    /// # Errors
    /// No collectives were measured over a tier.
    pub fn fitted(&self) -> Result<Fitted, MeasureError> {
        tiers::fitted(self)
    }

    /// Every algorithm and collective beside `native`.
    pub fn compared(&self) -> Vec<Compared> {
        tiers::compared(self)
    }

    /// The cluster that this machine is, with the tiers that were fitted.
    ///
    /// # Errors
    /// No operations of a kind were measured.
    pub fn cluster(&self, tiers: &Fitted) -> Result<Cluster, MeasureError> {
        let CalibrationSpec { ranks, per_node, threads, .. } = self.setup.spec;
        let place = self.setup.place();
        let device = device::of(self)?;
        let network = tiers.network(per_node, ranks);
        Ok(Cluster {
            name: "calibrated".to_owned(),
            source: format!(
                "measured by quadrille calibrate on {place}, {per_node} to a node, {threads} threads \
                 each; tiers and group bandwidths are fitted to the collectives of section calibration"
            ),
            device_memory: Some(device.memory),
            device: Some(device),
            tiers: tiers.tiers.clone(),
            devices_per_node: network.map(|network| network.devices_per_node),
            network,
            intra_node_bandwidth: tiers.innermost_bandwidth(),
            group_bandwidths: tiers::group_bandwidths(self),
            calibration: Some(self.section()),
            origins: Origins::all(Cluster::NUMBERS, Origin::Measured),
        })
    }

    fn section(&self) -> Calibration {
        let CalibrationSpec { ranks, per_node, threads, runs, .. } = self.setup.spec;
        let collectives = self.cases.iter().filter_map(|Measured { case, runs }| match *case {
            Case::Collective { kind, algorithm, group, bytes } => Some(MeasuredCollective {
                collective: kind,
                algorithm,
                inner: group.inner,
                group: group.size,
                bytes,
                seconds: runs.seconds,
                spread: runs.spread,
            }),
            _ => None,
        });
        let operations = self.cases.iter().filter(|measured| !matches!(measured.case, Case::Collective { .. }));
        let operations = operations.map(|Measured { case, runs }| {
            let (work, unit) = case.work();
            MeasuredOperation {
                operation: case.name(),
                dtype: case.dtype(),
                shape: case.shape(),
                rate: work / runs.seconds,
                unit,
                spread: runs.spread,
            }
        });
        let dtype = ElementType::F32;
        let collectives = collectives.collect();
        let operations = operations.collect();
        Calibration { ranks, per_node, threads, runs, dtype, collectives, operations }
    }
}

/// Of the steps that say what an operation takes by itself.
fn options(setup: &Setup) -> TrainOptions {
    let Setup { spec, sizes, .. } = setup;
    TrainOptions {
        threads: spec.threads,
        world: spec.world.clone(),
        ..TrainOptions::new(sizes.steps + 1, Hyper::default(), 1)
    }
}
