//! Two levels (PCCL, dissertation around AxoNN, section 6.2): an all-gather first runs between nodes, in the groups of
//! equal local index, all at once, then inside each node, and at last puts the blocks in order; a reduce-scatter runs the
//! other way round. Recursive between nodes, rings inside them. An all-to-all runs inside the nodes first, then between them,
//! each time pairwise: between nodes go few large messages in place of many small ones.
//!
//! `N` nodes of `M` members; member `(a, l)` is the `l`-th on node `a`. Inside a node, part `l` is the blocks of the members
//! of local index `l`, rotated by the node: position `j` is that of member `((a + j) mod N, l)`.

use quadrille_spec::TwoLevel;

use super::plan::{Circle, Piece, Plan};
use super::recursive::{Ordered, Rotated};
use super::{chunk, in_order, pairwise, recursive, ring};

/// A member's place, and the circles of its two phases.
pub(crate) struct Place<'a> {
    levels: &'a TwoLevel,
    node: usize,
    local: usize,
    across: Circle,
    inside: Circle,
}

impl<'a> Place<'a> {
    pub(crate) fn new(levels: &'a TwoLevel, member: usize) -> Self {
        let (node, local) = levels.place(member);
        let across = (0..levels.nodes).map(|node| levels.member(node, local)).collect();
        let inside = (0..levels.per_node).map(|local| levels.member(node, local)).collect();
        Self { levels, node, local, across: Circle::new(across, node), inside: Circle::new(inside, local) }
    }

    /// The member whose block lies at a position of a part.
    fn member_at(&self, part: usize, position: usize) -> usize {
        self.levels.member((self.node + position) % self.levels.nodes, part)
    }
}

/// Gathers blocks of `each` elements from the inputs into the output.
pub(crate) fn all_gather(plan: &mut Plan, place: &Place<'_>, each: usize) {
    let nodes = place.levels.nodes;
    let per_node = place.levels.per_node;
    let parts = plan.reserve(per_node * nodes * each);
    let part = |local: usize| Piece::scratch(parts + local * nodes * each, nodes * each);
    let blocks = Rotated::new(&place.across, part(place.local).start, |_| each);
    plan.copy(Piece::input(0..each), blocks.position(0));
    recursive::all_gather(plan, &place.across, &blocks);
    ring::all_gather(plan, &place.inside, part);
    for local in 0..per_node {
        for position in 0..nodes {
            let from = Piece::scratch(part(local).start + position * each, each);
            let member = place.member_at(local, position);
            plan.copy(from, Piece::output(member * each..(member + 1) * each));
        }
    }
}

/// Sums inputs of a block of `each` elements for every member; the own block's sum is the output.
pub(crate) fn reduce_scatter(plan: &mut Plan, place: &Place<'_>, each: usize) {
    let nodes = place.levels.nodes;
    let per_node = place.levels.per_node;
    let parts = plan.reserve(per_node * nodes * each);
    let part = |local: usize| Piece::scratch(parts + local * nodes * each, nodes * each);
    for local in 0..per_node {
        for position in 0..nodes {
            let member = place.member_at(local, position);
            let to = Piece::scratch(part(local).start + position * each, each);
            plan.copy(Piece::input(member * each..(member + 1) * each), to);
        }
    }
    ring::reduce_scatter(plan, &place.inside, part, part(place.local));
    let blocks = Rotated::new(&place.across, part(place.local).start, |_| each);
    recursive::reduce_scatter(plan, &place.across, &blocks);
    plan.copy(blocks.position(0), Piece::output(0..each));
}

/// Sends every member the block of `each` elements for it, that from member `i` to block `i` of the output. Inside the node a
/// member gives every node mate the blocks for all members of the mate's local index. It then has what its whole node sends to
/// those of its own local index, and gives each of them its part in one message.
pub(crate) fn all_to_all(plan: &mut Plan, place: &Place<'_>, each: usize) {
    let nodes = place.levels.nodes;
    let per_node = place.levels.per_node;
    let [outgoing, incoming] = [(); 2].map(|()| plan.reserve(nodes * per_node * each));
    let part = |start: usize, blocks: usize| move |at: usize| Piece::scratch(start + at * blocks * each, blocks * each);
    // Block `b` of part `a`, of a table in which each part has so many blocks.
    let block = |start: usize, blocks: usize, a: usize, b: usize| Piece::scratch(start + (a * blocks + b) * each, each);
    let places = || (0..nodes).flat_map(|node| (0..per_node).map(move |local| (node, local)));
    let of = |member: usize| member * each..(member + 1) * each;
    for (node, local) in places() {
        plan.copy(Piece::input(of(place.levels.member(node, local))), block(outgoing, nodes, local, node));
    }
    pairwise::all_to_all(plan, &place.inside, part(outgoing, nodes), part(incoming, nodes));
    for (node, local) in places() {
        plan.copy(block(incoming, nodes, local, node), block(outgoing, per_node, node, local));
    }
    pairwise::all_to_all(plan, &place.across, part(outgoing, per_node), part(incoming, per_node));
    for (node, local) in places() {
        plan.copy(block(incoming, per_node, node, local), Piece::output(of(place.levels.member(node, local))));
    }
}

/// Reduces `n` elements in place: a part for each local index is scattered inside the nodes, reduced between them and
/// gathered inside. Nothing needs to be put in order.
pub(crate) fn all_reduce(plan: &mut Plan, place: &Place<'_>, n: usize) {
    let part = |local: usize| Piece::output(chunk(n, place.levels.per_node, local));
    let own = part(place.local);
    ring::reduce_scatter(plan, &place.inside, part, own);
    recursive_all_reduce(plan, &place.across, own);
    ring::all_gather(plan, &place.inside, part);
}

/// Reduces a piece of the output in place: halving, then doubling.
pub(crate) fn recursive_all_reduce(plan: &mut Plan, circle: &Circle, buffer: Piece) {
    let size = circle.size();
    if in_order(buffer.len) {
        let blocks = Ordered::new(circle, |from, to| {
            let start = chunk(buffer.len, size, from).start;
            Piece { start: buffer.start + start, len: chunk(buffer.len, size, to - 1).end - start, ..buffer }
        });
        recursive::reduce_scatter_ordered(plan, circle, &blocks);
        return recursive::all_gather_ordered(plan, circle, &blocks);
    }
    let start = plan.reserve(buffer.len);
    let blocks = Rotated::new(circle, start, |block| chunk(buffer.len, size, block).len());
    let places: Vec<(Piece, Piece)> = (0..size)
        .map(|position| {
            let range = chunk(buffer.len, size, (circle.me + position) % size);
            let piece = Piece { start: buffer.start + range.start, len: range.len(), ..buffer };
            (piece, blocks.position(position))
        })
        .collect();
    places.iter().for_each(|(piece, position)| plan.copy(*piece, *position));
    recursive::reduce_scatter(plan, circle, &blocks);
    recursive::all_gather(plan, circle, &blocks);
    places.iter().for_each(|(piece, position)| plan.copy(*position, *piece));
}

/// From `root` to the members of its local index, then inside each node.
pub(crate) fn broadcast(plan: &mut Plan, place: &Place<'_>, root: usize, buffer: Piece) {
    let (node, local) = place.levels.place(root);
    if place.local == local {
        recursive::broadcast(plan, &place.across, node, buffer);
    }
    recursive::broadcast(plan, &place.inside, local, buffer);
}

/// Inside each node to the member of `root`'s local index, then to `root`. `own` stays as it is, except at the root.
pub(crate) fn reduce(plan: &mut Plan, place: &Place<'_>, root: usize, own: Piece, sum: Piece) {
    let (node, local) = place.levels.place(root);
    recursive::reduce(plan, &place.inside, local, own, sum);
    if place.local == local {
        recursive::reduce(plan, &place.across, node, if place.levels.per_node > 1 { sum } else { own }, sum);
    }
}
