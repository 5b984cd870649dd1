//! How the members of a group lie on nodes.

use crate::{Axis, Coordinate, Nodes, Routing, TwoLevel};

/// What the choice of an algorithm needs to know of a group; the same for all groups that its members' axes make of a grid
/// (blocks of an axis are each for themselves).
#[derive(Debug, Clone, PartialEq)]
pub struct Formation {
    /// Number of members.
    pub members: usize,
    /// Most nodes that one of these groups lies on.
    pub nodes: usize,
    /// Most groups that share a node's links, at least 1: ranks of the job on a node per member there.
    pub sharing: f64,
    /// The members' places, where nodes hold equally many of them, in the same order in all of these groups.
    pub levels: Option<TwoLevel>,
}

impl Routing {
    /// Of the group of these members (ranks in index order).
    pub fn formation(&self, members: &[usize]) -> Formation {
        let siblings = self.siblings(members);
        let levels = TwoLevel::of(&self.nodes, members);
        let same = siblings.iter().all(|sibling| TwoLevel::of(&self.nodes, sibling) == levels);
        let nodes = siblings.iter().map(|sibling| spanned(&self.nodes, sibling)).max().unwrap_or(1).max(1);
        let per_node = members.len() as f64 / nodes as f64;
        let sharing = (self.nodes.most_per_node() as f64 / per_node).max(1.0);
        Formation { members: members.len(), nodes, sharing, levels: levels.filter(|_| same) }
    }

    /// The groups that the grid has beside these members, moved along the axes on which the members agree; themselves
    /// among them.
    fn siblings(&self, members: &[usize]) -> Vec<Vec<usize>> {
        let Some(grid) = self.grid.filter(|grid| members.iter().all(|rank| *rank < grid.ranks())) else {
            return vec![members.to_vec()];
        };
        let places: Vec<Coordinate> = members.iter().map(|rank| grid.coordinate(*rank)).collect();
        let varies = |axis: &Axis| places.iter().any(|place| place.on(*axis) != places[0].on(*axis));
        let (along, across): (Vec<Axis>, Vec<Axis>) = Axis::ALL.into_iter().partition(varies);
        let starts = (0..grid.ranks()).map(|rank| grid.coordinate(rank));
        let starts = starts.filter(|place| along.iter().all(|axis| place.on(*axis) == 0));
        let moved = |start: Coordinate| {
            let member = |place: &Coordinate| {
                let at = |place: Coordinate, axis: &Axis| place.with(*axis, start.on(*axis));
                grid.rank(across.iter().fold(*place, at))
            };
            places.iter().map(member).collect()
        };
        starts.map(moved).collect()
    }
}

fn spanned(nodes: &Nodes, members: &[usize]) -> usize {
    let mut spanned: Vec<usize> = members.iter().map(|rank| nodes.node(*rank)).collect();
    spanned.sort_unstable();
    spanned.dedup();
    spanned.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Algorithm, Choice, Grid, Route};

    #[test]
    fn groups_along_the_same_axes_take_the_same_route() {
        // z is innermost: of the groups over z and data, that of x = 0 lies on two nodes, that of x = 1 on four.
        let grid = Grid::new(3, 1, 2, 2).unwrap().with_order("z,x,y,data".parse().unwrap());
        let routing =
            |grid| Routing { nodes: Nodes::equal(12, 3), choice: Choice::Always(Algorithm::Hierarchical), grid };
        let route = |routing: &Routing, members: &[usize]| {
            routing.route(crate::CollectiveKind::AllReduce, 0, &routing.formation(members))
        };
        let groups = [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11]];
        let alone = groups.map(|members| route(&routing(None), &members).algorithm());
        assert_eq!(alone, [Algorithm::Hierarchical, Algorithm::Recursive, Algorithm::Hierarchical]);
        for members in groups {
            let routing = routing(Some(grid));
            assert_eq!(routing.siblings(&members).len(), 3);
            assert_eq!(route(&routing, &members), Route::Ring);
            assert_eq!(routing.formation(&members).nodes, 4);
        }
    }

    #[test]
    fn the_fastest_is_one_that_can_run() {
        // Groups of 16 of 48 ranks, 3 apart: nodes of 4 hold one or two members.
        let grid = Grid::new(3, 16, 1, 1).unwrap();
        let tier = |devices, bandwidth, latency| crate::Tier {
            name: "t".into(),
            devices,
            links: 1,
            bandwidth,
            efficiency: 1.0,
            latency,
            half_bytes: 0.0,
            origins: crate::Origins::default(),
        };
        let tiers = vec![tier(Some(4), 300e9, 3e-6), tier(None, 25e9, 8e-6)];
        let routing = Routing { nodes: Nodes::equal(48, 4), choice: Choice::Fastest(tiers.clone()), grid: Some(grid) };
        let members: Vec<usize> = (0..16).map(|member| 3 * member).collect();
        let formation = routing.formation(&members);
        assert_eq!(formation.levels, None);
        let kind = crate::CollectiveKind::AllReduce;
        let [ring, recursive] =
            [Algorithm::Ring, Algorithm::Recursive].map(|name| formation.seconds(&tiers, name, kind, 1e5));
        assert!(recursive < ring);
        assert_eq!(routing.route(kind, 100_000, &formation), Route::Recursive);
    }

    #[test]
    fn regular_groups_keep_their_levels() {
        let grid = Grid::new(2, 2, 2, 2).unwrap();
        let routing =
            Routing { nodes: Nodes::equal(16, 4), choice: Choice::Always(Algorithm::Hierarchical), grid: Some(grid) };
        // x with data: two members on each of two nodes, wherever y and z are.
        let formation = routing.formation(&[2, 3, 10, 11]);
        let levels = formation.levels.unwrap();
        assert_eq!((levels.nodes, levels.per_node, formation.sharing), (2, 2, 2.0));
    }
}
