//! One piece of a matrix product, as calls of the `gemm` crate.
//!
//! Letters: C [m, n] = op(A) op(B), contracted over k.

use crate::element::Element;
use crate::matmul::Transpose;
use crate::pool::Disjoint;
use crate::turn::turn;
use gemm::Parallelism;
use std::ops::Range;

/// The largest block of B that is transposed at a time: it stays in L2 beside `gemm`'s own copy.
/// `TURNED_K` is also how deep `gemm` itself goes before it adds to C.
const TURNED_K: usize = 512;
const TURNED_N: usize = 256;
/// Elements added to a row of the transposed block, so that the lines of one of its columns
/// fall into different sets of the cache.
const LINE: usize = 16;

/// A product whose pieces of C can be computed apart.
pub(crate) struct Product<'a, T> {
    m: usize,
    k: usize,
    a: &'a [T],
    b: &'a [T],
    c: Disjoint<'a, T>,
    /// Along m and k.
    a_strides: (usize, usize),
    /// Along k and n.
    b_strides: (usize, usize),
    c_stride: usize,
    accumulate: bool,
}

/// The columns and the depth that one call of `gemm` covers, and B's elements for them.
struct Right<'a, T> {
    cols: Range<usize>,
    inner: Range<usize>,
    b: &'a [T],
    strides: (usize, usize),
}

impl<'a, T: Element> Product<'a, T> {
    pub(crate) fn new(
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
        Product { m, k, a, b, c: Disjoint::new(c), a_strides, b_strides, c_stride: n, accumulate }
    }

    /// Computes the given rows and columns of C; no two calls at a time may share any.
    pub(crate) fn run(&self, rows: Range<usize>, cols: Range<usize>, parallelism: Parallelism) {
        let b = self.b.get(cols.start * self.b_strides.1..).unwrap_or_default();
        let right = Right { cols, inner: 0..self.k, b, strides: self.b_strides };
        self.call(rows, right, self.accumulate, parallelism);
    }

    /// Computes the given columns of C where B is stored [n, k], from blocks of it that are
    /// transposed into this thread's scratch; no two calls at a time may share any. `gemm` alone
    /// would read 64 rows of B at a time, which evict each other where k is a multiple of 256.
    pub(crate) fn run_turned(&self, cols: Range<usize>) {
        let depth = block(self.k, TURNED_K, 1);
        let width = block(cols.len(), TURNED_N, 64);
        let stride = width + LINE;
        T::with_scratch(depth * stride, |turned| {
            for left in cols.clone().step_by(width) {
                let cols = left..cols.end.min(left + width);
                for top in (0..self.k.max(1)).step_by(depth) {
                    let inner = top..self.k.min(top + depth);
                    turn(cols.len(), inner.len(), &self.b[cols.start * self.k + top..], self.k, turned, stride);
                    let right = Right { cols: cols.clone(), inner, b: turned, strides: (stride, 1) };
                    self.call(0..self.m, right, self.accumulate || top > 0, Parallelism::None);
                }
            }
        });
    }

    fn call(&self, rows: Range<usize>, right: Right<'_, T>, accumulate: bool, parallelism: Parallelism) {
        let (a_m, a_k) = self.a_strides;
        let (b_k, b_n) = right.strides;
        // SAFETY: `new` checked the lengths, so every element of the piece lies in its slice;
        // callers give disjoint pieces of C. Strides fit `isize` since the slices do.
        unsafe {
            gemm::gemm(
                rows.len(),
                right.cols.len(),
                right.inner.len(),
                self.c.at(rows.start * self.c_stride + right.cols.start),
                1,
                self.c_stride as isize,
                accumulate,
                self.a.as_ptr().wrapping_add(rows.start * a_m + right.inner.start * a_k),
                a_k as isize,
                a_m as isize,
                right.b.as_ptr(),
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

/// The size of equal blocks of at most `most` that cover `len`, a multiple of `unit`, never 0.
fn block(len: usize, most: usize, unit: usize) -> usize {
    len.div_ceil(len.div_ceil(most).max(1)).next_multiple_of(unit).max(1)
}
