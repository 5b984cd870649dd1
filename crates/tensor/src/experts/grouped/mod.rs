//! A product for each expert.

mod apart;
mod segments;
mod tiles;

#[cfg(target_arch = "x86_64")]
use crate::dispatch::bf16_instructions;
use crate::matmul::Transpose;
use crate::pool::{Disjoint, Pool};
use crate::stored::{Stored, same};
pub use segments::Segments;

/// A product for each of several blocks, the experts, whose rows lie in [`Segments`]. Letters: R = rows of all blocks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GroupedShape {
    /// How A and B are stored: `Nn` A [R, k], B [blocks k, n], C [R, n]; `Nt` the same with B [blocks n, k];
    /// `Tn` A [R, k], B [R, n], C [blocks k, n].
    pub stored: Transpose,
    /// Columns of C.
    pub n: usize,
    /// Columns of A.
    pub k: usize,
}

/// The products of all blocks, lengths checked. Threads write parts of C that are apart.
struct Products<'a, S, C> {
    shape: GroupedShape,
    segments: &'a Segments,
    a: &'a [S],
    b: &'a [S],
    c: Disjoint<'a, C>,
    accumulate: bool,
}

/// For each block C = op(A) op(B), or C += op(A) op(B) if `accumulate`: 2 R n k FLOPs in all. Of `Tn` a block's rows are
/// summed over segment by segment; how they are cut into segments changes no bit, and a block without rows has zeros.
/// Elements are multiplied, summed and rounded as by [`crate::matmul`]; bits depend on neither the number of threads nor
/// on what C held before when it is not accumulated into.
pub fn grouped_matmul<S: Stored, C: Stored<Real = S::Real>>(
    pool: &Pool,
    shape: GroupedShape,
    segments: &Segments,
    a: &[S],
    b: &[S],
    c: &mut [C],
    accumulate: bool,
) {
    let GroupedShape { stored, n, k } = shape;
    let rows = segments.rows();
    let weights = segments.blocks() * k * n;
    let (of_b, of_c) = if stored == Transpose::Tn { (rows * n, weights) } else { (weights, rows * n) };
    assert_eq!((a.len(), b.len(), c.len()), (rows * k, of_b, of_c), "{shape:?} of {segments:?}");
    let products = Products { shape, segments, a, b, c: Disjoint::new(c), accumulate };
    if products.are_faster_apart() { products.run_apart(pool) } else { products.run_by_tiles(pool) }
}

impl<S: Stored, C> Products<'_, S, C> {
    /// Whether rows are better brought together: where the processor multiplies what is stored itself, and for weight
    /// gradients of what need not be widened.
    fn are_faster_apart(&self) -> bool {
        #[cfg(target_arch = "x86_64")]
        if bf16_instructions() && S::NAME == "bf16" {
            return true;
        }
        self.shape.stored == Transpose::Tn && same::<S, S::Real>(self.a).is_some()
    }
}
