//! How layers are split into pieces where the user does not say it.

/// `layers` blocks in `pieces` pieces as equal as possible; what is left over goes to the pieces nearest the middle,
/// since the first has the embedding and the last the head.
pub(crate) fn even_blocks(layers: usize, pieces: usize) -> Vec<usize> {
    let mut blocks = vec![layers / pieces; pieces];
    let mut from_middle: Vec<usize> = (0..pieces).collect();
    from_middle.sort_by_key(|piece| (2 * piece + 1).abs_diff(pieces));
    from_middle.into_iter().take(layers % pieces).for_each(|piece| blocks[piece] += 1);
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_over_goes_to_the_middle() {
        assert_eq!(even_blocks(8, 4), [2, 2, 2, 2]);
        assert_eq!(even_blocks(9, 3), [3, 3, 3]);
        assert_eq!(even_blocks(10, 4), [2, 3, 3, 2]);
        assert_eq!(even_blocks(7, 3), [2, 3, 2]);
        assert_eq!(even_blocks(2, 4), [0, 1, 1, 0]);
        assert_eq!(even_blocks(1, 1), [1]);
    }
}
