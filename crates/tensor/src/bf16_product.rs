//! Products of `bf16` by the processor's own instruction for it, which adds two products to each lane of a vector of
//! `f32`: operands are packed in pairs along k, block by block.
//!
//! Letters: C [m, n] = op(A) op(B), contracted over k. Every element of C is summed in the same order wherever it lies,
//! so that pieces can be cut anywhere.

mod kernel;
mod pack;

use crate::matmul::{Transpose, each_piece};
use crate::pool::{Disjoint, Pool};
use crate::product::blocks;
use crate::shape::ProductShape;
use crate::stored::Stored;
use half::bf16;
use kernel::{COLS, ROWS, Tile, multiply};
use pack::{Lines, pack};
use std::ops::Range;

/// The depth of a block: of most products all of k, so that C is written once.
const DEPTH: usize = 2048;
/// Rows of a packed block of A, which stays in L2 with a panel of B.
const BLOCK_ROWS: usize = 14 * 16;
/// Columns of a packed block of B, a multiple of 64.
const BLOCK_COLS: usize = 512;
/// Rows of C whose sums are kept where k is deeper than a block, a multiple of 64.
const SUM_ROWS: usize = 1024;

/// [`crate::matmul`] of `bf16`, where [`crate::dispatch::bf16_instructions`] are present.
pub(crate) fn bf16_product<C: Stored<Real = f32>>(
    pool: &Pool,
    shape: ProductShape,
    a: &[bf16],
    b: &[bf16],
    c: &mut [C],
    accumulate: bool,
) {
    let ProductShape { stored, m, n, k } = shape;
    shape.check(a.len(), b.len(), c.len());
    let a = Lines { values: a, stride: if stored == Transpose::Tn { m } else { k }, along_k: stored != Transpose::Tn };
    let b = Lines { values: b, stride: if stored == Transpose::Nt { k } else { n }, along_k: stored == Transpose::Nt };
    let c = Disjoint::new(c);
    let product = Product { n, k, a, b, c, accumulate };
    each_piece(pool, m.max(n), usize::MAX, |piece| {
        let (rows, cols) = if m >= n { (piece, 0..n) } else { (0..m, piece) };
        for cols in blocks(cols, BLOCK_COLS) {
            for rows in blocks(rows.clone(), SUM_ROWS) {
                product.run(rows, cols.clone());
            }
        }
    });
}

/// A product whose pieces of C can be computed apart.
struct Product<'a, C> {
    n: usize,
    k: usize,
    a: Lines<'a>,
    b: Lines<'a>,
    c: Disjoint<'a, C>,
    accumulate: bool,
}

impl<C: Stored<Real = f32>> Product<'_, C> {
    /// Computes the given rows and columns of C; no two calls at a time may share any.
    fn run(&self, rows: Range<usize>, cols: Range<usize>) {
        let passes = self.k.div_ceil(DEPTH).max(1);
        // Of even depths, all but the last.
        let depth = self.k.div_ceil(passes).next_multiple_of(2);
        let height = BLOCK_ROWS.min(rows.len()).next_multiple_of(ROWS);
        let width = cols.len().next_multiple_of(COLS);
        let sums = if passes > 1 { rows.len() * cols.len() } else { 0 };
        f32::with_scratch(sums, |sums| {
            let sums = Disjoint::new(sums);
            bf16::with_scratch((height + width) * depth, |scratch| {
                let (right, left) = scratch.split_at_mut(width * depth);
                for pass in 0..passes {
                    let part = pass * depth..self.k.min((pass + 1) * depth);
                    let right = pack::<COLS>(self.b, cols.clone(), part.clone(), right);
                    for first in rows.clone().step_by(BLOCK_ROWS) {
                        let block = first..rows.end.min(first + BLOCK_ROWS);
                        let left = pack::<ROWS>(self.a, block.clone(), part.clone(), left);
                        let tile = Tile {
                            pairs: part.len().div_ceil(2),
                            rows: block.len(),
                            cols: cols.len(),
                            c: &self.c,
                            c_first: first * self.n + cols.start,
                            c_row: self.n,
                            sums: &sums,
                            sums_first: (first - rows.start) * cols.len(),
                            begins: pass == 0,
                            ends: pass + 1 == passes,
                            accumulate: self.accumulate,
                        };
                        multiply(&tile, left, right);
                    }
                }
            });
        });
    }
}
