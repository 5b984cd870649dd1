//! The cut of layers into pieces where the user does not say it.

use std::ops::Range;

/// Layers in consecutive pieces as equal as possible. Where some pieces have a layer more than others, those are the
/// pieces nearest the middle, of two equally near the earlier: the first piece has the embedding beside its layers, the
/// last the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EvenPieces {
    layers: usize,
    pieces: usize,
}

impl EvenPieces {
    /// `layers` on `stages` stages, each of which owns `chunks` pieces; both are at least 1.
    pub fn new(layers: usize, stages: usize, chunks: usize) -> Self {
        Self { layers, pieces: stages.saturating_mul(chunks) }
    }

    /// Whether `blocks` are the layers of even pieces.
    pub fn are(blocks: &[usize]) -> bool {
        let sum = blocks.iter().try_fold(0_usize, |sum, blocks| sum.checked_add(*blocks));
        sum.is_some_and(|layers| {
            blocks.is_empty() || Self::new(layers, blocks.len(), 1).blocks().eq(blocks.iter().copied())
        })
    }

    /// Layers of the pieces that have fewest.
    pub fn least(&self) -> usize {
        self.layers / self.pieces
    }

    /// Layers of the pieces that have most.
    pub fn most(&self) -> usize {
        self.layers.div_ceil(self.pieces)
    }

    /// The pieces that have a layer more than the others, which follow each other; none where all are alike.
    pub fn longer(&self) -> Range<usize> {
        let more = self.layers % self.pieces;
        let first = (self.pieces - more) / 2;
        first..first + more
    }

    /// Layers of a piece.
    pub fn blocks_of(&self, piece: usize) -> usize {
        self.least() + usize::from(self.longer().contains(&piece))
    }

    /// Layers of all pieces before one.
    fn blocks_before(&self, piece: usize) -> usize {
        let longer = self.longer();
        piece * self.least() + piece.clamp(longer.start, longer.end) - longer.start
    }

    /// The layers of a piece, by their places in the model.
    pub fn range(&self, piece: usize) -> Range<usize> {
        let first = self.blocks_before(piece);
        first..first + self.blocks_of(piece)
    }

    /// Layers of every piece, in the order of the model.
    pub fn blocks(&self) -> impl Iterator<Item = usize> + use<> {
        let pieces = *self;
        (0..pieces.pieces).map(move |piece| pieces.blocks_of(piece))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_over_goes_to_the_middle() {
        let even = |layers, pieces| EvenPieces::new(layers, pieces, 1).blocks().collect::<Vec<_>>();
        assert_eq!(even(8, 4), [2, 2, 2, 2]);
        assert_eq!(even(8, 3), [3, 3, 2]);
        assert_eq!(even(9, 4), [2, 3, 2, 2]);
        assert_eq!(even(10, 4), [2, 3, 3, 2]);
        assert_eq!(even(7, 3), [2, 3, 2]);
        assert_eq!(even(2, 4), [0, 1, 1, 0]);
        assert_eq!(even(1, 1), [1]);
    }

    #[test]
    fn sums_and_extremes_are_those_of_the_list() {
        for (layers, stages, chunks) in (0..14).flat_map(|n| (1..6).flat_map(move |s| (1..4).map(move |c| (n, s, c)))) {
            let even = EvenPieces::new(layers, stages, chunks);
            let blocks: Vec<usize> = even.blocks().collect();
            assert_eq!((blocks.len(), blocks.iter().sum()), (stages * chunks, layers));
            assert_eq!(blocks.iter().copied().min(), Some(even.least()));
            assert_eq!(blocks.iter().copied().max(), Some(even.most()));
            (0..blocks.len())
                .for_each(|piece| assert_eq!(even.blocks_before(piece), blocks[..piece].iter().sum::<usize>()));
            // No other order is taken for it.
            assert!(EvenPieces::are(&blocks));
            let reversed: Vec<usize> = blocks.iter().rev().copied().collect();
            assert_eq!(EvenPieces::are(&reversed), reversed == blocks);
        }
        assert!(!EvenPieces::are(&[3, 3, 2, 2]) && !EvenPieces::are(&[usize::MAX, 1]));
    }
}
