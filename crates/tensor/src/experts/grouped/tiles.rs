//! Products of experts by tiles of C: an expert has few rows, so that bringing its weights into the form that they are
//! multiplied in costs more than in one large product, and must be done once for the rows of all segments.
//!
//! Tiles are the same for any number of threads. Letters: C = op(A) op(B) of a block, rows and columns of it.

use super::{GroupedShape, Products, Segments};
use crate::dispatch::vectorised;
use crate::element::Element;
use crate::matmul::Transpose;
use crate::pool::Pool;
use crate::product::{Product, blocks, depth};
use crate::stored::{Stored, same, widen_all};
use crate::turn::turn_widened;
use crate::widened::store;
use gemm_common::Parallelism;
use std::ops::Range;

/// Rows of a tile, a multiple of 64: its sums stay in L2 beside the columns of B.
const ROWS: usize = 512;
/// Columns of a tile, a multiple of 64.
const COLS: usize = 256;
/// Columns of a panel of B: the widest side of `gemm`'s micro-kernel, which reads panels as if it had packed them.
const PANEL: usize = 64;
/// Rows of B that are read side by side: the processor then fetches all of them ahead.
const STREAMS: usize = 16;
/// Rows that are multiplied at a time: the most for which `gemm` does not pack B itself.
const STRIP: usize = 48;

impl<S: Stored, C: Stored<Real = S::Real>> Products<'_, S, C> {
    /// Computes C.
    pub(super) fn run_by_tiles(&self, pool: &Pool) {
        let GroupedShape { stored, n, k } = self.shape;
        let weights = Segments::equal(self.segments.blocks(), 1, k);
        let (of_c, of_b) = if stored == Transpose::Tn { (&weights, self.segments) } else { (self.segments, &weights) };
        let of_block = |block| blocks(0..of_c.rows_of(block), ROWS).map(move |rows| (block, rows));
        let rows: Vec<_> = (0..of_c.blocks()).flat_map(of_block).collect();
        let cols: Vec<_> = blocks(0..n, COLS).collect();
        pool.each(0..rows.len() * cols.len(), |i| {
            let (block, rows) = rows[i / cols.len()].clone();
            let cols = cols[i % cols.len()].clone();
            Tile { products: self, of_c, of_b, block, rows, cols }.run();
        });
    }
}

/// Rows and columns of a block's C. No other tile has them.
struct Tile<'a, S, C> {
    products: &'a Products<'a, S, C>,
    /// Where the rows of blocks lie in C.
    of_c: &'a Segments,
    /// Where those that are summed over lie in B. Of `Nt`, whose B has them as columns, only their number counts.
    of_b: &'a Segments,
    block: usize,
    rows: Range<usize>,
    cols: Range<usize>,
}

impl<S: Stored, C: Stored<Real = S::Real>> Tile<'_, S, C> {
    fn run(&self) {
        let contracted = self.of_b.rows_of(self.block);
        if contracted == 0 {
            return self.clear();
        }
        let height = self.rows.len();
        let deepest = depth(contracted);
        let width = self.cols.len().next_multiple_of(PANEL);
        S::Real::with_scratch(height * width + (width + STRIP) * deepest, |scratch| {
            let (sums, scratch) = scratch.split_at_mut(height * width);
            let (right, left) = scratch.split_at_mut(width * deepest);
            for top in (0..contracted).step_by(deepest) {
                let part = top..contracted.min(top + deepest);
                self.bring_right(&part, right);
                let mut done = 0;
                for strip in self.strips() {
                    let (left, stride) = self.left(&strip, &part, left);
                    for panel in 0..width / PANEL {
                        let right = &right[panel * part.len() * PANEL..][..part.len() * PANEL];
                        let sums = &mut sums[(panel * height + done) * PANEL..][..strip.len() * PANEL];
                        multiply(part.len(), left, stride, right, sums, top > 0);
                    }
                    done += strip.len();
                }
            }
            self.store(sums);
        });
    }

    /// Whether the rows of a block are summed over, and those of C the columns of A.
    fn turned(&self) -> bool {
        self.products.shape.stored == Transpose::Tn
    }

    /// The tile's rows among those of all blocks' C, piece by piece.
    fn pieces(&self) -> impl Iterator<Item = Range<usize>> + Clone {
        self.of_c.pieces(self.block, self.rows.clone())
    }

    /// The same, of each piece as many rows as are multiplied at a time.
    fn strips(&self) -> impl Iterator<Item = Range<usize>> {
        let strip = |piece: &Range<usize>, first: usize| first..piece.end.min(first + STRIP);
        self.pieces().flat_map(move |piece| piece.clone().step_by(STRIP).map(move |first| strip(&piece, first)))
    }

    /// to [panels, part, PANEL] = the tile's columns of op(B), at the given places of what is summed over.
    fn bring_right(&self, part: &Range<usize>, to: &mut [S::Real]) {
        let Products { shape: GroupedShape { stored, n, k }, b, .. } = *self.products;
        if stored == Transpose::Nt {
            for (panel, first) in self.cols.clone().step_by(PANEL).enumerate() {
                let count = PANEL.min(self.cols.end - first);
                let to = &mut to[panel * part.len() * PANEL..];
                let from = &b[(self.block * n + first) * k + part.start..];
                turn_widened(count, part.len(), from, k, to, PANEL);
            }
            return;
        }
        let mut done = 0;
        for piece in self.of_b.pieces(self.block, part.clone()) {
            let from = &b[piece.start * n + self.cols.start..(piece.end - 1) * n + self.cols.end];
            widen_panels(piece.len(), self.cols.len(), from, n, &mut to[done * PANEL..], part.len() * PANEL);
            done += piece.len();
        }
    }

    /// Rows of op(A), those of a strip, at the given places of what is summed over; and their stride. They are brought
    /// into `to` unless they are there as they are multiplied.
    fn left<'t>(&'t self, strip: &Range<usize>, part: &Range<usize>, to: &'t mut [S::Real]) -> (&'t [S::Real], usize) {
        let Products { shape: GroupedShape { k, .. }, a, .. } = *self.products;
        if self.turned() {
            let mut done = 0;
            for piece in self.of_b.pieces(self.block, part.clone()) {
                let from = &a[piece.start * k + strip.start - self.block * k..];
                turn_widened(piece.len(), strip.len(), from, k, &mut to[done..], part.len());
                done += piece.len();
            }
        } else if let Some(a) = same(a) {
            return (a.get(strip.start * k + part.start..).unwrap_or_default(), k);
        } else {
            for (row, to) in strip.clone().zip(to.chunks_exact_mut(part.len().max(1))) {
                let from = &a[row * k..][part.clone()];
                vectorised(
                    #[inline(always)]
                    || widen_all(to, from),
                );
            }
        }
        (to, part.len())
    }

    /// C = (or += if it is accumulated into) sums [panels, rows, PANEL].
    fn store(&self, sums: &[S::Real]) {
        self.each_row(|row, c| {
            for (panel, c) in c.chunks_mut(PANEL).enumerate() {
                let sums = &sums[(panel * self.rows.len() + row) * PANEL..][..c.len()];
                store(c, sums, self.products.accumulate);
            }
        });
    }

    /// What is summed is nothing.
    fn clear(&self) {
        if !self.products.accumulate {
            self.each_row(|_, c| c.fill(C::ZERO));
        }
    }

    /// Calls `work` with every row of the tile's C, numbered.
    fn each_row(&self, mut work: impl FnMut(usize, &mut [C])) {
        let Products { shape: GroupedShape { n, .. }, c, .. } = self.products;
        for (row, place) in self.pieces().flatten().enumerate() {
            // SAFETY: this tile alone has these columns of the row, once.
            work(row, unsafe { c.part(place * n + self.cols.start, self.cols.len()) });
        }
    }
}

/// to [panels, rows, PANEL], panels `panel` elements apart, = x [rows, cols] of row stride `stride`, widened.
fn widen_panels<S: Stored>(rows: usize, cols: usize, x: &[S], stride: usize, to: &mut [S::Real], panel: usize) {
    vectorised(
        #[inline(always)]
        || {
            for top in (0..rows).step_by(STREAMS) {
                for (i, left) in (0..cols).step_by(PANEL).enumerate() {
                    let width = PANEL.min(cols - left);
                    for row in top..rows.min(top + STREAMS) {
                        widen_all(&mut to[i * panel + row * PANEL..][..width], &x[row * stride + left..][..width]);
                    }
                }
            }
        },
    );
}

/// c [rows, PANEL] = (or += if `accumulate`) a [rows, k], of the given stride, times b [k, PANEL].
fn multiply<T: Element>(k: usize, a: &[T], stride: usize, b: &[T], c: &mut [T], accumulate: bool) {
    let m = c.len() / PANEL;
    let n = PANEL;
    Product::of_rows((m, n, k), a, stride, b, c, accumulate).run(0..m, 0..n, Parallelism::None);
}
