//! Bytes on the wire per collective algorithm.

use quadrille_spec::{CollectiveKind, Route, TwoLevel};

/// Bytes that the member at `index` of a group of `members` sends on this route, for a payload of `elements` elements
/// of `element_bytes`. Chunk i of n elements in G parts spans floor(i n / G) .. floor((i+1) n / G).
///
/// A ring all-gather passes on every chunk but the one that the right neighbour holds from the start; a ring
/// reduce-scatter every chunk but the one that stays here; an all-reduce is both. Broadcasts and reductions are
/// pipelined chains from, or to, `root`; an all-to-all keeps its own chunk. In round k of the recursive algorithms member r
/// sends the min(2^k, G - 2^k) chunks from its own on to member r - 2^k (all-gather), or those from r + 2^k on to
/// that member (reduce-scatter); in binomial trees a member sends the buffer to each of its children, or its parent. Two
/// levels send what their phases send: in an all-to-all of V on N nodes of M members, `(M-1)/M V` inside the node and then
/// `(N-1)/N V` between nodes. The native route counts as a ring.
pub fn wire_bytes(
    route: &Route,
    kind: CollectiveKind,
    elements: usize,
    members: usize,
    index: usize,
    root: usize,
    element_bytes: u64,
) -> u64 {
    if members == 1 {
        return 0;
    }
    let group = Group { members, index, root };
    let sent = match route {
        Route::Ring | Route::Native => group.ring(kind, elements),
        Route::Recursive => group.recursive(kind, elements),
        Route::Hierarchical(levels) => two_levels(levels, kind, elements, &group),
    };
    sent as u64 * element_bytes
}

/// Members of a phase, the position of the one that counts, and of the root.
struct Group {
    members: usize,
    index: usize,
    root: usize,
}

impl Group {
    /// Elements of the chunks `from .. from + count`, cyclically.
    fn chunks(&self, elements: usize, from: usize, count: usize) -> usize {
        // In 128 bits: elements times members may pass 2^64.
        let cut = |i: usize| (i as u128 * elements as u128 / self.members as u128) as usize;
        let from = from % self.members;
        let end = from + count;
        match end.checked_sub(self.members) {
            None => cut(end) - cut(from),
            Some(wrapped) => elements - cut(from) + cut(wrapped),
        }
    }

    fn ring(&self, kind: CollectiveKind, elements: usize) -> usize {
        let chunk = |index: usize| self.chunks(elements, index, 1);
        let right = (self.index + 1) % self.members;
        match kind {
            CollectiveKind::AllGather => elements - chunk(right),
            CollectiveKind::ReduceScatter | CollectiveKind::AllToAll => elements - chunk(self.index),
            CollectiveKind::AllReduce => 2 * elements - chunk(self.index) - chunk(right),
            CollectiveKind::Send => elements,
            CollectiveKind::Broadcast if right != self.root => elements,
            CollectiveKind::Reduce if self.index != self.root => elements,
            CollectiveKind::Broadcast
            | CollectiveKind::Reduce
            | CollectiveKind::Receive
            | CollectiveKind::Barrier
            | CollectiveKind::Fetch
            | CollectiveKind::Store => 0,
        }
    }

    fn recursive(&self, kind: CollectiveKind, elements: usize) -> usize {
        let rounds = || {
            let distances = std::iter::successors(Some(1), |distance| Some(2 * distance));
            distances.take_while(|distance| *distance < self.members)
        };
        let count = |distance: usize| distance.min(self.members - distance);
        let gathered = || rounds().map(|distance| self.chunks(elements, self.index, count(distance))).sum::<usize>();
        let scattered =
            || rounds().map(|distance| self.chunks(elements, self.index + distance, count(distance))).sum::<usize>();
        // The place in a tree with the root at 0: its children lie at distances above its highest bit.
        let place = (self.index + self.members - self.root) % self.members;
        let children = || rounds().filter(|distance| place < *distance && place + distance < self.members).count();
        match kind {
            CollectiveKind::AllGather => gathered(),
            CollectiveKind::ReduceScatter => scattered(),
            CollectiveKind::AllReduce => gathered() + scattered(),
            CollectiveKind::Broadcast => children() * elements,
            CollectiveKind::Reduce
            | CollectiveKind::AllToAll
            | CollectiveKind::Send
            | CollectiveKind::Receive
            | CollectiveKind::Barrier
            | CollectiveKind::Fetch
            | CollectiveKind::Store => self.ring(kind, elements),
        }
    }
}

/// What a member sends between the nodes and inside its own.
fn two_levels(levels: &TwoLevel, kind: CollectiveKind, elements: usize, group: &Group) -> usize {
    let (node, local) = levels.place(group.index);
    let (root_node, root_local) = levels.place(group.root);
    let across = Group { members: levels.nodes, index: node, root: root_node };
    let inside = Group { members: levels.per_node, index: local, root: root_local };
    let part = elements / levels.per_node; // a gather's and a scatter's buffers are multiples of the members
    match kind {
        CollectiveKind::AllGather | CollectiveKind::ReduceScatter => {
            across.recursive(kind, part) + inside.ring(kind, elements)
        }
        CollectiveKind::AllReduce => {
            across.recursive(kind, inside.chunks(elements, local, 1)) + inside.ring(kind, elements)
        }
        CollectiveKind::Broadcast | CollectiveKind::Reduce => {
            let between = if local == root_local { across.recursive(kind, elements) } else { 0 };
            between + inside.recursive(kind, elements)
        }
        CollectiveKind::AllToAll => across.ring(kind, elements) + inside.ring(kind, elements),
        CollectiveKind::Send
        | CollectiveKind::Receive
        | CollectiveKind::Barrier
        | CollectiveKind::Fetch
        | CollectiveKind::Store => group.ring(kind, elements),
    }
}

#[cfg(test)]
mod tests {
    use quadrille_spec::Nodes;

    use super::*;

    #[test]
    fn rings_send_the_textbook_volumes() {
        use CollectiveKind::{AllGather, AllReduce, ReduceScatter};
        for (kind, factor) in [(AllGather, 1), (ReduceScatter, 1), (AllReduce, 2)] {
            for members in 1..=8 {
                let elements = 840;
                let bytes = wire_bytes(&Route::Ring, kind, elements, members, 0, 0, 4);
                assert_eq!(bytes as usize * members, factor * (members - 1) * elements * 4);
            }
        }
    }

    #[test]
    fn a_two_level_all_to_all_sends_all_but_its_part_twice() {
        for (nodes, per_node) in [(2, 2), (3, 4), (8, 2)] {
            let members = nodes * per_node;
            let each = 5;
            let ranks: Vec<usize> = (0..members).collect();
            let levels = TwoLevel::of(&Nodes::equal(members, per_node), &ranks).unwrap();
            // Blocks of all nodes for every node mate; blocks of all node mates for every other node.
            let expected = (per_node - 1) * nodes * each + (nodes - 1) * per_node * each;
            for index in ranks {
                let route = Route::Hierarchical(levels.clone());
                let sent = wire_bytes(&route, CollectiveKind::AllToAll, members * each, members, index, 0, 2);
                assert_eq!(sent as usize, 2 * expected);
            }
        }
    }

    #[test]
    fn huge_buffers_in_huge_groups_do_not_overflow() {
        let elements = 1 << 43;
        let members = 1 << 22;
        let bytes = wire_bytes(&Route::Ring, CollectiveKind::ReduceScatter, elements, members, members - 1, 0, 4);
        assert_eq!(bytes, 4 * ((1 << 43) - (1 << 21)));
    }

    #[test]
    fn uneven_chunks_sum_to_the_whole() {
        for elements in 0..20 {
            for members in 2..=7 {
                let total: u64 = (0..members)
                    .map(|index| wire_bytes(&Route::Ring, CollectiveKind::AllReduce, elements, members, index, 0, 1))
                    .sum();
                assert_eq!(total, 2 * (members as u64 - 1) * elements as u64);
            }
        }
    }
}
