//! Matrix products, by the `gemm` crate.
//!
//! Letters: C [m, n] = op(A) op(B), contracted over k.

use crate::element::Element;
use crate::pool::Pool;
use crate::product::{Product, cut};
use crate::shape::ProductShape;
use gemm::Parallelism;

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
pub fn matmul<T: Element>(pool: &Pool, shape: ProductShape, a: &[T], b: &[T], c: &mut [T], accumulate: bool) {
    let ProductShape { stored: layout, m, n, .. } = shape;
    let product = Product::new(shape, a, b, c, accumulate);
    let turn_a = layout == Transpose::Tn && m >= n && n >= TURN_FROM;
    let turn_b = layout == Transpose::Nt && m >= TURN_FROM && n >= CUT;
    let by_rows = !turn_b && m >= n;
    let len = if by_rows { m } else { n };
    let most = if m.min(n) < UNCUT { 1 } else { (len / CUT).max(1) };
    let pieces = pool.threads().min(most);
    pool.each(0..pieces, |i| {
        let piece = cut(len, pieces, i)..cut(len, pieces, i + 1);
        match (turn_a, turn_b, by_rows) {
            (true, ..) => product.run_turned_a(piece),
            (_, true, _) => product.run_turned_b(piece),
            (_, _, true) => product.run(piece, 0..n, Parallelism::None),
            _ => product.run(0..m, piece, Parallelism::None),
        }
    });
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
