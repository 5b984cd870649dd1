//! Matrix products: by the crates `gemm-f32` and `gemm-f64`, and of `bf16` by own kernels where the processor has instructions for it.
//!
//! Letters: C [m, n] = op(A) op(B), contracted over k.

#[cfg(target_arch = "x86_64")]
use crate::bf16_product::bf16_product;
#[cfg(target_arch = "x86_64")]
use crate::dispatch::bf16_instructions;
use crate::element::Element;
use crate::pool::Pool;
use crate::product::{Product, cut};
use crate::shape::ProductShape;
use crate::stored::{Stored, same, same_mut};
use crate::widened::widened_product;
use gemm_common::Parallelism;
#[cfg(target_arch = "x86_64")]
use half::bf16;
use std::ops::Range;

/// How the two operands of a product are stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Transpose {
    /// A [m, k], B [k, n]: a forward product.
    Nn,
    /// A [m, k], B [n, k]: an input gradient.
    Nt,
    /// A [k, m], B [k, n]: a weight gradient.
    Tn,
}

impl Transpose {
    /// The three layouts.
    pub const ALL: [Transpose; 3] = [Transpose::Nn, Transpose::Nt, Transpose::Tn];

    /// Strides of op(A) along m and k.
    pub(crate) fn lhs(self, m: usize, k: usize) -> (usize, usize) {
        if self == Transpose::Tn { (1, m) } else { (k, 1) }
    }

    /// Strides of op(B) along k and n.
    pub(crate) fn rhs(self, n: usize, k: usize) -> (usize, usize) {
        if self == Transpose::Nt { (1, k) } else { (n, 1) }
    }
}

/// The smallest piece along a cut dimension, and along the other. `gemm` takes other code paths,
/// with other rounding, for vectors, for products of up to 16 x 16 and of up to 64 x 64; pieces
/// of at least this size never enter one that the whole product would not.
const CUT: usize = 128;
const UNCUT: usize = 16;
/// The other operand's size from which it pays to transpose an operand apart.
const TURN_FROM: usize = 64;

/// C = op(A) op(B), or C += op(A) op(B) if `accumulate`: 2 m n k FLOPs. Bits depend on neither
/// the number of threads nor on what C held before when it is not accumulated into.
///
/// 16-bit operands are multiplied exactly and summed in `f32`; an element of a 16-bit C is rounded
/// once, after what it held was added to the whole sum. Processors that multiply `bf16` themselves
/// take subnormal operands and sums for 0.
pub fn matmul<S: Stored, C: Stored<Real = S::Real>>(
    pool: &Pool,
    shape: ProductShape,
    a: &[S],
    b: &[S],
    c: &mut [C],
    accumulate: bool,
) {
    if let (Some(a), Some(b)) = (same(a), same(b))
        && let Some(c) = same_mut(c)
    {
        return product::<S::Real>(pool, shape, a, b, c, accumulate);
    }
    #[cfg(target_arch = "x86_64")]
    if bf16_instructions()
        && let (Some(a), Some(b)) = (same(a), same(b))
    {
        if let Some(c) = same_mut::<C, f32>(c) {
            return bf16_product(pool, shape, a, b, c, accumulate);
        }
        if let Some(c) = same_mut::<C, bf16>(c) {
            return bf16_product(pool, shape, a, b, c, accumulate);
        }
    }
    widened_product(pool, shape, a, b, c, accumulate);
}

/// The product where nothing has to be converted.
fn product<T: Element>(pool: &Pool, shape: ProductShape, a: &[T], b: &[T], c: &mut [T], accumulate: bool) {
    let ProductShape { stored: layout, m, n, .. } = shape;
    let product = Product::new(shape, a, b, c, accumulate);
    let turn_a = layout == Transpose::Tn && m >= n && n >= TURN_FROM;
    let turn_b = layout == Transpose::Nt && m >= TURN_FROM && n >= CUT;
    let by_rows = !turn_b && m >= n;
    each_piece(pool, if by_rows { m } else { n }, m.min(n), |piece| match (turn_a, turn_b, by_rows) {
        (true, ..) => product.run_turned_a(piece),
        (_, true, _) => product.run_turned_b(piece),
        (_, _, true) => product.run(piece, 0..n, Parallelism::None),
        _ => product.run(0..m, piece, Parallelism::None),
    });
}

/// Calls `work` with the pieces, one per thread, that a product is cut into along its longer side of `len`, the other
/// being `other`.
pub(crate) fn each_piece(pool: &Pool, len: usize, other: usize, work: impl Fn(Range<usize>) + Sync) {
    let most = if other < UNCUT { 1 } else { (len / CUT).max(1) };
    let pieces = pool.threads().min(most);
    pool.each(0..pieces, |i| work(cut(len, pieces, i)..cut(len, pieces, i + 1)));
}

/// The same product by the library's own threads, for comparison: what a caller without this
/// crate would get from `gemm` with `threads` threads of rayon's current pool.
pub fn library_matmul<T: Element>(
    threads: usize,
    shape: ProductShape,
    a: &[T],
    b: &[T],
    c: &mut [T],
    accumulate: bool,
) {
    let ProductShape { m, n, .. } = shape;
    let product = Product::new(shape, a, b, c, accumulate);
    let parallelism = if threads == 1 { Parallelism::None } else { Parallelism::Rayon(threads) };
    product.run(0..m, 0..n, parallelism);
}
