//! The search of Subramanian et al. (arXiv 2410.00273, section III): every configuration of a strategy on a number of
//! devices, priced by [`Block::step`], those that fit ranked by time.
//!
//! Candidates are exactly those that the paper's public code enumerates (revision `54278b0`). A block's price depends on
//! the cut alone, so it is computed once for all sizes of data and pipeline that go with the cut.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use quadrille_spec::{Model, SpecError, nearest_divisors};

use super::configuration::{Configuration, Cut, Strategy};
use super::layers::Block;
use super::price::Price;
use super::shape::Shape;
use super::sizes::check_size;
use super::system::{Group, System};

/// Sequences of a step in all of the paper's studies (section III-B).
pub const PUBLISHED_BATCH: u64 = 4096;
/// Tokens that its language models are trained on (section III-B).
const TOKENS: f64 = 1e12;
/// Samples that its weather model is trained on: 80 epochs of 40 years, one an hour (section III-B).
const WEATHER_SAMPLES: f64 = 80.0 * 40.0 * 365.25 * 24.0;

/// The smallest share of the embedding, or of the sequence, that a device may have.
const LEAST_SHARE: u64 = 128;
/// The smallest panel of a SUMMA product, where there is a choice.
const LEAST_PANEL: u64 = 512;

/// Steps of the paper's training: samples of its weather model if the model has patches, else tokens.
pub fn training_steps(model: &Model, global_batch: u64) -> f64 {
    let samples = if model.patch_values.is_some() { WEATHER_SAMPLES } else { TOKENS / model.seq_len as f64 };
    samples / global_batch as f64
}

/// What is searched.
#[derive(Debug, Clone, PartialEq)]
pub struct Search {
    shape: Shape,
    system: System,
    strategy: Strategy,
    devices: u64,
    global_batch: u64,
}

/// A configuration and its price; ordered by time, then by [`Configuration::numbers`].
#[derive(Debug, Clone, Copy)]
pub struct Ranked {
    /// The configuration.
    pub configuration: Configuration,
    /// Its price.
    pub price: Price,
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        let numbers = |ranked: &Self| ranked.configuration.numbers();
        self.price.seconds.total_cmp(&other.price.seconds).then_with(|| numbers(self).cmp(&numbers(other)))
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ranked {}

/// The result of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// How many configurations there are.
    pub candidates: u64,
    /// How many of them fit into a device's memory.
    pub feasible: u64,
    /// Bytes of a device in the configuration that needs the fewest, whether or not they fit.
    pub least_memory_bytes: Option<f64>,
    /// The fastest that fit, fastest first.
    pub ranked: Vec<Ranked>,
}

impl Search {
    /// All configurations of `strategy` for a model on `devices` devices of a system, with a step of `global_batch`
    /// sequences.
    ///
    /// # Errors
    /// No device or sequence, or more than 2^24.
    pub fn new(
        shape: Shape,
        system: System,
        strategy: Strategy,
        devices: u64,
        global_batch: u64,
    ) -> Result<Self, SpecError> {
        check_size("devices", devices)?;
        check_size("global_batch", global_batch)?;
        Ok(Self { shape, system, strategy, devices, global_batch })
    }

    /// What is trained.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// On what.
    pub fn system(&self) -> &System {
        &self.system
    }

    /// How blocks are cut.
    pub fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// Devices of the configurations.
    pub fn devices(&self) -> u64 {
        self.devices
    }

    /// Sequences of a step.
    pub fn global_batch(&self) -> u64 {
        self.global_batch
    }

    /// How many configurations there are, without pricing them.
    pub fn candidates(&self) -> u64 {
        let mut count = 0;
        self.for_each_cut(|_, outer| count += outer.len() as u64);
        count
    }

    /// Why there is no configuration, where there is none, and what would help.
    pub fn without_candidates(&self) -> String {
        let Self { shape, system, strategy, devices, global_batch } = self;
        let domain = system.fast_domain;
        let said = format!(
            "`search.devices` {devices} `search.fast_domain` {domain} `layout.global_batch` {global_batch}: strategy {} has no \
             configuration",
            strategy.name()
        );
        if *devices > domain && devices % domain != 0 {
            let near: Vec<_> =
                nearest_divisors(*devices as usize, domain as usize).iter().map(usize::to_string).collect();
            let near = near.join(" or ");
            return format!("{said}, since fast domains are used completely; use `search.fast_domain` {near}");
        }
        format!(
            "{said}: dp * tp1 * tp2 * pp = {devices}, where dp divides the batch, tp1 the {} heads and {} embedding, pp the {} \
             layers; use a number of GPUs with smaller factors, or another batch",
            shape.heads, shape.embed, shape.depth
        )
    }

    /// Prices every configuration and ranks the `top` fastest that fit.
    pub fn run(&self, top: usize) -> Found {
        let mut candidates = 0;
        let mut feasible = 0;
        let mut least = f64::INFINITY;
        let mut fastest = Fastest { top, heap: BinaryHeap::new() };
        self.for_each(|priced| {
            candidates += 1;
            least = least.min(priced.price.memory_bytes());
            if priced.price.fits(&self.system) {
                feasible += 1;
                fastest.offer(priced);
            }
        });
        let least_memory_bytes = (candidates > 0).then_some(least);
        Found { candidates, feasible, least_memory_bytes, ranked: fastest.heap.into_sorted_vec() }
    }

    /// Prices every configuration, whether or not it fits.
    pub fn for_each(&self, mut visit: impl FnMut(Ranked)) {
        self.for_each_cut(|cut, outer| {
            let block = Block::new(&self.shape, &self.system, &cut);
            for Outer { data, pipe } in outer {
                let configuration = Configuration { cut, data: *data, pipe: *pipe };
                let price = block.step(&self.shape, &self.system, &configuration, self.global_batch);
                visit(Ranked { configuration, price });
            }
        });
    }

    /// Visits every cut with all sizes of data and pipeline that go with it, of which there is at least one
    /// (specification, section 9).
    fn for_each_cut(&self, mut visit: impl FnMut(Cut, &[Outer])) {
        let microbatches = divisors(self.global_batch);
        let mut placed = Vec::new();
        let mut outer = Vec::new();
        for (m1, m2) in self.tensor_sizes() {
            let pipelines = self.pipelines(m1 * m2);
            let panels = self.panels(m1.max(m2));
            let shards = match self.strategy {
                Strategy::OneD => m1,
                Strategy::TwoD => m1 * m2,
                Strategy::Summa => m2,
            };
            for [hidden, sequence] in self.placements(m1, m2) {
                placed.clear();
                pipelines.iter().for_each(|sizes| self.place(*sizes, hidden.fast * sequence.fast, &mut placed));
                for &microbatch in microbatches.iter().filter(|b| (*b * self.shape.seq).is_multiple_of(shards)) {
                    let whole = |outer: &&Outer| (self.global_batch / outer.data.size).is_multiple_of(microbatch);
                    outer.clear();
                    outer.extend(placed.iter().filter(whole));
                    if outer.is_empty() {
                        continue;
                    }
                    for &panels in &panels {
                        visit(Cut { strategy: self.strategy, hidden, sequence, microbatch, panels }, &outer);
                    }
                }
            }
        }
    }

    /// Sizes of the two tensor-parallel groups (9.3).
    fn tensor_sizes(&self) -> Vec<(u64, u64)> {
        let Self { shape: Shape { seq, embed, heads, .. }, devices, strategy, .. } = *self;
        let wide = |m1: u64| match strategy {
            Strategy::OneD => 3 * embed / m1 >= LEAST_SHARE,
            Strategy::TwoD | Strategy::Summa => embed / m1 >= LEAST_SHARE,
        };
        let mut sizes = Vec::new();
        let cuts_hidden = |m1: &u64| heads.is_multiple_of(*m1) && embed.is_multiple_of(*m1) && wide(*m1);
        for m1 in divisors(devices).into_iter().filter(cuts_hidden) {
            match strategy {
                Strategy::OneD => sizes.push((m1, 1)),
                Strategy::TwoD | Strategy::Summa => {
                    let divides = |m2: u64| strategy == Strategy::TwoD || embed.is_multiple_of(m2);
                    let cuts_sequence = |m2: &u64| divides(*m2) && seq / m2 >= LEAST_SHARE;
                    sizes.extend(divisors(devices / m1).into_iter().filter(cuts_sequence).map(|m2| (m1, m2)));
                }
            }
        }
        sizes
    }

    /// Sizes of data and pipeline beside a tensor-parallel size (9.1).
    fn pipelines(&self, tensor: u64) -> Vec<(u64, u64)> {
        let rest = self.devices / tensor;
        let stages = divisors(self.shape.depth).into_iter().filter(|p| rest.is_multiple_of(*p));
        stages.map(|p| (rest / p, p)).filter(|(d, _)| self.global_batch.is_multiple_of(*d)).collect()
    }

    /// Panels of SUMMA's products for the larger tensor-parallel size (9.4): it, doubled as often as panels stay wide.
    fn panels(&self, least: u64) -> Vec<u64> {
        let embed = self.shape.embed;
        if self.strategy != Strategy::Summa {
            return vec![0];
        }
        if embed < LEAST_PANEL * least {
            return vec![least];
        }
        let doublings = (embed / least).next_power_of_two().trailing_zeros();
        let wide = |panels: &u64| embed.is_multiple_of(*panels) && embed / panels >= LEAST_PANEL;
        (0..doublings).map(|doubling| least << doubling).filter(wide).collect()
    }

    /// How many members of the tensor-parallel groups share a fast domain, as far as that is possible whatever the
    /// other groups do (9.5): all, if one domain holds all devices; else groups share a domain completely.
    fn placements(&self, m1: u64, m2: u64) -> Vec<[Group; 2]> {
        let domain = self.system.fast_domain;
        if self.devices <= domain {
            return vec![[whole(m1), whole(m2)]];
        }
        let fast = |size: u64, free: u64| divisors(greatest_common_divisor(size, free));
        let mut placements = Vec::new();
        for g1 in fast(m1, domain) {
            let pairs = fast(m2, domain / g1).into_iter();
            placements.extend(pairs.map(|g2| [Group { size: m1, fast: g1 }, Group { size: m2, fast: g2 }]));
        }
        placements
    }

    /// Adds every placement of data and pipeline beside `tensor` members of the tensor-parallel groups in a domain.
    fn place(&self, (d, p): (u64, u64), tensor: u64, placed: &mut Vec<Outer>) {
        let domain = self.system.fast_domain;
        if self.devices <= domain {
            placed.push(Outer { data: whole(d), pipe: whole(p) });
            return;
        }
        let free = domain / tensor;
        // The stages get what data leaves of the domain.
        for gp in (1..=p.min(free)).filter(|gp| p.is_multiple_of(*gp) && free.is_multiple_of(*gp)) {
            let gd = free / gp;
            if d.is_multiple_of(gd) {
                placed.push(Outer { data: Group { size: d, fast: gd }, pipe: Group { size: p, fast: gp } });
            }
        }
    }
}

/// The part of a configuration that a block does not depend on.
#[derive(Debug, Clone, Copy)]
struct Outer {
    data: Group,
    pipe: Group,
}

/// The least of what was offered.
struct Fastest {
    top: usize,
    heap: BinaryHeap<Ranked>,
}

impl Fastest {
    fn offer(&mut self, candidate: Ranked) {
        if self.heap.len() < self.top {
            self.heap.push(candidate);
        } else if let Some(mut slowest) = self.heap.peek_mut()
            && candidate < *slowest
        {
            *slowest = candidate;
        }
    }
}

/// A group that lies in one fast domain.
fn whole(size: u64) -> Group {
    Group { size, fast: size }
}

/// All divisors, ascending.
fn divisors(number: u64) -> Vec<u64> {
    let small: Vec<u64> = (1..=number.isqrt()).filter(|divisor| number.is_multiple_of(*divisor)).collect();
    let large = small.iter().rev().map(|divisor| number / divisor).filter(|large| large * large > number);
    small.iter().copied().chain(large).collect()
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divisors_are_complete_and_ascending() {
        for (number, expected) in [(1, vec![1]), (12, vec![1, 2, 3, 4, 6, 12]), (49, vec![1, 7, 49])] {
            assert_eq!(divisors(number), expected);
        }
    }
}
