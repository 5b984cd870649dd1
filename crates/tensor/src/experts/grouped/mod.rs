//! A product for each expert.

#[cfg(any(target_arch = "x86_64", test))]
mod apart;
mod tiles;

#[cfg(target_arch = "x86_64")]
use crate::dispatch::bf16_instructions;
use crate::matmul::Transpose;
use crate::pool::Pool;
use crate::stored::Stored;
use std::ops::Range;

/// A product for each of several blocks, the experts. Rows of all blocks come in segments, as ranks sent them: in each
/// one `chunk` rows of every block. Letters: R = segments blocks chunk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GroupedShape {
    /// How A and B are stored: `Nn` A [R, k], B [blocks k, n], C [R, n]; `Nt` the same with B [blocks n, k];
    /// `Tn` A [R, k], B [R, n], C [blocks k, n].
    pub stored: Transpose,
    /// Products.
    pub blocks: usize,
    /// Pieces that the rows of a block lie in.
    pub segments: usize,
    /// Rows of a piece.
    pub chunk: usize,
    /// Columns of C.
    pub n: usize,
    /// Columns of A.
    pub k: usize,
}

impl GroupedShape {
    /// Rows of all blocks, R.
    fn rows(self) -> usize {
        self.segments * self.blocks * self.chunk
    }

    /// Rows of a block.
    fn block_rows(self) -> usize {
        self.segments * self.chunk
    }
}

/// Where the given rows of a block lie among those of `blocks` that come in segments, of each block `chunk` rows: piece by
/// piece.
fn pieces(blocks: usize, chunk: usize, block: usize, rows: Range<usize>) -> impl Iterator<Item = Range<usize>> + Clone {
    let segments = if rows.is_empty() { 0..0 } else { rows.start / chunk..rows.end.div_ceil(chunk) };
    segments.map(move |segment| {
        let skipped = (segment * (blocks - 1) + block) * chunk;
        let (start, end) = (rows.start.max(segment * chunk), rows.end.min((segment + 1) * chunk));
        skipped + start..skipped + end
    })
}

/// For each block C = op(A) op(B), or C += op(A) op(B) if `accumulate`: 2 R n k FLOPs in all. Of `Tn` a block's rows are
/// summed over segment by segment. Elements are multiplied, summed and rounded as by [`crate::matmul`]; bits depend on
/// neither the number of threads nor on what C held before when it is not accumulated into.
pub fn grouped_matmul<S: Stored, C: Stored<Real = S::Real>>(
    pool: &Pool,
    shape: GroupedShape,
    a: &[S],
    b: &[S],
    c: &mut [C],
    accumulate: bool,
) {
    let GroupedShape { stored, blocks, n, k, .. } = shape;
    let (rows, weights) = (shape.rows(), blocks * k * n);
    let (of_b, of_c) = if stored == Transpose::Tn { (rows * n, weights) } else { (weights, rows * n) };
    assert_eq!((a.len(), b.len(), c.len()), (rows * k, of_b, of_c), "{shape:?}");
    #[cfg(target_arch = "x86_64")]
    if bf16_instructions() && S::NAME == "bf16" {
        return apart::products(pool, shape, a, b, c, accumulate);
    }
    tiles::products(pool, shape, a, b, c, accumulate);
}
