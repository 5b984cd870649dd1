//! The front over numbers of devices, time and memory.

use super::ranking::{Ranked, comparable};

/// The layouts than which none has at most as many devices, at most their time and at most their memory, and less of one
/// of them; fewest devices first, then fastest first. Of equal ones the first stays.
pub fn front(layouts: &[Ranked]) -> Vec<Ranked> {
    let point =
        |ranked: &Ranked| (ranked.candidate.devices(), comparable(ranked.price.seconds), ranked.price.memory.total());
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
