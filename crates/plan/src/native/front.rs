//! The front over numbers of devices, time and memory.

use super::ranking::{Ranked, comparable};

/// Memory is told apart by this part of what a device has for a layout: a front of smaller differences would be long, and no more use.
const GRAINS: u64 = 32;

/// The bytes by which memory is told apart on devices with so much of it; 1 GiB where it is not known.
pub fn grain(capacity: Option<u64>) -> u64 {
    capacity.map_or(1 << 30, |capacity| (capacity / GRAINS).max(1))
}

/// The layouts than which none has at most as many devices, at most their time and at most their memory in whole grains, and less of
/// one of them; fewest devices first, then fastest first. Of equal ones the first stays.
pub fn front(layouts: &[Ranked], grain: u64) -> Vec<Ranked> {
    let grains = |ranked: &Ranked| ranked.price.memory.total().div_ceil(grain);
    let point = |ranked: &Ranked| (ranked.candidate.devices(), comparable(ranked.price.seconds), grains(ranked));
    let is_beaten = |at: usize| {
        let (devices, seconds, bytes) = point(&layouts[at]);
        layouts.iter().enumerate().any(|(other, ranked)| {
            let (fewer, faster, smaller) = point(ranked);
            let no_worse = fewer <= devices && faster <= seconds && smaller <= bytes;
            no_worse && ((fewer, faster, smaller) != (devices, seconds, bytes) || other < at)
        })
    };
    let mut kept: Vec<Ranked> = (0..layouts.len()).filter(|at| !is_beaten(*at)).map(|at| layouts[at]).collect();
    kept.sort_by(|a, b| a.candidate.devices().cmp(&b.candidate.devices()).then_with(|| a.order(b)));
    kept
}
