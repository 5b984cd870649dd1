//! Token and position embeddings.
//!
//! A rank holds the rows `start..start + count` of the token table: [count, cols].

use crate::dispatch::vectorised;
use crate::lanes::add;
use crate::pool::Pool;
use crate::shape::{Shape, TableShape};
use crate::stored::{Stored, round_all, widen_all};
use std::mem::replace;

/// y [rows, cols] = the table's row of each token, zero where another rank holds it.
pub fn embed_forward<S: Stored>(pool: &Pool, shape: TableShape, tokens: &[u32], table: &[S], y: &mut [S]) {
    let TableShape { rows, cols, start } = shape;
    assert_eq!((tokens.len(), y.len()), (rows, rows * cols));
    if cols == 0 {
        return;
    }
    let count = table_rows(table.len(), cols);
    let per_piece = pool.rows_per_piece(rows, cols);
    pool.each(y.chunks_mut(per_piece * cols).zip(tokens.chunks(per_piece)), |(y, tokens)| {
        for (y, token) in y.chunks_exact_mut(cols).zip(tokens) {
            match (*token as usize).checked_sub(start).filter(|row| *row < count) {
                Some(row) => y.copy_from_slice(&table[row * cols..(row + 1) * cols]),
                None => y.fill(S::ZERO),
            }
        }
    });
}

/// dtable [count, cols] += each row of dy [rows, cols] in the row of its token, if this rank
/// holds it; from zero unless `accumulate`. Each row of the table is rounded once.
pub fn embed_backward<S: Stored, C: Stored<Real = S::Real>>(
    pool: &Pool,
    shape: TableShape,
    tokens: &[u32],
    dy: &[S],
    dtable: &mut [C],
    accumulate: bool,
) {
    let TableShape { rows, cols, start } = shape;
    assert_eq!((tokens.len(), dy.len()), (rows, rows * cols));
    if cols == 0 {
        return;
    }
    let places = Places::new(table_rows(dtable.len(), cols), rows, |row| (tokens[row] as usize).wrapping_sub(start));
    places.add_rows(pool, cols, dy, dtable, accumulate);
}

/// Row r of x [rows, cols] += row position(r) of positions [_, cols].
pub fn add_positions<S: Stored>(
    pool: &Pool,
    shape: Shape,
    x: &mut [S],
    positions: &[S],
    position: impl Fn(usize) -> usize + Sync,
) {
    let Shape { rows, cols } = shape;
    assert_eq!(x.len(), rows * cols);
    if cols == 0 {
        return;
    }
    let per_piece = pool.rows_per_piece(rows, cols);
    pool.each(x.chunks_mut(per_piece * cols).enumerate(), |(piece, x)| {
        for (i, x) in x.chunks_exact_mut(cols).enumerate() {
            let position = position(piece * per_piece + i);
            add(x, &positions[position * cols..(position + 1) * cols]);
        }
    });
}

/// Row position(r) of dpositions [_, cols] += dy [rows, cols] row r, in ascending order of r;
/// from zero, all its rows, unless `accumulate`. Each row of dpositions is rounded once.
pub fn positions_backward<S: Stored, C: Stored<Real = S::Real>>(
    pool: &Pool,
    shape: Shape,
    dy: &[S],
    dpositions: &mut [C],
    position: impl Fn(usize) -> usize,
    accumulate: bool,
) {
    let Shape { rows, cols } = shape;
    assert_eq!(dy.len(), rows * cols);
    if cols == 0 {
        return;
    }
    let count = table_rows(dpositions.len(), cols);
    let places = Places::new(count, rows, |row| {
        let position = position(row);
        assert!(position < count, "position {position} of {count}");
        position
    });
    places.add_rows(pool, cols, dy, dpositions, accumulate);
}

/// Which rows of a matrix belong to each row of a table, in ascending order.
struct Places {
    /// By row of the table its first row; the number of rows ends.
    first: Vec<usize>,
    /// By row the next one of the same place.
    next: Vec<usize>,
}

impl Places {
    /// The places of so many rows in a table of `count`; rows with a place beyond it belong nowhere.
    fn new(count: usize, rows: usize, place: impl Fn(usize) -> usize) -> Self {
        let mut first = vec![rows; count];
        let mut next = vec![rows; rows];
        for row in (0..rows).rev() {
            if let Some(first) = first.get_mut(place(row)) {
                next[row] = replace(first, row);
            }
        }
        Places { first, next }
    }

    /// Each row of table [_, cols] += its rows of x [rows, cols]; from zero unless `accumulate`.
    fn add_rows<S: Stored, C: Stored<Real = S::Real>>(
        &self,
        pool: &Pool,
        cols: usize,
        x: &[S],
        table: &mut [C],
        accumulate: bool,
    ) {
        let rows = self.next.len();
        let per_piece = pool.rows_per_piece(self.first.len(), cols);
        pool.each(table.chunks_mut(per_piece * cols).zip(self.first.chunks(per_piece)), |(table, first)| {
            S::Real::with_scratch(cols, |sums| {
                for (to, first) in table.chunks_exact_mut(cols).zip(first) {
                    if !accumulate {
                        to.fill(C::ZERO);
                    }
                    if *first == rows {
                        continue;
                    }
                    let after = |row: &usize| Some(self.next[*row]).filter(|next| *next < rows);
                    let rows = std::iter::successors(Some(*first), after);
                    vectorised(
                        #[inline(always)]
                        || widen_all(sums, to),
                    );
                    rows.for_each(|row| add(sums, &x[row * cols..(row + 1) * cols]));
                    vectorised(
                        #[inline(always)]
                        || round_all(to, sums),
                    );
                }
            });
        });
    }
}

fn table_rows(len: usize, cols: usize) -> usize {
    assert!(len.is_multiple_of(cols), "{len} elements are no table of {cols} columns");
    len / cols
}
