//! Token and position embeddings.
//!
//! A rank holds the rows `start..start + count` of the token table: [count, cols].

use crate::element::Element;
use crate::lanes::add;
use crate::pool::Pool;
use crate::shape::{Shape, TableShape};
use std::mem::replace;

/// y [rows, cols] = the table's row of each token, zero where another rank holds it.
pub fn embed_forward<T: Element>(pool: &Pool, shape: TableShape, tokens: &[u32], table: &[T], y: &mut [T]) {
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
                None => y.fill(T::ZERO),
            }
        }
    });
}

/// dtable [count, cols] += each row of dy [rows, cols] in the row of its token, if this rank
/// holds it; from zero unless `accumulate`.
pub fn embed_backward<T: Element>(
    pool: &Pool,
    shape: TableShape,
    tokens: &[u32],
    dy: &[T],
    dtable: &mut [T],
    accumulate: bool,
) {
    let TableShape { rows, cols, start } = shape;
    assert_eq!((tokens.len(), dy.len()), (rows, rows * cols));
    if cols == 0 {
        return;
    }
    let per_piece = pool.rows_per_piece(table_rows(dtable.len(), cols), cols);
    pool.each(dtable.chunks_mut(per_piece * cols).enumerate(), |(piece, dtable)| {
        if !accumulate {
            dtable.fill(T::ZERO);
        }
        let (first, count) = (start + piece * per_piece, dtable.len() / cols);
        // Each piece scans all tokens: rows are added in the same order for any division.
        for (token, dy) in tokens.iter().zip(dy.chunks_exact(cols)) {
            let row = (*token as usize).wrapping_sub(first);
            if row < count {
                add(&mut dtable[row * cols..(row + 1) * cols], dy);
            }
        }
    });
}

/// Row r of x [rows, cols] += row position(r) of positions [_, cols].
pub fn add_positions<T: Element>(
    pool: &Pool,
    shape: Shape,
    x: &mut [T],
    positions: &[T],
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
/// from zero, all its rows, unless `accumulate`.
pub fn positions_backward<T: Element>(
    pool: &Pool,
    shape: Shape,
    dy: &[T],
    dpositions: &mut [T],
    position: impl Fn(usize) -> usize,
    accumulate: bool,
) {
    let Shape { rows, cols } = shape;
    assert_eq!(dy.len(), rows * cols);
    if cols == 0 {
        return;
    }
    let count = table_rows(dpositions.len(), cols);
    // The first row at each position, and after each row the next one at its position; `rows` ends.
    let (mut first, mut next) = (vec![rows; count], vec![rows; rows]);
    for row in (0..rows).rev() {
        next[row] = replace(&mut first[position(row)], row);
    }
    let per_piece = pool.rows_per_piece(count, cols);
    pool.each(dpositions.chunks_mut(per_piece * cols).zip(first.chunks(per_piece)), |(dpositions, first)| {
        for (sum, first) in dpositions.chunks_exact_mut(cols).zip(first) {
            if !accumulate {
                sum.fill(T::ZERO);
            }
            let mut row = *first;
            while row < rows {
                add(sum, &dy[row * cols..(row + 1) * cols]);
                row = next[row];
            }
        }
    });
}

fn table_rows(len: usize, cols: usize) -> usize {
    assert!(len.is_multiple_of(cols), "{len} elements are no table of {cols} columns");
    len / cols
}
