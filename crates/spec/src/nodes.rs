//! Which ranks share a node.

use std::collections::BTreeMap;

/// The node of every rank of a job.
#[derive(Debug, Clone)]
pub struct Nodes {
    ranks: usize,
    places: Places,
}

/// How ranks are put on nodes.
#[derive(Debug, Clone)]
enum Places {
    /// So many on each, in numeric order: no list, for there may be millions.
    Equal(usize),
    /// By rank, its node.
    Listed(Vec<usize>),
}

impl PartialEq for Nodes {
    /// Whether every rank has the same node, however that is kept.
    fn eq(&self, other: &Self) -> bool {
        self.ranks == other.ranks
            && match (&self.places, &other.places) {
                (Places::Equal(own), Places::Equal(others)) if own == others => true,
                _ => (0..self.ranks).all(|rank| self.node(rank) == other.node(rank)),
            }
    }
}

impl Eq for Nodes {}

impl Nodes {
    /// Ranks in numeric order, `per_node` on each node; the last node may hold fewer. `per_node` is at least 1.
    pub fn equal(ranks: usize, per_node: usize) -> Self {
        Self { ranks, places: Places::Equal(per_node.max(1)) }
    }

    /// The node of every rank, by any numbers that tell nodes apart.
    pub fn new(of_rank: Vec<usize>) -> Self {
        Self { ranks: of_rank.len(), places: Places::Listed(of_rank) }
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// The node of a rank; of ranks that do not exist, one that no other is on.
    pub fn node(&self, rank: usize) -> usize {
        match &self.places {
            Places::Equal(per_node) if rank < self.ranks => rank / per_node,
            Places::Equal(_) => usize::MAX,
            Places::Listed(of_rank) => of_rank.get(rank).copied().unwrap_or(usize::MAX),
        }
    }

    /// Number of nodes.
    pub fn count(&self) -> usize {
        match &self.places {
            Places::Equal(per_node) => self.ranks.div_ceil(*per_node),
            Places::Listed(of_rank) => ranks_by_node(of_rank).len(),
        }
    }

    /// Most ranks that share a node.
    pub fn most_per_node(&self) -> usize {
        match &self.places {
            Places::Equal(per_node) => self.ranks.min(*per_node),
            Places::Listed(of_rank) => ranks_by_node(of_rank).into_values().max().unwrap_or(0),
        }
    }

    /// How many ranks each node holds, if consecutive ranks fill the nodes equally: what a layout's placement assumes.
    pub fn per_node(&self) -> Option<usize> {
        let (per_node, in_order) = match &self.places {
            Places::Equal(_) => (self.most_per_node(), true),
            Places::Listed(of_rank) => {
                let per_node = of_rank.iter().take_while(|node| **node == of_rank[0]).count();
                let consecutive = |rank: usize| of_rank[rank] == of_rank[rank / per_node * per_node];
                (per_node, (0..self.ranks).all(consecutive))
            }
        };
        let whole = per_node > 0 && self.ranks.is_multiple_of(per_node);
        (whole && in_order && self.count() == self.ranks / per_node).then_some(per_node)
    }
}

fn ranks_by_node(of_rank: &[usize]) -> BTreeMap<usize, usize> {
    let mut ranks = BTreeMap::new();
    of_rank.iter().for_each(|node| *ranks.entry(*node).or_default() += 1);
    ranks
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
    fn nodes_in_order_are_those_of_a_list() {
        for ranks in 0..20 {
            for per_node in 1..=ranks + 2 {
                let equal = Nodes::equal(ranks, per_node);
                let listed = Nodes::new((0..ranks).map(|rank| rank / per_node).collect());
                let told = |nodes: &Nodes| (nodes.ranks(), nodes.count(), nodes.most_per_node(), nodes.per_node());
                assert_eq!((told(&equal), &equal), (told(&listed), &listed), "{ranks} ranks, {per_node} on a node");
                assert_eq!((equal.node(ranks), listed.node(ranks)), (usize::MAX, usize::MAX));
            }
        }
        assert_ne!(Nodes::equal(8, 4), Nodes::equal(8, 2));
        assert_ne!(Nodes::equal(8, 4), Nodes::equal(9, 4));
        assert_eq!(Nodes::equal(8, 8), Nodes::equal(8, 16), "one node either way");
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
