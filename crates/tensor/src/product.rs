//! One piece of a matrix product, as calls of the crates `gemm-f32` and `gemm-f64`.
//!
//! Letters: C [m, n] = op(A) op(B), contracted over k.

use crate::element::Element;
use crate::pool::Disjoint;
use crate::shape::ProductShape;
use crate::turn::turn;
use gemm_common::Parallelism;
use std::ops::Range;

/// How deep a transposed block is: as deep as `gemm` itself goes before it adds to C.
const DEPTH: usize = 512;
/// Rows of a transposed block of B, which stays in L2 beside `gemm`'s own copy of it.
const COLS: usize = 256;
/// Columns of a transposed block of A, for each of which `gemm` packs B anew.
const ROWS: usize = 1024;
/// Elements added to a row of a transposed block, so that the lines of one of its columns fall
/// into different sets of the cache.
const LINE: usize = 16;

/// A product whose pieces of C can be computed apart.
pub(crate) struct Product<'a, T> {
    m: usize,
    n: usize,
    k: usize,
    a: Operand<'a, T>,
    b: Operand<'a, T>,
    c: Disjoint<'a, T>,
    accumulate: bool,
}

/// A stored matrix, and its strides along the product's two dimensions.
#[derive(Clone, Copy)]
struct Operand<'a, T> {
    values: &'a [T],
    strides: (usize, usize),
}

impl<'a, T: Element> Product<'a, T> {
    pub(crate) fn new(shape: ProductShape, a: &'a [T], b: &'a [T], c: &'a mut [T], accumulate: bool) -> Self {
        let ProductShape { stored, m, n, k } = shape;
        shape.check(a.len(), b.len(), c.len());
        let a = Operand { values: a, strides: stored.lhs(m, k) };
        let b = Operand { values: b, strides: stored.rhs(n, k) };
        Product { m, n, k, a, b, c: Disjoint::new(c), accumulate }
    }

    /// A [m, k] by B [k, n] where rows of A begin `stride` elements apart.
    pub(crate) fn of_rows(
        (m, n, k): (usize, usize, usize),
        a: &'a [T],
        stride: usize,
        b: &'a [T],
        c: &'a mut [T],
        accumulate: bool,
    ) -> Self {
        assert!(m == 0 || stride >= k && a.len() >= (m - 1) * stride + k, "{m} rows of {k}");
        assert_eq!((b.len(), c.len()), (k * n, m * n), "{m}x{n}x{k}");
        let a = Operand { values: a, strides: (stride, 1) };
        let b = Operand { values: b, strides: (n, 1) };
        Product { m, n, k, a, b, c: Disjoint::new(c), accumulate }
    }

    /// Computes the given rows and columns of C; no two calls at a time may share any.
    pub(crate) fn run(&self, rows: Range<usize>, cols: Range<usize>, parallelism: Parallelism) {
        let a = self.a.from(rows.start, 0);
        let b = self.b.from(0, cols.start);
        self.call(rows, cols, self.k, a, b, self.accumulate, parallelism);
    }

    /// Computes the given columns of C where B is stored [n, k], from blocks of it that are
    /// transposed into this thread's scratch; no two calls at a time may share any. `gemm` alone
    /// would read 64 rows of B at a time, which evict each other where k is a multiple of 256.
    pub(crate) fn run_turned_b(&self, cols: Range<usize>) {
        let depth = depth(self.k);
        let stride = COLS + LINE;
        T::with_scratch(depth * stride, |turned| {
            for cols in blocks(cols, COLS) {
                for top in (0..self.k.max(1)).step_by(depth) {
                    let depth = depth.min(self.k - top);
                    let b = &self.b.values[cols.start * self.k + top..];
                    turn(cols.len(), depth, b, self.k, turned, stride);
                    let a = self.a.from(0, top);
                    let b = Operand { values: turned, strides: (stride, 1) };
                    self.call(0..self.m, cols.clone(), depth, a, b, self.accumulate || top > 0, Parallelism::None);
                }
            }
        });
    }

    /// The same for rows of C where A is stored [k, m]: `gemm` alone would read it by 6 elements
    /// of each row.
    pub(crate) fn run_turned_a(&self, rows: Range<usize>) {
        let depth = depth(self.k);
        let stride = DEPTH + LINE;
        T::with_scratch(ROWS * stride, |turned| {
            for rows in blocks(rows, ROWS) {
                for top in (0..self.k.max(1)).step_by(depth) {
                    let depth = depth.min(self.k - top);
                    let a = self.a.from(rows.start, top).values;
                    turn(depth, rows.len(), a, self.m, turned, stride);
                    let a = Operand { values: turned, strides: (stride, 1) };
                    let b = self.b.from(top, 0);
                    self.call(rows.clone(), 0..self.n, depth, a, b, self.accumulate || top > 0, Parallelism::None);
                }
            }
        });
    }

    fn call(
        &self,
        rows: Range<usize>,
        cols: Range<usize>,
        depth: usize,
        a: Operand<'_, T>,
        b: Operand<'_, T>,
        accumulate: bool,
        parallelism: Parallelism,
    ) {
        let m = rows.len();
        let n = cols.len();
        let start = rows.start * self.n + cols.start;
        let a = (a.values.as_ptr(), a.strides.1 as isize, a.strides.0 as isize);
        let b = (b.values.as_ptr(), b.strides.1 as isize, b.strides.0 as isize);
        let stride = self.n as isize;
        // The library's kernels go down columns of C: those of its transpose, B' A', lie one after the other.
        let turned = |(at, columns, rows): (*const T, isize, isize)| (at, rows, columns);
        let (m, n, columns, rows, a, b) =
            if stride > 1 { (n, m, stride, 1, turned(b), turned(a)) } else { (m, n, 1, stride, a, b) };
        let product = T::library_product();
        // SAFETY: `new` checked the lengths, so every element of the piece lies in its slice;
        // callers give disjoint pieces of C. Strides fit `isize` since the slices do.
        unsafe {
            product(
                m,
                n,
                depth,
                self.c.at(start),
                columns,
                rows,
                accumulate,
                a.0,
                a.1,
                a.2,
                b.0,
                b.1,
                b.2,
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

impl<'a, T> Operand<'a, T> {
    /// The part that starts at the given place along the two dimensions.
    fn from(self, first: usize, second: usize) -> Self {
        let start = first * self.strides.0 + second * self.strides.1;
        Operand { values: self.values.get(start..).unwrap_or_default(), strides: self.strides }
    }
}

/// Where piece `i` of `pieces` of 0..len starts: on a multiple of 64, the micro-kernel's widest
/// side. A piece is shorter than the mean by less than 64.
pub(crate) fn cut(len: usize, pieces: usize, i: usize) -> usize {
    if i == pieces { len } else { (len * i / pieces).next_multiple_of(64).min(len) }
}

/// The depth of equal blocks that cover k.
pub(crate) fn depth(k: usize) -> usize {
    k.div_ceil(k.div_ceil(DEPTH).max(1)).max(1)
}

/// Even blocks of a range, none longer than `most`, a multiple of 64.
pub(crate) fn blocks(range: Range<usize>, most: usize) -> impl Iterator<Item = Range<usize>> {
    let start = range.start;
    let len = range.len();
    let pieces = len.div_ceil(most);
    (0..pieces).map(move |i| start + cut(len, pieces, i)..start + cut(len, pieces, i + 1))
}
