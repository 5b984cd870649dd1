//! Groups of ranks as collectives are measured: by how far apart their members are.

use quadrille_spec::{Axis, CollectiveKind, Grid, SpecError, Tier};

use super::candidate;
use super::network::{Link, Network, Placement};

/// Groups of equal size that communicate at once: of `ranks` consecutive ranks, which fill one domain of the innermost tier
/// after the other, every group has `size`, with `inner` between neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankGroup {
    /// `G0`: ranks between two neighbours of a group.
    pub inner: usize,
    /// `G1`: ranks in a group.
    pub size: usize,
    /// Ranks of all groups, a multiple of `inner * size`.
    pub ranks: usize,
}

impl RankGroup {
    /// Seconds of a collective whose whole buffer has so many bytes, or of a message of so many: what a step's price has for
    /// it.
    ///
    /// # Errors
    /// Groups that do not fill the ranks, or that are no grid; more tiers than the model has.
    pub fn seconds(&self, tiers: &[Tier], kind: CollectiveKind, bytes: f64) -> Result<f64, SpecError> {
        let link = self.link(tiers)?;
        Ok(match kind {
            CollectiveKind::Send | CollectiveKind::Receive => link.message_seconds(bytes),
            kind => link.seconds(kind, bytes),
        })
    }

    /// The outermost tier by which members of a group reach each other; `None`: groups of one, or no tiers.
    pub fn tier(&self, tiers: &[Tier]) -> Option<usize> {
        let extent = self.inner.saturating_mul(self.size);
        let holds = |tier: &Tier| tier.devices.is_none_or(|devices| devices >= extent);
        let spanned = tiers.iter().position(holds).or(tiers.len().checked_sub(1));
        spanned.filter(|_| self.size > 1)
    }

    fn link(&self, tiers: &[Tier]) -> Result<Link, SpecError> {
        let Self { inner, size, ranks } = *self;
        let extent = inner.checked_mul(size).filter(|extent| *extent > 0 && ranks.is_multiple_of(*extent));
        let Some(extent) = extent else {
            let rule = format!("groups of {size} ranks, {inner} apart, fill all {ranks} ranks");
            return Err(SpecError::invalid("group", size, rule, "use divisors of the number of ranks"));
        };
        let network = Network::new(tiers)?;
        // Any axes: of a grid as long as the ranks, in its usual order.
        let grid = Grid::new(inner, size, ranks / extent, 1)?;
        let domain = tiers.first().and_then(|tier| tier.devices).unwrap_or(usize::MAX);
        let sizes = Axis::ALL.map(|axis| grid.size(axis));
        let placement = Placement::over(&network, sizes, candidate::inside(&grid, domain));
        Ok(Link::over(&network, &placement, &sizes, Axis::Y.only()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiers() -> [Tier; 2] {
        let tier = |devices, bandwidth, latency| Tier {
            name: "t".to_owned(),
            devices,
            links: 1,
            bandwidth,
            efficiency: 1.0,
            latency,
            half_bytes: 0.0,
            origins: quadrille_spec::Origins::default(),
        };
        [tier(Some(4), 100e9, 1e-6), tier(None, 10e9, 5e-6)]
    }

    fn seconds(inner: usize, size: usize, kind: CollectiveKind) -> f64 {
        RankGroup { inner, size, ranks: 8 }.seconds(&tiers(), kind, 1e9).unwrap()
    }

    #[test]
    fn groups_inside_a_node_and_between_nodes_have_their_links() {
        let close = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-9, "{a} is not {b}");
        // Two rounds of doubling, three quarters of the buffer through a device's links.
        close(seconds(1, 4, CollectiveKind::AllGather), 2e-6 + 0.75 * 1e9 / 100e9);
        close(seconds(2, 2, CollectiveKind::AllReduce), 2.0 * (1e-6 + 0.5 * 1e9 / 100e9));
        // Four pairs of neighbours in different nodes share the links of a node.
        close(seconds(4, 2, CollectiveKind::ReduceScatter), 5e-6 + 0.5 * 1e9 * 4.0 / 10e9);
        close(seconds(4, 2, CollectiveKind::Send), 5e-6 + 1e9 * 4.0 / 10e9);
        assert_eq!(seconds(8, 1, CollectiveKind::AllReduce), 0.0);
    }

    #[test]
    fn the_outermost_tier_that_a_group_needs() {
        let tier = |inner, size| RankGroup { inner, size, ranks: 8 }.tier(&tiers());
        assert_eq!([tier(1, 4), tier(2, 2), tier(4, 2), tier(8, 1)], [Some(0), Some(0), Some(1), None]);
    }

    #[test]
    fn groups_that_do_not_fill_the_ranks_are_refused() {
        for (inner, size) in [(3, 2), (0, 2), (2, 0), (usize::MAX, 2)] {
            let group = RankGroup { inner, size, ranks: 8 };
            let message = group.seconds(&tiers(), CollectiveKind::AllReduce, 1.0).unwrap_err().to_string();
            assert!(message.contains("fill all 8 ranks"), "{message}");
        }
    }
}
