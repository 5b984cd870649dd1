//! Which ranks share a node.

use std::collections::BTreeMap;

/// The node of every rank of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nodes {
    of_rank: Vec<usize>,
}

impl Nodes {
    /// Ranks in numeric order, `per_node` on each node; the last node may hold fewer. `per_node` is at least 1.
    pub fn equal(ranks: usize, per_node: usize) -> Self {
        Self { of_rank: (0..ranks).map(|rank| rank / per_node.max(1)).collect() }
    }

    /// The node of every rank, by any numbers that tell nodes apart.
    pub fn new(of_rank: Vec<usize>) -> Self {
        Self { of_rank }
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.of_rank.len()
    }

    /// The node of a rank; of ranks that do not exist, one that no other is on.
    pub fn node(&self, rank: usize) -> usize {
        self.of_rank.get(rank).copied().unwrap_or(usize::MAX)
    }

    /// Number of nodes.
    pub fn count(&self) -> usize {
        self.ranks_by_node().len()
    }

    /// Most ranks that share a node.
    pub fn most_per_node(&self) -> usize {
        self.ranks_by_node().into_values().max().unwrap_or(0)
    }

    /// How many ranks each node holds, if consecutive ranks fill the nodes equally: what a layout's placement assumes.
    pub fn per_node(&self) -> Option<usize> {
        let per_node = self.of_rank.iter().take_while(|node| **node == self.of_rank[0]).count();
        let consecutive = |rank: usize| self.of_rank[rank] == self.of_rank[rank / per_node * per_node];
        let whole = per_node > 0 && self.ranks().is_multiple_of(per_node);
        (whole && self.count() == self.ranks() / per_node && (0..self.ranks()).all(consecutive)).then_some(per_node)
    }

    fn ranks_by_node(&self) -> BTreeMap<usize, usize> {
        let mut ranks = BTreeMap::new();
        self.of_rank.iter().for_each(|node| *ranks.entry(*node).or_default() += 1);
        ranks
    }
}

/// A group's members on nodes that hold equally many of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TwoLevel {
    /// Number of nodes.
    pub nodes: usize,
    /// Members on each node.
    pub per_node: usize,
    /// By member index: its node, numbered in the order of appearance, and its local index there.
    places: Vec<(usize, usize)>,
    /// By `node * per_node + local`: the member index.
    members: Vec<usize>,
}

impl TwoLevel {
    /// Of members (ranks in index order); `None` where nodes hold different numbers of them.
    pub fn of(nodes: &Nodes, members: &[usize]) -> Option<Self> {
        let mut number = BTreeMap::new();
        let mut on_node: Vec<Vec<usize>> = Vec::new();
        let mut places = Vec::with_capacity(members.len());
        for (index, rank) in members.iter().enumerate() {
            let node = *number.entry(nodes.node(*rank)).or_insert_with(|| {
                on_node.push(Vec::new());
                on_node.len() - 1
            });
            places.push((node, on_node[node].len()));
            on_node[node].push(index);
        }
        let per_node = on_node.first().map_or(0, Vec::len);
        let equal = on_node.iter().all(|members| members.len() == per_node);
        equal.then(|| Self { nodes: on_node.len(), per_node, places, members: on_node.concat() })
    }

    /// Node and local index of a member.
    pub fn place(&self, member: usize) -> (usize, usize) {
        self.places[member]
    }

    /// The member at a place.
    pub fn member(&self, node: usize, local: usize) -> usize {
        self.members[node * self.per_node + local]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_equal_size_are_told_from_others() {
        assert_eq!(Nodes::equal(8, 4).per_node(), Some(4));
        assert_eq!(Nodes::equal(8, 8).per_node(), Some(8));
        assert_eq!(Nodes::equal(8, 3).per_node(), None);
        assert_eq!(Nodes::new(vec![0, 1, 0, 1]).per_node(), None);
        assert_eq!(Nodes::new(vec![7, 7, 3, 3]).per_node(), Some(2));
        assert_eq!(Nodes::new(vec![7, 7, 3, 3, 7, 7]).per_node(), None);
        assert_eq!(Nodes::new(Vec::new()).per_node(), None);
        assert_eq!((Nodes::equal(8, 3).count(), Nodes::equal(8, 3).most_per_node()), (3, 3));
    }

    #[test]
    fn members_have_places() {
        // Ranks 0..4 on node 0, 4..8 on node 1; a group that strides by two.
        let levels = TwoLevel::of(&Nodes::equal(8, 4), &[0, 2, 4, 6]).unwrap();
        assert_eq!((levels.nodes, levels.per_node), (2, 2));
        assert_eq!((0..4).map(|index| levels.place(index)).collect::<Vec<_>>(), [(0, 0), (0, 1), (1, 0), (1, 1)]);
        // Members that alternate between nodes.
        let levels = TwoLevel::of(&Nodes::equal(4, 2), &[0, 2, 1, 3]).unwrap();
        assert_eq!((0..4).map(|index| levels.place(index)).collect::<Vec<_>>(), [(0, 0), (1, 0), (0, 1), (1, 1)]);
        assert_eq!((levels.member(0, 1), levels.member(1, 0)), (2, 1));
        assert_eq!(TwoLevel::of(&Nodes::equal(8, 4), &[0, 1, 4]), None);
    }
}
