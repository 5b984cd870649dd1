//! Token and position embeddings.
//!
//! A rank holds the rows `start..start + count` of the token table: [count, cols].

use crate::element::Element;
use crate::lanes::add;
use crate::pool::Pool;

/// y [rows, cols] = the table's row of each token, zero where another rank holds it.
pub fn embed_forward<T: Element>(
    pool: &Pool,
    rows: usize,
    cols: usize,
    tokens: &[u32],
    table: &[T],
    start: usize,
    y: &mut [T],
) {
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
    rows: usize,
    cols: usize,
    tokens: &[u32],
    dy: &[T],
    dtable: &mut [T],
    start: usize,
    accumulate: bool,
) {
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

/// Row r of x [rows, cols] += positions [seq_len or more, cols] row (first_row + r) % seq_len.
pub fn add_positions<T: Element>(
    pool: &Pool,
    rows: usize,
    cols: usize,
    x: &mut [T],
    positions: &[T],
    first_row: usize,
    seq_len: usize,
) {
    assert_eq!(x.len(), rows * cols);
    if cols == 0 {
        return;
    }
    assert!(seq_len > 0 && seq_len <= table_rows(positions.len(), cols));
    let per_piece = pool.rows_per_piece(rows, cols);
    pool.each(x.chunks_mut(per_piece * cols).enumerate(), |(piece, x)| {
        for (i, x) in x.chunks_exact_mut(cols).enumerate() {
            let position = (first_row + piece * per_piece + i) % seq_len;
            add(x, &positions[position * cols..(position + 1) * cols]);
        }
    });
}

/// dpositions [seq_len or more, cols] row (first_row + r) % seq_len += dy [rows, cols] row r;
/// from zero, all its rows, unless `accumulate`.
pub fn positions_backward<T: Element>(
    pool: &Pool,
    rows: usize,
    cols: usize,
    dy: &[T],
    dpositions: &mut [T],
    first_row: usize,
    seq_len: usize,
    accumulate: bool,
) {
    assert_eq!(dy.len(), rows * cols);
    if cols == 0 {
        return;
    }
    let count = table_rows(dpositions.len(), cols);
    assert!(seq_len > 0 && seq_len <= count);
    let per_piece = pool.rows_per_piece(count, cols);
    pool.each(dpositions.chunks_mut(per_piece * cols).enumerate(), |(piece, dpositions)| {
        for (i, sum) in dpositions.chunks_exact_mut(cols).enumerate() {
            if !accumulate {
                sum.fill(T::ZERO);
            }
            let position = piece * per_piece + i;
            if position < seq_len {
                let first = (position + seq_len - first_row % seq_len) % seq_len;
                for row in (first..rows).step_by(seq_len) {
                    add(sum, &dy[row * cols..(row + 1) * cols]);
                }
            }
        }
    });
}

fn table_rows(len: usize, cols: usize) -> usize {
    assert!(len.is_multiple_of(cols), "{len} elements are no table of {cols} columns");
    len / cols
}
