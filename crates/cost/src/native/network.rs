//! Collectives and messages over the tiers of networks that a group of ranks spans.
//!
//! `n` members lie in domains; of tier `t`, `M_t` of them share a domain, and `u_t` ranks of the layout do. All groups of
//! an axis communicate at once, so a domain's links are shared by the groups that have members in it: a group gets
//! `M_(t-1) / u_(t-1)` of the links of a domain of the tier below (AxoNN SC24, equation 7, for several tiers); a device
//! has its links of the innermost tier for itself.
//!
//! An all-gather or reduce-scatter of `V` bytes takes the shorter of
//! - a ring in the order of domains: `sum of the hops' latencies + r(n) V / (slowest share)`;
//! - one after the other over the tiers, outermost first, by recursive doubling (PCCL, dissertation chapter 6):
//!   `sum over tiers of ceil(log2 f_t) latency_t + r(f_t) V / share_t`, with `f_t = M_t / M_(t-1)`: the members of a domain
//!   bring different parts of the buffer over the tier at once,
//!
//! with `r(n) = (n-1)/n`; an all-reduce takes twice that. An all-to-all sends every other member its part: over the innermost
//! tier what stays there, `(M_0 - 1)/n V`, and over each other tier what goes to members beyond the domain of the tier below,
//! `(n - M_(t-1))/n V` of every rank that shares its links. Of this, all tiers at once, with a message to every member, and of
//! two levels it takes the shorter: first inside the innermost tier, `(M_0 - 1)/M_0 V`, what mates send on for each other, then
//! over the other tiers with a message to every domain. A broadcast or reduction is a pipelined chain over a tree: the
//! latencies of the second and `V` through the slowest share. A link reaches `efficiency * V / (V + half_bytes)` of its
//! bandwidth.

use quadrille_spec::{Axis, AxisSet, CollectiveKind, SpecError, Tier};

use super::Candidate;
use super::candidate::common_divisor;

/// Most tiers.
pub(super) const MOST_TIERS: usize = 5;

/// The tiers of a cluster as formulas need them.
#[derive(Debug, Clone)]
pub(super) struct Network {
    tiers: Vec<TierRates>,
}

#[derive(Debug, Clone, Copy)]
struct TierRates {
    /// Devices of a domain.
    devices: usize,
    /// Bytes per second by which a domain of the tier below joins this tier, as far as large messages reach it.
    bandwidth: f64,
    latency: f64,
    half_bytes: f64,
}

impl Network {
    /// # Errors
    /// More tiers than [`MOST_TIERS`].
    pub fn new(tiers: &[Tier]) -> Result<Self, SpecError> {
        if tiers.len() > MOST_TIERS {
            let rule = format!("the native model has at most {MOST_TIERS} tiers");
            return Err(SpecError::invalid("tiers", tiers.len(), rule, "join neighbouring tiers"));
        }
        let rates = |tier: &Tier| TierRates {
            devices: tier.devices.unwrap_or(usize::MAX),
            bandwidth: tier.links as f64 * tier.bandwidth * tier.efficiency,
            latency: tier.latency,
            half_bytes: tier.half_bytes,
        };
        Ok(Self { tiers: tiers.iter().map(rates).collect() })
    }

    /// Devices that the outermost tier joins.
    pub fn devices(&self) -> usize {
        self.tiers.last().map_or(0, |tier| tier.devices)
    }
}

/// Where the ranks of a candidate lie.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placement {
    tiers: usize,
    /// By tier and axis: neighbours along it that share a domain.
    inside: [[usize; Axis::COUNT]; MOST_TIERS],
    /// By tier: ranks that share a domain.
    used: [usize; MOST_TIERS],
}

impl Placement {
    /// The candidate says what lies inside the innermost domains; those are put into the domains of the next tiers in the
    /// order of the axes.
    pub fn of(network: &Network, c: &Candidate) -> Self {
        Self::over(network, c.sizes, c.inside)
    }

    /// The same from the sizes of the axes and what lies inside the innermost domains.
    pub fn over(network: &Network, sizes: [usize; Axis::COUNT], inside: [usize; Axis::COUNT]) -> Self {
        let tiers = network.tiers.len();
        let mut placement = Self { tiers, inside: [inside; MOST_TIERS], used: [inside.iter().product(); MOST_TIERS] };
        for tier in 0..tiers {
            let mut inside = placement.inside[tier.saturating_sub(1)];
            if tier + 1 == tiers {
                inside = sizes;
            } else if tier > 0 {
                let mut left = network.tiers[tier].devices / network.tiers[tier - 1].devices;
                for (inside, size) in inside.iter_mut().zip(sizes) {
                    let more = common_divisor(size / *inside, left);
                    *inside *= more;
                    left /= more;
                }
            }
            placement.inside[tier] = inside;
            placement.used[tier] = inside.iter().product();
        }
        placement
    }

    /// By tier, innermost first: ranks that share a domain.
    pub fn ranks_by_tier(&self) -> &[usize] {
        &self.used[..self.tiers]
    }
}

/// How long collectives of a group take.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Link {
    /// Members of the group.
    members: usize,
    /// Seconds of a ring before its first byte has gone round.
    ring_latency: f64,
    /// By tier that the group spans: seconds of a ring per byte, and its seconds whatever the bytes.
    flows: [(f64, f64); MOST_TIERS],
    tiers: usize,
    /// Latencies of an all-to-all's messages.
    exchange_latency: f64,
    /// As `flows`, of an all-to-all.
    exchanges: [(f64, f64); MOST_TIERS],
    /// Of a group that spans the innermost tier and others: latencies of the messages of a two-level all-to-all, and as `flows`
    /// its phase inside. That between takes what `exchanges` says of the other tiers.
    two_levels: Option<(f64, (f64, f64))>,
    /// Seconds before the first byte of a message arrives on the outermost tier.
    message_latency: f64,
    /// Latencies of trees.
    tree_latency: f64,
    /// Seconds per byte, and whatever the bytes, of the way over the tiers one after the other.
    tree: (f64, f64),
}

impl Link {
    /// The links of a group over `axes`.
    pub fn new(network: &Network, placement: &Placement, c: &Candidate, axes: AxisSet) -> Self {
        Self::over(network, placement, &c.sizes, axes)
    }

    /// The same from the sizes of the axes.
    pub fn over(network: &Network, placement: &Placement, sizes: &[usize; Axis::COUNT], axes: AxisSet) -> Self {
        let of = |sizes: &[usize; Axis::COUNT]| -> usize { axes.iter().map(|axis| sizes[axis as usize]).product() };
        let members = of(sizes);
        let mut link = Self { members, ..Self::default() };
        if members == 1 {
            return link;
        }
        let sent = 1.0 - 1.0 / members as f64;
        let mut below = 1;
        let mut used = 1;
        for tier in 0..placement.tiers {
            let here = of(&placement.inside[tier]);
            if here > below {
                let rates = &network.tiers[tier];
                let seconds = used as f64 / (below as f64 * rates.bandwidth);
                link.flows[link.tiers] = (sent * seconds, sent * rates.half_bytes * seconds);
                let reached = if tier == 0 { here } else { members };
                let beyond = used as f64 / rates.bandwidth * ((reached - below) as f64 / members as f64);
                link.exchanges[link.tiers] = (beyond, beyond * rates.half_bytes);
                link.exchange_latency += (here - below) as f64 * rates.latency;
                if tier == 0 && here < members {
                    let inside = (1.0 - 1.0 / here as f64) / rates.bandwidth;
                    link.two_levels = Some(((here - 1) as f64 * rates.latency, (inside, inside * rates.half_bytes)));
                } else if let Some((latency, _)) = &mut link.two_levels {
                    let innermost = of(&placement.inside[0]);
                    *latency += (here / innermost - below / innermost) as f64 * rates.latency;
                }
                link.tiers += 1;
                let fan = here as f64 / below as f64;
                let share = (1.0 - 1.0 / fan) * seconds;
                let rounds = (here / below).next_power_of_two().trailing_zeros() as f64;
                link.ring_latency += (members / below - members / here) as f64 * rates.latency;
                link.tree_latency += rounds * rates.latency;
                link.message_latency = rates.latency;
                link.tree.0 += share;
                link.tree.1 += share * rates.half_bytes;
            }
            (below, used) = (here, placement.used[tier]);
        }
        link
    }

    /// Seconds of a collective whose whole buffer has so many bytes, from when all members have begun it.
    pub fn seconds(&self, kind: CollectiveKind, bytes: f64) -> f64 {
        if self.members == 1 {
            return 0.0;
        }
        let slowest =
            |flows: &[(f64, f64)]| flows.iter().map(|(slope, fixed)| fixed + slope * bytes).fold(0.0, f64::max);
        if kind == CollectiveKind::AllToAll {
            let pairwise = self.exchange_latency + slowest(&self.exchanges[..self.tiers]);
            return self.two_levels.map_or(pairwise, |(latency, (slope, fixed))| {
                let between = slowest(&self.exchanges[1..self.tiers]);
                pairwise.min(latency + fixed + slope * bytes + between)
            });
        }
        let flow = slowest(&self.flows[..self.tiers]);
        let ring = self.ring_latency + flow;
        let passes = match kind {
            CollectiveKind::AllReduce => 2.0,
            CollectiveKind::Broadcast | CollectiveKind::Reduce => {
                return self.tree_latency + flow / (1.0 - 1.0 / self.members as f64);
            }
            _ => 1.0,
        };
        passes * ring.min(self.tree_latency + self.tree.1 + self.tree.0 * bytes)
    }

    /// Seconds that a buffer takes which is part of `all` that the members have, each of whom sends what it owns to the others in
    /// turn: broadcasts along a ring, which is what NCCL has for them, of `all` over as many as there are members, or of one buffer
    /// where that is larger.
    pub fn relayed_seconds(&self, bytes: f64, all: f64) -> f64 {
        if self.members == 1 {
            return 0.0;
        }
        let members = self.members as f64;
        let flow = self.flows[..self.tiers].iter().map(|(slope, fixed)| (slope * bytes, *fixed));
        let part = (bytes * members / all).min(1.0);
        let flow = flow.map(|(slope, fixed)| part * fixed + slope).fold(0.0, f64::max);
        part * self.ring_latency + flow / (1.0 - 1.0 / members)
    }

    /// Seconds in which the first and the last stage sum a buffer: each half by one of them.
    pub fn exchange_seconds(&self, bytes: f64) -> f64 {
        2.0 * self.message_seconds(bytes / 2.0)
    }

    /// Seconds of a message of so many bytes, while all ranks of a stage send theirs: over the outermost tier that the
    /// pipeline spans.
    pub fn message_seconds(&self, bytes: f64) -> f64 {
        let Some(tier) = self.tiers.checked_sub(1) else { return 0.0 };
        let (slope, fixed) = self.flows[tier];
        self.message_latency + (fixed + slope * bytes) / (1.0 - 1.0 / self.members as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::candidate::tests::candidate;

    fn tier(devices: Option<usize>, links: usize, bandwidth: f64, latency: f64) -> Tier {
        let name = "t".to_owned();
        let origins = quadrille_spec::Origins::default();
        Tier { name, devices, links, bandwidth, efficiency: 0.5, latency, half_bytes: 0.0, origins }
    }

    fn link(tiers: &[Tier], grid: &str, inside: [usize; Axis::COUNT], axes: &[Axis]) -> Link {
        let network = Network::new(tiers).unwrap();
        let c = Candidate { inside, ..candidate(grid, "x,y,z,data") };
        Link::new(&network, &Placement::of(&network, &c), &c, axes.iter().copied().collect())
    }

    /// Four members own a part each: four broadcasts, which take a ring's latency and the whole buffer's time; of one buffer that
    /// is as large as two parts there are no more than two.
    #[test]
    fn owners_send_one_after_the_other() {
        let x = link(&two_tiers(1e-6), "x=4,data=2", [4, 1, 1, 1, 1, 1, 1], &[Axis::X]);
        let close = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-12, "{a} is not {b}");
        close(x.relayed_seconds(4e9, 16e9), 3e-6 + 4e9 / 50e9);
        close((0..16).map(|_| x.relayed_seconds(1e9, 16e9)).sum(), 4.0 * 3e-6 + 16e9 / 50e9);
        close(x.relayed_seconds(8e9, 16e9), 3e-6 + 8e9 / 50e9);
        // Dearer than a gather, which has the members send at once.
        assert!(x.relayed_seconds(16e9, 16e9) > x.seconds(CollectiveKind::AllGather, 16e9));
    }

    /// Nodes of 4 with 100 GB/s a device and two network links of 10 GB/s, of which half is reached.
    fn two_tiers(latency: f64) -> [Tier; 2] {
        [tier(Some(4), 1, 100e9, latency), tier(None, 2, 10e9, 10.0 * latency)]
    }

    #[test]
    fn inside_a_domain_a_ring_has_a_devices_bandwidth() {
        let x = link(&two_tiers(0.0), "x=4,data=2", [4, 1, 1, 1, 1, 1, 1], &[Axis::X]);
        assert_eq!(x.seconds(CollectiveKind::AllGather, 4e9), 0.75 * 4e9 / 50e9);
        assert_eq!(x.seconds(CollectiveKind::AllReduce, 4e9), 1.5 * 4e9 / 50e9);
        assert_eq!(x.seconds(CollectiveKind::Broadcast, 4e9), 4e9 / 50e9);
    }

    #[test]
    fn groups_share_the_links_of_their_domain_as_in_equation_7() {
        // Four groups of data, each with one member in every node: a quarter of the links.
        let data = link(&two_tiers(0.0), "x=4,data=2", [4, 1, 1, 1, 1, 1, 1], &[Axis::Data]);
        assert_eq!(data.seconds(CollectiveKind::AllGather, 4e9), 0.5 * 4e9 / (10e9 / 4.0));
        // Two groups with two members each: half of them, in a ring of 4; a node's two members together have the same.
        let data = link(&two_tiers(0.0), "x=2,data=4", [2, 1, 1, 1, 1, 2, 1], &[Axis::Data]);
        let ring = 0.75 * 4e9 / 5e9;
        let tree: f64 = 0.5 * 4e9 / 5e9 + 0.5 * 4e9 / 50e9;
        assert!((data.seconds(CollectiveKind::AllGather, 4e9) - tree.min(ring)).abs() < 1e-12);
    }

    #[test]
    fn an_all_to_all_sends_over_a_tier_what_goes_beyond_the_domains_below() {
        let data = link(&two_tiers(0.0), "data=8", [1, 1, 1, 1, 1, 4, 1], &[Axis::Data]);
        // Half of what each of the 4 devices of a node has goes to the other node.
        assert!((data.seconds(CollectiveKind::AllToAll, 1e9) - 4.0 * 0.5e9 / 10e9).abs() < 1e-12);
        let inside = link(&two_tiers(1e-6), "x=4,data=2", [4, 1, 1, 1, 1, 1, 1], &[Axis::X]);
        assert!((inside.seconds(CollectiveKind::AllToAll, 1e9) - (3e-6 + 0.75e9 / 50e9)).abs() < 1e-12);
        let latencies = link(&two_tiers(1e-6), "data=8", [1, 1, 1, 1, 1, 4, 1], &[Axis::Data]);
        let large: f64 = 3e-6 + 4.0 * 10e-6 + 4.0 * 0.5e9 / 10e9;
        assert!((latencies.seconds(CollectiveKind::AllToAll, 1e9) - large).abs() < 1e-12);
    }

    #[test]
    fn a_small_all_to_all_takes_two_levels_with_a_message_to_each_node() {
        let data = link(&two_tiers(1e-6), "data=16", [1, 1, 1, 1, 1, 4, 1], &[Axis::Data]);
        // Inside, three mates and three quarters of the buffer; then three other nodes and three quarters of what four have.
        let seconds = |bytes: f64| 3e-6 + 0.75 * bytes / 50e9 + 3.0 * 10e-6 + 4.0 * 0.75 * bytes / 10e9;
        for bytes in [0.0, 1e5] {
            assert!((data.seconds(CollectiveKind::AllToAll, bytes) - seconds(bytes)).abs() < 1e-15);
        }
        // With one member on a node there is but one level.
        let apart = link(&two_tiers(1e-6), "x=4,data=2", [4, 1, 1, 1, 1, 1, 1], &[Axis::Data]);
        assert!((apart.seconds(CollectiveKind::AllToAll, 0.0) - 10e-6).abs() < 1e-15);
        // Racks of 2 nodes of 2, two of them: between nodes 1 message in the rack, 2 to the other.
        let tiers = [tier(Some(2), 1, 100e9, 1e-6), tier(Some(4), 1, 40e9, 1e-5), tier(None, 1, 8e9, 1e-4)];
        let racks = link(&tiers, "data=8", [1, 1, 1, 1, 1, 2, 1], &[Axis::Data]);
        assert!((racks.seconds(CollectiveKind::AllToAll, 0.0) - (1e-6 + 1e-5 + 2e-4)).abs() < 1e-15);
    }

    #[test]
    fn latencies_are_those_of_the_hops_or_of_the_rounds() {
        // A ring of 8 in two nodes: 6 hops inside, 1 between; by doubling 2 rounds inside, 1 between.
        let data = link(&two_tiers(1e-6), "data=8", [1, 1, 1, 1, 1, 4, 1], &[Axis::Data]);
        assert!((data.ring_latency - 16e-6).abs() < 1e-15);
        assert!((data.seconds(CollectiveKind::AllGather, 0.0) - 12e-6).abs() < 1e-15);
    }

    #[test]
    fn three_tiers_share_the_outermost_links_of_whole_racks() {
        let tiers = [tier(Some(2), 1, 100e9, 0.0), tier(Some(4), 1, 40e9, 0.0), tier(None, 1, 8e9, 0.0)];
        // x fills nodes of 2, data 2 nodes of a rack and 2 racks: two groups share the 20 GB/s of a node and the 4 GB/s of a rack.
        let data = link(&tiers, "x=2,data=4", [2, 1, 1, 1, 1, 1, 1], &[Axis::Data]);
        let rack: f64 = 1.0 / 10e9;
        let outer: f64 = 1.0 / 2e9;
        let expected = (0.75 * rack.max(outer)).min(0.5 * rack + 0.5 * outer);
        assert!((data.seconds(CollectiveKind::AllGather, 1.0) - expected).abs() < 1e-22);
    }

    #[test]
    fn a_single_network_joins_all_devices_wherever_they_lie() {
        let tiers = [tier(Some(8), 1, 100e9, 0.0)];
        let data = link(&tiers, "data=8", [1; Axis::COUNT], &[Axis::Data]);
        assert!((data.seconds(CollectiveKind::AllGather, 8e9) - 0.875 * 8e9 / 50e9).abs() < 1e-12);
        assert_eq!(Network::new(&tiers).unwrap().devices(), 8);
    }

    #[test]
    fn small_messages_reach_less() {
        let mut tiers = two_tiers(0.0);
        tiers[0].half_bytes = 1e6;
        let x = link(&tiers, "x=4", [4, 1, 1, 1, 1, 1, 1], &[Axis::X]);
        assert!((x.seconds(CollectiveKind::AllGather, 1e6) - 2.0 * 0.75 * 1e6 / 50e9).abs() < 1e-15);
        let pipe = link(&tiers, "pipe=4", [1, 1, 1, 1, 1, 1, 4], &[Axis::Pipe]);
        assert!((pipe.message_seconds(1e6) - 2e6 / 50e9).abs() < 1e-15);
    }
}
