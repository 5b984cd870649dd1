//! The tiers of a cluster file, fitted to measured collectives, and how their algorithms compare.

use std::collections::BTreeMap;

use quadrille_cost::native::{Deviation, RankGroup, Sample, fit_tier};
use quadrille_spec::{Algorithm, CollectiveKind, GroupBandwidth, Network, Origin, Origins, Tier};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cases::Case;
use super::{Measured, Measurements};
use crate::MeasureError;

/// Buffers of which latency is most of the time.
const SMALL: u64 = 64 << 10;

/// Tiers and how far the native model is from what they were fitted to.
#[derive(Debug, Clone)]
pub struct Fitted {
    /// Innermost first.
    pub tiers: Vec<Tier>,
    /// By tier.
    pub errors: Vec<Deviation>,
    /// By kind of collective, over all tiers.
    pub by_kind: Vec<(CollectiveKind, Deviation)>,
    /// Over everything.
    pub error: Deviation,
}

impl Fitted {
    /// Nodes and what joins them, where there are several.
    pub fn network(&self, per_node: usize, ranks: usize) -> Option<Network> {
        let outermost = self.tiers.last().filter(|_| per_node < ranks);
        outermost.map(|tier| Network { devices_per_node: per_node, bandwidth: reached(tier) })
    }

    /// Bytes per second of a rank's links.
    pub fn innermost_bandwidth(&self) -> f64 {
        self.tiers.first().map_or(0.0, reached)
    }
}

/// What large messages reach of a domain's links.
fn reached(tier: &Tier) -> f64 {
    tier.links as f64 * tier.bandwidth * tier.efficiency
}

/// Fits every tier to the groups that it is the outermost tier of, from the innermost on.
///
/// # Errors
/// No collectives were measured over a tier.
pub fn fitted(measured: &Measurements) -> Result<Fitted, MeasureError> {
    let ranks = measured.setup.spec.ranks;
    let per_node = measured.setup.spec.per_node;
    let mut tiers = Vec::new();
    if per_node > 1 {
        tiers.push(unknown("inside a node", Some(per_node)));
    }
    if per_node < ranks {
        tiers.push(unknown("between nodes", None));
    }
    let samples = samples(measured);
    let mut errors = Vec::new();
    for which in 0..tiers.len() {
        let over: Vec<Sample> =
            samples.iter().filter(|sample| sample.group.tier(&tiers) == Some(which)).copied().collect();
        tiers[which] = fit_tier(&tiers, which, &over)?;
        errors.extend(Deviation::of(&tiers, &over)?);
    }
    let mut by_kind = Vec::new();
    for kind in kinds(&samples) {
        let of_kind: Vec<Sample> = samples.iter().filter(|sample| sample.kind == kind).copied().collect();
        by_kind.extend(Deviation::of(&tiers, &of_kind)?.map(|error| (kind, error)));
    }
    let Some(error) = Deviation::of(&tiers, &samples)? else {
        return Err(MeasureError::Unmeasured { what: "collectives" });
    };
    Ok(Fitted { tiers, errors, by_kind, error })
}

/// A tier of which nothing is known until it is measured.
fn unknown(name: &str, devices: Option<usize>) -> Tier {
    let name = name.to_owned();
    let bandwidth = 1.0;
    let efficiency = 1.0;
    let origins = Origins::default();
    let mut tier = Tier { name, devices, links: 1, bandwidth, efficiency, latency: 0.0, half_bytes: 0.0, origins };
    tier.origins = Origins::all(tier.numbers(), Origin::Measured);
    tier
}

/// The kinds among the samples, each once.
fn kinds(samples: &[Sample]) -> Vec<CollectiveKind> {
    let mut kinds: Vec<CollectiveKind> = samples.iter().map(|sample| sample.kind).collect();
    kinds.sort();
    kinds.dedup();
    kinds
}

/// What collectives take unless another algorithm is asked for: between threads what shared memory gives, between processes
/// the fastest of this program's own. What has one algorithm only is measured as native.
fn samples(measured: &Measurements) -> Vec<Sample> {
    let own = measured.setup.spec.world.is_some();
    let mut samples: Vec<(bool, Sample)> = Vec::new();
    for Measured { case, runs } in &measured.cases {
        let Case::Collective { kind, algorithm, group, bytes } = *case else { continue };
        let native = algorithm == Algorithm::Native;
        let seconds = runs.seconds;
        let same = |(_, sample): &&mut (bool, Sample)| {
            (sample.kind, sample.group, sample.bytes) == (kind, group, bytes as f64)
        };
        match samples.iter_mut().find(same) {
            None => samples.push((native, Sample { group, kind, bytes: bytes as f64, seconds })),
            Some((was_native, sample)) if own && (*was_native || seconds < sample.seconds) => {
                (*was_native, sample.seconds) = (false, seconds);
            }
            Some(_) => {}
        }
    }
    samples.into_iter().map(|(_, sample)| sample).collect()
}

/// AxoNN's table: what a ring of each group inside a node reaches while all such groups communicate, from the largest
/// all-reduces, all-gathers and reduce-scatters one after the other.
pub fn group_bandwidths(measured: &Measurements) -> Vec<GroupBandwidth> {
    let samples = samples(measured);
    let inside = |sample: &&Sample| sample.group.inner * sample.group.size <= measured.setup.spec.per_node;
    let largest = samples.iter().map(|sample| sample.bytes).fold(0.0, f64::max);
    let mut sums: Vec<(usize, usize, f64, f64)> = Vec::new();
    for sample in samples.iter().filter(inside).filter(|sample| sample.bytes == largest) {
        let passes = match sample.kind {
            CollectiveKind::AllReduce => 2.0,
            CollectiveKind::AllGather | CollectiveKind::ReduceScatter => 1.0,
            _ => continue,
        };
        let inner = sample.group.inner;
        let group = sample.group.size;
        let sent = passes * (1.0 - 1.0 / group as f64) * sample.bytes;
        match sums.iter_mut().find(|(i, g, ..)| (*i, *g) == (inner, group)) {
            Some((_, _, bytes, seconds)) => (*bytes, *seconds) = (*bytes + sent, *seconds + sample.seconds),
            None => sums.push((inner, group, sent, sample.seconds)),
        }
    }
    let entry = |(inner, group, bytes, seconds)| GroupBandwidth { inner, group, bandwidth: bytes / seconds };
    sums.into_iter().map(entry).collect()
}

/// An algorithm beside what the transport brings.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Compared {
    /// Which.
    pub algorithm: Algorithm,
    /// Which collective.
    pub collective: CollectiveKind,
    /// Its seconds over those of `native`, up to 64 KiB: geometric mean over groups and sizes.
    pub small: f64,
    /// The same above.
    pub large: f64,
}

/// Every algorithm and collective beside `native`.
pub fn compared(measured: &Measurements) -> Vec<Compared> {
    let of = |wanted: (CollectiveKind, Algorithm, RankGroup, u64)| {
        let matches = |Measured { case, .. }: &&Measured| match *case {
            Case::Collective { kind, algorithm, group, bytes } => (kind, algorithm, group, bytes) == wanted,
            _ => false,
        };
        measured.cases.iter().find(matches).map(|measured| measured.runs.seconds)
    };
    let mut logarithms: BTreeMap<(Algorithm, CollectiveKind), [Vec<f64>; 2]> = BTreeMap::new();
    for Measured { case, runs } in &measured.cases {
        let Case::Collective { kind, algorithm, group, bytes } = *case else { continue };
        let Some(native) = of((kind, Algorithm::Native, group, bytes)) else { continue };
        if algorithm != Algorithm::Native {
            let sizes = logarithms.entry((algorithm, kind)).or_default();
            sizes[usize::from(bytes > SMALL)].push((runs.seconds / native).ln());
        }
    }
    let mean = |values: &[f64]| (values.iter().sum::<f64>() / values.len() as f64).exp();
    let one = |((algorithm, collective), [small, large]): ((Algorithm, CollectiveKind), [Vec<f64>; 2])| Compared {
        algorithm,
        collective,
        small: mean(&small),
        large: mean(&large),
    };
    logarithms.into_iter().map(one).collect()
}
