//! What an algorithm takes on two tiers, for the choice between algorithms.
//!
//! `V` bytes of the full buffer, `G` members on `N` nodes, `M` on each; `U` ranks of the job on a node. A rank joins the
//! innermost tier by `b0` bytes per second and latency `l0`, a node the outermost by `b1` and `l1`, of which a group gets
//! `M / U`: all groups of an axis communicate at once (AxoNN SC24, equation 7).
//!
//! | | all-gather, reduce-scatter (all-reduce: twice) | broadcast, reduce |
//! |---|---|---|
//! | ring | `(G - N) l0 + (N - 1) l1 + (G - 1)/G V / min(b0, b1 M/U)` | the same with `V` |
//! | recursive | sum over rounds of `l + max(c V/G / b0, min(d, M) c V/G / (b1 M/U))`, distance `d = 2^k`, `c = min(d, G - d)` | sum over rounds of `l + max(V / b0, min(d, M) V / (b1 M/U))` |
//! | hierarchical | recursive over `N` nodes, `log2 N l1 + (N - 1)/N V / (b1 M/U)`, and a ring inside, `(M - 1) l0 + (M - 1)/M V / b0` | both trees |
//!
//! An all-to-all is pairwise, `(M - 1) l0 + (G - M) l1 + max((M - 1)/G V / b0, (N - 1)/N M V / (b1 M/U))`; by `hierarchical`
//! inside nodes and then between them: `(M - 1) l0 + (M - 1)/M V / b0 + (N - 1) l1 + (N - 1)/N M V / (b1 M/U)`.
//!
//! A link carries `V` at `V / (V + half_bytes)` of its rate. Members are taken to lie node by node.

use crate::{Algorithm, CollectiveKind, Formation, Tier};

/// A group and the links that it gets.
struct Links {
    members: f64,
    nodes: f64,
    per_node: f64,
    /// Seconds per byte and seconds of latency.
    inner: (f64, f64),
    outer: (f64, f64),
}

impl Formation {
    /// Seconds of a collective with a full buffer of `bytes` by this algorithm; `tiers` innermost first. What has no algorithm
    /// counts as an all-gather.
    pub fn seconds(&self, tiers: &[Tier], algorithm: Algorithm, kind: CollectiveKind, bytes: f64) -> f64 {
        if self.members <= 1 {
            return 0.0;
        }
        let links = Links::new(self, tiers, bytes);
        let rooted = matches!(kind, CollectiveKind::Broadcast | CollectiveKind::Reduce);
        let once = match algorithm {
            _ if kind == CollectiveKind::AllToAll => links.all_to_all(bytes, algorithm == Algorithm::Hierarchical),
            Algorithm::Recursive => links.recursive(bytes, rooted),
            Algorithm::Hierarchical => links.hierarchical(bytes, rooted),
            Algorithm::Ring | Algorithm::Native => links.ring(bytes, rooted),
        };
        if kind == CollectiveKind::AllReduce { 2.0 * once } else { once }
    }
}

impl Links {
    fn new(formation: &Formation, tiers: &[Tier], bytes: f64) -> Self {
        let rate = |tier: Option<&Tier>, sharing: f64| {
            tier.map_or((0.0, 0.0), |tier| {
                let slowed = (bytes + tier.half_bytes) / bytes.max(1.0);
                (sharing * slowed / (tier.links as f64 * tier.bandwidth * tier.efficiency), tier.latency)
            })
        };
        let members = formation.members as f64;
        let nodes = formation.nodes as f64;
        Self {
            members,
            nodes,
            per_node: members / nodes,
            inner: rate(tiers.first(), 1.0),
            outer: if nodes > 1.0 { rate(tiers.last(), formation.sharing) } else { (0.0, 0.0) },
        }
    }

    /// The part of the buffer that leaves a rank of a group of `members`.
    fn part(members: f64, rooted: bool) -> f64 {
        if rooted { 1.0 } else { (members - 1.0) / members }
    }

    fn ring(&self, bytes: f64, rooted: bool) -> f64 {
        let latency = (self.members - self.nodes) * self.inner.1 + (self.nodes - 1.0) * self.outer.1;
        let inner = if self.per_node > 1.0 { self.inner.0 } else { 0.0 };
        latency + Self::part(self.members, rooted) * bytes * inner.max(self.outer.0)
    }

    fn recursive(&self, bytes: f64, rooted: bool) -> f64 {
        let mut seconds = 0.0;
        let mut distance = 1.0;
        while distance < self.members {
            let share = if rooted { bytes } else { distance.min(self.members - distance) * bytes / self.members };
            let inside = self.nodes == 1.0;
            let crossing = distance.min(self.per_node);
            let outer = if inside { 0.0 } else { crossing * share * self.outer.0 };
            let inner = if self.per_node > 1.0 { share * self.inner.0 } else { 0.0 };
            seconds += if inside { self.inner.1 } else { self.outer.1 } + inner.max(outer);
            distance *= 2.0;
        }
        seconds
    }

    /// Every rank of a node sends over its link what goes to other nodes; links of two levels are used one after the other.
    fn all_to_all(&self, bytes: f64, two_levels: bool) -> f64 {
        let mates = self.per_node - 1.0;
        let others = self.nodes - 1.0;
        let outer = others / self.nodes * self.per_node * bytes * self.outer.0;
        if two_levels {
            let inner = mates / self.per_node * bytes * self.inner.0;
            return mates * self.inner.1 + inner + others * self.outer.1 + outer;
        }
        let inner = mates / self.members * bytes * self.inner.0;
        mates * self.inner.1 + (self.members - self.per_node) * self.outer.1 + inner.max(outer)
    }

    fn hierarchical(&self, bytes: f64, rooted: bool) -> f64 {
        let rounds = |members: f64| members.log2().ceil();
        let volume = |members: f64| if rooted { rounds(members) } else { Self::part(members, false) };
        let outer = rounds(self.nodes) * self.outer.1 + volume(self.nodes) * bytes * self.outer.0;
        let hops = if rooted { rounds(self.per_node) } else { self.per_node - 1.0 };
        outer + hops * self.inner.1 + volume(self.per_node) * bytes * self.inner.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Choice, Nodes, Routing};

    fn tier(devices: Option<usize>, bandwidth: f64, latency: f64) -> Tier {
        let links = 1;
        let efficiency = 1.0;
        let origins = crate::Origins::default();
        Tier { name: "t".into(), devices, links, bandwidth, efficiency, latency, half_bytes: 0.0, origins }
    }

    fn routing() -> (Routing, Vec<Tier>) {
        let tiers = vec![tier(Some(4), 1e9, 1e-6), tier(None, 1e8, 1e-4)];
        (Routing { nodes: Nodes::equal(16, 4), choice: Choice::Fastest(tiers.clone()), grid: None }, tiers)
    }

    #[test]
    fn formulas_by_hand() {
        let (routing, tiers) = routing();
        let world: Vec<usize> = (0..16).collect();
        let seconds = |algorithm| routing.formation(&world).seconds(&tiers, algorithm, CollectiveKind::AllGather, 16e6);
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} {b}");
        near(seconds(Algorithm::Ring), 12e-6 + 3e-4 + 15e6 / 1e8);
        // Nodes send 12 MB over their links, ranks then 12 MB inside.
        near(seconds(Algorithm::Hierarchical), 2e-4 + 12e6 / 1e8 + 3e-6 + 12e6 / 1e9);
        // Rounds of 1, 2, 4 and 8 parts; 1, 2, 4 and 4 of a node's ranks send out of it.
        near(seconds(Algorithm::Recursive), 4e-4 + (1.0 + 4.0 + 16.0 + 32.0) * 1e6 / 1e8);
        // One rank of each node: it gets a quarter of its node's link.
        let one_each = [0, 4, 8, 12];
        let ring = routing.formation(&one_each).seconds(&tiers, Algorithm::Ring, CollectiveKind::AllReduce, 4e6);
        near(ring, 2.0 * (3e-4 + 3e6 / (1e8 / 4.0)));
    }

    #[test]
    fn an_all_to_all_sends_what_leaves_the_node_over_its_link() {
        let (routing, tiers) = routing();
        let world: Vec<usize> = (0..16).collect();
        let seconds = |algorithm| routing.formation(&world).seconds(&tiers, algorithm, CollectiveKind::AllToAll, 16e6);
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} {b}");
        // Each of a node's four ranks has 12 MB for other nodes; 12 messages, or 3.
        for algorithm in [Algorithm::Ring, Algorithm::Recursive] {
            near(seconds(algorithm), 3e-6 + 12e-4 + 48e6 / 1e8);
        }
        near(seconds(Algorithm::Hierarchical), 3e-6 + 12e6 / 1e9 + 3e-4 + 48e6 / 1e8);
        let route = |bytes| routing.route(CollectiveKind::AllToAll, bytes, &routing.formation(&world)).algorithm();
        assert_eq!((route(1 << 10), route(64 << 20)), (Algorithm::Hierarchical, Algorithm::Ring));
    }

    #[test]
    fn large_buffers_take_two_levels_and_small_ones_few_rounds() {
        let (routing, _) = routing();
        let world: Vec<usize> = (0..16).collect();
        let route = |bytes| routing.route(CollectiveKind::AllReduce, bytes, &routing.formation(&world)).algorithm();
        assert_eq!(route(64 << 20), Algorithm::Hierarchical);
        let inside = routing.route(CollectiveKind::AllReduce, 64, &routing.formation(&[0, 1, 2, 3])).algorithm();
        assert_eq!(inside, Algorithm::Recursive);
    }
}
