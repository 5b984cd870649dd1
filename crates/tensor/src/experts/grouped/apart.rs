//! Products of experts, each computed by [`matmul`] of rows that are brought together: for processors that multiply what
//! is stored themselves, and for weight gradients of what need not be widened, of which tiles have a quarter less speed.

use super::{GroupedShape, Products};
use crate::matmul::{Transpose, matmul};
use crate::pool::Pool;
use crate::shape::ProductShape;
use crate::stored::Stored;
use std::cmp::Reverse;
use std::ops::Range;

impl<S: Stored, C: Stored<Real = S::Real>> Products<'_, S, C> {
    /// Computes C. All threads share the product of a block that has more than a thread's part of the rows; each of the
    /// others is computed by one thread, the longest first.
    pub(super) fn run_apart(&self, pool: &Pool) {
        let rows = |block: &usize| self.segments.rows_of(*block);
        let (shared, mut own): (Vec<_>, Vec<_>) =
            (0..self.segments.blocks()).partition(|block| rows(block) * pool.threads() > self.segments.rows());
        shared.into_iter().for_each(|block| self.block_apart(pool, block));
        own.sort_by_key(|block| Reverse(rows(block)));
        let alone = Pool::new(1);
        pool.each(own.into_iter(), |block| self.block_apart(&alone, block));
    }

    fn block_apart(&self, pool: &Pool, block: usize) {
        match self.shape.stored {
            Transpose::Tn => self.weight_gradient(pool, block),
            _ => self.rows_product(pool, block),
        }
    }

    /// A block of `Tn`.
    fn weight_gradient(&self, pool: &Pool, block: usize) {
        let GroupedShape { stored, n, k: m } = self.shape;
        // SAFETY: no other block writes this one's part.
        let c = unsafe { self.c.part(block * m * n, m * n) };
        let product = ProductShape { stored, m, n, k: self.segments.rows_of(block) };
        if product.k == 0 {
            if !self.accumulate {
                c.fill(C::ZERO);
            }
            return;
        }
        self.together(block, self.a, m, |a| {
            self.together(block, self.b, n, |b| matmul(pool, product, a, b, c, self.accumulate));
        });
    }

    /// A block of `Nn` or `Nt`.
    fn rows_product(&self, pool: &Pool, block: usize) {
        let GroupedShape { stored, n, k } = self.shape;
        let product = ProductShape { stored, m: self.segments.rows_of(block), n, k };
        let b = &self.b[block * k * n..(block + 1) * k * n];
        // SAFETY: no other block writes this one's rows, which are asked for one piece at a time.
        let c = |rows: Range<usize>| unsafe { self.c.part(rows.start * n, rows.len() * n) };
        self.together(block, self.a, k, |a| {
            if let Some(rows) = self.only_piece(block) {
                return matmul(pool, product, a, b, c(rows), self.accumulate);
            }
            C::with_scratch(product.m * n, |sums| {
                if self.accumulate {
                    self.each_piece(block, |rows, to| sums[to.start * n..to.end * n].copy_from_slice(c(rows)));
                }
                matmul(pool, product, a, b, sums, self.accumulate);
                self.each_piece(block, |rows, from| c(rows).copy_from_slice(&sums[from.start * n..from.end * n]));
            });
        });
    }

    /// Calls `work` with a block's rows of x [R, cols], one below the other.
    fn together(&self, block: usize, x: &[S], cols: usize, work: impl FnOnce(&[S])) {
        let part = |rows: Range<usize>| &x[rows.start * cols..rows.end * cols];
        if let Some(rows) = self.only_piece(block) {
            return work(part(rows));
        }
        S::with_scratch(self.segments.rows_of(block) * cols, |scratch| {
            self.each_piece(block, |rows, to| scratch[to.start * cols..to.end * cols].copy_from_slice(part(rows)));
            work(scratch);
        });
    }

    /// Where the rows of a block lie, if they lie one below the other.
    fn only_piece(&self, block: usize) -> Option<Range<usize>> {
        let mut pieces = self.segments.pieces(block, 0..self.segments.rows_of(block));
        let first = pieces.next().unwrap_or_default();
        pieces.next().is_none().then_some(first)
    }

    /// Calls `work` with each piece of a block, and with its rows among those of the block.
    fn each_piece(&self, block: usize, mut work: impl FnMut(Range<usize>, Range<usize>)) {
        let mut done = 0;
        for rows in self.segments.pieces(block, 0..self.segments.rows_of(block)) {
            let of_block = done..done + rows.len();
            done = of_block.end;
            work(rows, of_block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experts::Segments;
    use crate::pool::Disjoint;
    use half::bf16;

    /// Small integers, whose sums are exact in any order.
    fn integers<S: Stored<Real = f32>>(len: usize) -> Vec<S> {
        (0..len).map(|i| S::rounded((i * i % 11) as f32 - 5.0)).collect()
    }

    fn check(segments: &Segments, n: usize, k: usize, stored: Transpose, accumulate: bool) {
        let shape = GroupedShape { stored, n, k };
        let rows = segments.rows();
        let weights = segments.blocks() * n * k;
        let lens = if stored == Transpose::Tn { (rows * n, weights) } else { (weights, rows * n) };
        let a = integers::<bf16>(rows * k);
        let b = integers::<bf16>(lens.0);
        let run = |compute: &dyn Fn(&Products<'_, bf16, bf16>)| {
            let mut c = integers::<bf16>(lens.1);
            compute(&Products { shape, segments, a: &a, b: &b, c: Disjoint::new(&mut c), accumulate });
            c
        };
        let expected = run(&|products| products.run_by_tiles(&Pool::new(1)));
        for threads in [1, 2, 4] {
            let found = run(&|products| products.run_apart(&Pool::new(threads)));
            assert_eq!(found, expected, "{shape:?} of {segments:?} with {threads} threads");
        }
    }

    #[test]
    fn products_apart_are_those_of_tiles() {
        let uneven = Segments::new(3, &[7, 0, 1, 0, 0, 0, 30, 0, 2]);
        for (segments, n, k) in [
            (Segments::equal(3, 1, 20), 33, 7),
            (Segments::equal(2, 4, 9), 70, 65),
            (Segments::equal(1, 3, 5), 9, 2),
            (Segments::equal(5, 2, 0), 3, 4),
            (uneven, 33, 65),
        ] {
            for stored in Transpose::ALL {
                check(&segments, n, k, stored, false);
                check(&segments, n, k, stored, true);
            }
        }
    }
}
