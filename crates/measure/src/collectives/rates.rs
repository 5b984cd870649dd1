//! What was measured, as rates.
//!
//! Letters: n bytes of the full buffer, t seconds, G ranks. As nccl-tests define them, the algorithm bandwidth is n/t,
//! the bus bandwidth of an all-reduce 2 (G-1)/G n/t, that of an all-gather, a reduce-scatter or an all-to-all (G-1)/G n/t,
//! that of a broadcast n/t. <https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md>

use quadrille_spec::{Algorithm, CollectiveKind, Tier};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use super::cases::Case;
use crate::timing::{median, quantile};

/// One collective by one algorithm at one size.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Measured {
    /// Which collective.
    #[serde(rename = "collective", serialize_with = "name")]
    pub kind: CollectiveKind,
    /// G.
    pub ranks: usize,
    /// Ranks that count as one node.
    pub per_node: usize,
    /// How it was carried out.
    pub algorithm: Algorithm,
    /// The full buffer: input of a reduce-scatter, output of an all-gather. What its elements do not divide into
    /// equal parts for the ranks is left out.
    pub bytes: u64,
    /// The size that was asked for, in bytes.
    pub size: u64,
    /// Measured runs.
    pub runs: usize,
    /// Median over runs of the slowest rank's time.
    pub seconds: f64,
    /// Range of the middle half of the runs over the median.
    pub spread: f64,
    /// Billions of bytes a second, n/t.
    pub algorithm_gb_s: f64,
    /// What a rank's link carries.
    pub bus_gb_s: f64,
    /// The time of the native collective over this one's: above 1, this one is faster.
    pub ratio_to_native: f64,
    /// What one thread copies, buffer to buffer of the same size, while as many threads as there are ranks do so.
    pub copy_gb_s: f64,
    /// What these threads copy together.
    pub copy_total_gb_s: f64,
    /// `bus_gb_s / copy_gb_s`.
    pub ratio_to_copy: f64,
    /// What the algorithm takes on the cluster, by its formula; a native collective counts as a ring.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted_seconds: Option<f64>,
    /// `predicted_seconds / seconds - 1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted_error: Option<f64>,
}

fn name<S: Serializer>(kind: &CollectiveKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(kind.name())
}

impl Measured {
    /// From the slowest rank's seconds in every run; `native` is the yardstick's median, unless this is the yardstick.
    pub(super) fn new(
        case: &Case,
        kind: CollectiveKind,
        algorithm: Algorithm,
        mut times: Vec<f64>,
        native: Option<f64>,
        tiers: Option<&[Tier]>,
    ) -> Self {
        times.sort_by(f64::total_cmp);
        let seconds = median(times.clone());
        let n = case.bytes() as f64;
        let world: Vec<usize> = (0..case.ranks).collect();
        let predict = |tiers: &[Tier]| case.routing(algorithm).formation(&world).seconds(tiers, algorithm, kind, n);
        let predicted_seconds = tiers.map(predict);
        Self {
            kind,
            ranks: case.ranks,
            per_node: case.per_node.min(case.ranks),
            algorithm,
            bytes: case.bytes(),
            size: case.size,
            runs: times.len(),
            seconds,
            spread: (quantile(&times, 0.75) - quantile(&times, 0.25)) / seconds,
            algorithm_gb_s: n / seconds / 1e9,
            bus_gb_s: bus_factor(kind, case.ranks) * n / seconds / 1e9,
            ratio_to_native: native.unwrap_or(seconds) / seconds,
            copy_gb_s: 0.0,
            copy_total_gb_s: 0.0,
            ratio_to_copy: 0.0,
            predicted_seconds,
            predicted_error: predicted_seconds.map(|predicted| predicted / seconds - 1.0),
        }
    }

    /// Sets the rates of a copy of the full buffer that takes so many seconds.
    pub(super) fn beside_copy(&mut self, seconds: f64) {
        self.copy_gb_s = self.bytes as f64 / seconds / 1e9;
        self.copy_total_gb_s = self.ranks as f64 * self.copy_gb_s;
        self.ratio_to_copy = self.bus_gb_s / self.copy_gb_s;
    }
}

/// Bus bandwidth over algorithm bandwidth: what a rank's link carries for every byte of the full buffer.
fn bus_factor(kind: CollectiveKind, ranks: usize) -> f64 {
    let others = (ranks - 1) as f64 / ranks as f64;
    match kind {
        CollectiveKind::AllReduce => 2.0 * others,
        CollectiveKind::AllGather | CollectiveKind::ReduceScatter | CollectiveKind::AllToAll => others,
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(kind: CollectiveKind, ranks: usize, part: usize, algorithm: Algorithm, ratio: f64) -> Measured {
        let case = Case { ranks, per_node: ranks, size: (ranks * part * 4) as u64, part, algorithms: Vec::new() };
        let mut measured = Measured::new(&case, kind, algorithm, vec![1e-3], Some(ratio * 1e-3), None);
        measured.beside_copy(1e-3);
        measured
    }

    #[test]
    fn bandwidths_are_those_of_nccl_tests() {
        // Two milliseconds for 4 ranks' 4 MB.
        let case = Case { ranks: 4, per_node: 2, size: 4_000_000, part: 250_000, algorithms: Vec::new() };
        let of = |kind| Measured::new(&case, kind, Algorithm::Ring, vec![3e-3, 2e-3, 1e-3], Some(1e-3), None);
        for (kind, bus) in [
            (CollectiveKind::AllReduce, 3.0),
            (CollectiveKind::AllGather, 1.5),
            (CollectiveKind::ReduceScatter, 1.5),
            (CollectiveKind::AllToAll, 1.5),
            (CollectiveKind::Broadcast, 2.0),
        ] {
            let measured = of(kind);
            let rates = [measured.algorithm_gb_s, measured.bus_gb_s, measured.ratio_to_native, measured.spread];
            let expected = [2.0, bus, 0.5, 0.5];
            assert!(rates.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9), "{kind:?}: {rates:?}");
        }
    }

    #[test]
    fn the_copy_is_a_yardstick() {
        let mut measured = measured(CollectiveKind::AllReduce, 4, 250_000, Algorithm::Ring, 1.0);
        measured.beside_copy(0.5e-3);
        let rates = [measured.copy_gb_s, measured.copy_total_gb_s, measured.ratio_to_copy];
        assert!(rates.iter().zip([8.0, 32.0, 0.75]).all(|(a, b)| (a - b).abs() < 1e-9), "{rates:?}");
    }

    #[test]
    fn predictions_are_held_against_what_was_measured() {
        let tier = Tier {
            name: "link".to_owned(),
            devices: None,
            links: 1,
            bandwidth: 1e9,
            efficiency: 1.0,
            latency: 0.0,
            half_bytes: 0.0,
            origins: quadrille_spec::Origins::default(),
        };
        let case = Case { ranks: 2, per_node: 2, size: 4_000_000, part: 500_000, algorithms: Vec::new() };
        let times = vec![4e-3];
        let measured = Measured::new(
            &case,
            CollectiveKind::AllGather,
            Algorithm::Ring,
            times,
            None,
            Some(std::slice::from_ref(&tier)),
        );
        // Half of 4 MB at 1 GB/s.
        assert!((measured.predicted_seconds.unwrap() - 2e-3).abs() < 1e-12);
        assert!((measured.predicted_error.unwrap() + 0.5).abs() < 1e-9);
        assert_eq!(measured.ratio_to_native, 1.0);
    }
}
