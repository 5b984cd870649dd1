//! Matrix products, by the `gemm` crate.
//!
//! Letters: C [m, n] = op(A) op(B), contracted over k.

use crate::element::Element;
use crate::pool::{Disjoint, Pool};
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
    fn lhs(self, m: usize, k: usize) -> (usize, usize) {
        if self == Transpose::Tn { (1, m) } else { (k, 1) }
    }

    /// Strides of op(B) along k and n.
    fn rhs(self, n: usize, k: usize) -> (usize, usize) {
        if self == Transpose::Nt { (1, k) } else { (n, 1) }
    }
}

/// The smallest piece along a cut dimension, and along the other. `gemm` takes other code paths,
/// with other rounding, for vectors, for products of up to 16 x 16 and of up to 64 x 64; pieces
/// of at least this size never enter one that the whole product would not.
const CUT: usize = 128;
const UNCUT: usize = 16;

/// C = op(A) op(B), or C += op(A) op(B) if `accumulate`: 2 m n k FLOPs. Bits depend on neither
/// the number of threads nor on what C held before when it is not accumulated into.
pub fn matmul<T: Element>(
    pool: &Pool,
    layout: Transpose,
    m: usize,
    n: usize,
    k: usize,
    a: &[T],
    b: &[T],
    c: &mut [T],
    accumulate: bool,
) {
    let product = Product::new(layout, m, n, k, a, b, c, accumulate);
    let turned = layout == Transpose::Nt && m >= TURN_FROM && n >= CUT && k > 0;
    let (len, by_rows) = if turned || n >= m { (n, false) } else { (m, true) };
    let most = if m.min(n) < UNCUT { 1 } else { (len / CUT).max(1) };
    let pieces = pool.threads().min(most);
    pool.each(0..pieces, |i| {
        let piece = cut(len, pieces, i)..cut(len, pieces, i + 1);
        match (turned, by_rows) {
            (true, _) => product.run_turned(piece),
            (false, true) => product.run(piece, 0..n, Parallelism::None),
            (false, false) => product.run(0..m, piece, Parallelism::None),
        }
    });
}

/// Where piece `i` of `pieces` starts: on a multiple of 64, the micro-kernel's widest side.
fn cut(len: usize, pieces: usize, i: usize) -> usize {
    if i == pieces { len } else { (len * i / pieces).next_multiple_of(64).min(len) }
}

/// The same product by the library's own threads, for comparison: what a caller without this
/// crate would get from `gemm` with `threads` threads of rayon's current pool.
pub fn library_matmul<T: Element>(
    threads: usize,
    layout: Transpose,
    m: usize,
    n: usize,
    k: usize,
    a: &[T],
    b: &[T],
    c: &mut [T],
    accumulate: bool,
) {
    let product = Product::new(layout, m, n, k, a, b, c, accumulate);
    let parallelism = if threads == 1 { Parallelism::None } else { Parallelism::Rayon(threads) };
    product.run(0..m, 0..n, parallelism);
}

/// A product whose pieces of C can be computed apart.
struct Product<'a, T> {
    k: usize,
    a: &'a [T],
    b: &'a [T],
    c: Disjoint<'a, T>,
    a_strides: (usize, usize),
    b_strides: (usize, usize),
    c_stride: usize,
    accumulate: bool,
}

impl<'a, T: Element> Product<'a, T> {
    fn new(
        layout: Transpose,
        m: usize,
        n: usize,
        k: usize,
        a: &'a [T],
        b: &'a [T],
        c: &'a mut [T],
        accumulate: bool,
    ) -> Self {
        assert_eq!((a.len(), b.len(), c.len()), (m * k, k * n, m * n), "{layout:?} {m}x{n}x{k}");
        let (a_strides, b_strides) = (layout.lhs(m, k), layout.rhs(n, k));
        Product { k, a, b, c: Disjoint::new(c), a_strides, b_strides, c_stride: n, accumulate }
    }

    /// Computes the given columns of C from blocks of B that are transposed into this thread's
    /// scratch first; no two calls at a time may share any. `gemm` would transpose them while it
    /// packs, 64 rows at a time, which thrash the cache where k is a multiple of 256.
    fn run_turned(&self, cols: Range<usize>) {
        let (depth, width) = (block(self.k, TURN_K, 1), block(cols.len(), TURN_N, 64));
        let stride = width + LINE;
        T::with_scratch(depth * stride, |turned| {
            for left in cols.clone().step_by(width) {
                let cols = left..cols.end.min(left + width);
                for top in (0..self.k).step_by(depth) {
                    let inner = top..self.k.min(top + depth);
                    turn(self.b, self.k, cols.clone(), inner.clone(), turned, stride);
                    let a = &self.a[top..];
                    let accumulate = self.accumulate || top > 0;
                    self.gemm(0..self.m, cols.clone(), inner.len(), a, turned, (stride, 1), accumulate, Parallelism::None);
                }
            }
        });
    }

    /// Computes the given rows and columns of C; no two calls at a time may share any.
    fn run(&self, rows: std::ops::Range<usize>, cols: std::ops::Range<usize>, parallelism: Parallelism) {
        let (a_m, a_k) = self.a_strides;
        let (b_k, b_n) = self.b_strides;
        // SAFETY: `new` checked the lengths, so every element of the piece lies in its slice;
        // callers give disjoint pieces of C. Strides fit `isize` since the slices do.
        unsafe {
            gemm::gemm(
                rows.len(),
                cols.len(),
                self.k,
                self.c.at(rows.start * self.c_stride + cols.start),
                1,
                self.c_stride as isize,
                self.accumulate,
                self.a.as_ptr().wrapping_add(rows.start * a_m),
                a_k as isize,
                a_m as isize,
                self.b.as_ptr().wrapping_add(cols.start * b_n),
                b_n as isize,
                b_k as isize,
                T::ONE,
                T::ONE,
                false,
                false,
                false,
                parallelism,
            );
        }
    }
}
