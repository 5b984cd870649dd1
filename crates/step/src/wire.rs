//! Bytes on the wire per collective algorithm.

use quadrille_spec::CollectiveKind;

/// Bytes that the member at `index` of a group of `members` sends in a ring, for a payload of `elements` elements
/// of `element_bytes`. Chunk i of n elements in G parts spans floor(i n / G) .. floor((i+1) n / G).
///
/// A ring all-gather passes on every chunk but the one that the right neighbour holds from the start; a ring
/// reduce-scatter every chunk but the one that stays here; an all-reduce is both. Broadcasts and reductions are
/// pipelined chains from, or to, `root`; an all-to-all keeps its own chunk.
pub fn wire_bytes(
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
    // In 128 bits: elements times members may pass 2^64.
    let cut = |i: usize| (i as u128 * elements as u128 / members as u128) as usize;
    let chunk = |i: usize| cut(i + 1) - cut(i);
    let right = (index + 1) % members;
    let sent = match kind {
        CollectiveKind::AllGather => elements - chunk(right),
        CollectiveKind::ReduceScatter | CollectiveKind::AllToAll => elements - chunk(index),
        CollectiveKind::AllReduce => 2 * elements - chunk(index) - chunk(right),
        CollectiveKind::Send => elements,
        CollectiveKind::Broadcast if right != root => elements,
        CollectiveKind::Reduce if index != root => elements,
        CollectiveKind::Broadcast | CollectiveKind::Reduce | CollectiveKind::Receive | CollectiveKind::Barrier => 0,
    };
    sent as u64 * element_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_send_the_textbook_volumes() {
        use CollectiveKind::{AllGather, AllReduce, ReduceScatter};
        for (kind, factor) in [(AllGather, 1), (ReduceScatter, 1), (AllReduce, 2)] {
            for members in 1..=8 {
                let elements = 840;
                let bytes = wire_bytes(kind, elements, members, 0, 0, 4);
                assert_eq!(bytes as usize * members, factor * (members - 1) * elements * 4);
            }
        }
    }

    #[test]
    fn huge_buffers_in_huge_groups_do_not_overflow() {
        let (elements, members) = (1 << 43, 1 << 22);
        let bytes = wire_bytes(CollectiveKind::ReduceScatter, elements, members, members - 1, 0, 4);
        assert_eq!(bytes, 4 * ((1 << 43) - (1 << 21)));
    }

    #[test]
    fn uneven_chunks_sum_to_the_whole() {
        for elements in 0..20 {
            for members in 2..=7 {
                let total: u64 = (0..members)
                    .map(|index| wire_bytes(CollectiveKind::AllReduce, elements, members, index, 0, 1))
                    .sum();
                assert_eq!(total, 2 * (members as u64 - 1) * elements as u64);
            }
        }
    }
}
