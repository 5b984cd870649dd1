//! Tiers fitted to synthetic collectives: what the formula says is found again.

use proptest::prelude::*;
use quadrille_cost::native::{Deviation, RankGroup, Sample, fit_tier};
use quadrille_spec::{CollectiveKind, Origin, Origins, Tier};

const KINDS: [CollectiveKind; 6] = [
    CollectiveKind::AllReduce,
    CollectiveKind::AllGather,
    CollectiveKind::ReduceScatter,
    CollectiveKind::Broadcast,
    CollectiveKind::AllToAll,
    CollectiveKind::Send,
];

fn tier(devices: Option<usize>, bandwidth: f64, latency: f64, half_bytes: f64) -> Tier {
    let name = "t".to_owned();
    let origins = Origins::default();
    Tier { name, devices, links: 2, bandwidth, efficiency: 1.0, latency, half_bytes, origins }
}

/// What the tiers give for every kind of collective, from 4 KiB to 16 MiB.
fn samples(tiers: &[Tier], groups: &[(usize, usize)], ranks: usize) -> Vec<Sample> {
    let mut samples = Vec::new();
    for (inner, size) in groups {
        let group = RankGroup { inner: *inner, size: *size, ranks };
        for kind in KINDS.into_iter().filter(|kind| *kind != CollectiveKind::Send || *size == 2) {
            for power in (12..=24).step_by(2) {
                let bytes = f64::from(1 << power);
                let seconds = group.seconds(tiers, kind, bytes).unwrap();
                samples.push(Sample { group, kind, bytes, seconds });
            }
        }
    }
    samples
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-4 * b.abs().max(1e-12)
}

fn assert_found(found: &Tier, known: &Tier) {
    let rate = |tier: &Tier| tier.links as f64 * tier.bandwidth * tier.efficiency;
    assert!(close(rate(found), rate(known)), "{found:?} is not {known:?}");
    assert!(close(found.latency, known.latency), "{found:?} is not {known:?}");
    assert!(close(found.half_bytes, known.half_bytes), "{found:?} is not {known:?}");
}

/// A tier that knows nothing: all is to be found.
fn unknown(known: &Tier) -> Tier {
    Tier { bandwidth: 1.0, efficiency: 1.0, latency: 0.0, half_bytes: 0.0, ..known.clone() }
}

#[test]
fn both_tiers_are_found_again() {
    let known = [tier(Some(4), 5e9, 2e-6, 6e4), tier(None, 1e9, 2e-5, 4e5)];
    let inside = samples(&known, &[(1, 2), (2, 2), (1, 4)], 16);
    let between = samples(&known, &[(4, 4), (2, 8), (1, 16), (8, 2)], 16);
    let mut found = known.each_ref().map(unknown);
    found[0] = fit_tier(&found, 0, &inside).unwrap();
    assert_found(&found[0], &known[0]);
    found[1] = fit_tier(&found, 1, &between).unwrap();
    assert_found(&found[1], &known[1]);
    let error = Deviation::of(&found, &between).unwrap().unwrap();
    assert!(error.samples == between.len() && error.mean <= error.largest && error.largest < 1e-5, "{error:?}");
}

#[test]
fn a_known_bandwidth_is_kept_where_it_is_not_exceeded() {
    let known = [tier(None, 4e9, 3e-6, 0.0)];
    let samples = samples(&known, &[(1, 2), (1, 8)], 8);
    let slower = fit_tier(&[tier(None, 16e9, 1e-6, 0.0)], 0, &samples).unwrap();
    assert!(slower.bandwidth == 16e9 && close(slower.efficiency, 0.25), "{slower:?}");
    let faster = fit_tier(&[tier(None, 1e9, 1e-6, 0.0)], 0, &samples).unwrap();
    assert!(close(faster.bandwidth, 4e9) && faster.efficiency == 1.0, "{faster:?}");
    // What is known stays what it was; all else was measured.
    let origins = |tier: &Tier| ["bandwidth", "efficiency", "latency", "half_bytes"].map(|name| tier.origins.of(name));
    let measured = Origin::Measured;
    assert_eq!(origins(&slower), [Origin::Assumed, measured, measured, measured]);
    assert_eq!(origins(&faster), [measured; 4]);
}

#[test]
fn nothing_fits_to_nothing() {
    let tiers = [tier(None, 4e9, 3e-6, 0.0)];
    let message = fit_tier(&tiers, 0, &[]).unwrap_err().to_string();
    assert!(message.contains("samples = 0") && message.contains("measured collectives"), "{message}");
    let mut one = samples(&tiers, &[(1, 2)], 2);
    one[0].seconds = 0.0;
    assert!(fit_tier(&tiers, 0, &one).is_err() && fit_tier(&tiers, 1, &one[1..]).is_err());
    assert_eq!(Deviation::of(&tiers, &[]).unwrap(), None);
}

proptest! {
    /// Measurements that scatter by a tenth are fitted no worse than by the numbers that they scatter around.
    #[test]
    fn noise_is_averaged(
        (bandwidth, latency, half) in (1e8..1e11f64, 1e-7..1e-4f64, 0.0..1e6f64),
        noise in prop::collection::vec(-0.1..0.1f64, 40),
    ) {
        let known = [tier(None, bandwidth, latency, half)];
        let mut noisy = samples(&known, &[(1, 2), (1, 8)], 8);
        noisy.iter_mut().zip(noise.iter().cycle()).for_each(|(sample, noise)| sample.seconds *= 1.0 + noise);
        let found = [fit_tier(&known.each_ref().map(unknown), 0, &noisy).unwrap()];
        let squares = |tiers: &[Tier]| -> f64 {
            let error = |s: &Sample| (s.group.seconds(tiers, s.kind, s.bytes).unwrap() / s.seconds).ln();
            noisy.iter().map(|sample| error(sample).powi(2)).sum()
        };
        prop_assert!(squares(&found) <= squares(&known) * (1.0 + 1e-6), "{:?} for {:?}", found, known);
    }
}
