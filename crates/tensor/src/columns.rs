//! Column blocks: the layout in which gathers and scatters along columns work on contiguous
//! memory.
//!
//! A panel is a range of columns. A packed matrix is `parts` contiguous blocks [rows, cols / parts].

use crate::pool::Pool;
use crate::shape::{PanelShape, Shape};
use crate::stored::Stored;

/// y = the `parts` column blocks of x [rows, cols], one after the other.
pub fn pack_columns<S: Stored>(pool: &Pool, shape: Shape, parts: usize, x: &[S], y: &mut [S]) {
    let Shape { rows, cols } = shape;
    let width = block_width(cols, parts);
    assert_eq!((x.len(), y.len()), (rows * cols, rows * cols));
    if rows * width == 0 {
        return;
    }
    let per_piece = pool.rows_per_piece(rows, width).min(rows);
    let pieces: Vec<_> = y
        .chunks_exact_mut(rows * width)
        .enumerate()
        .flat_map(|(part, y)| {
            y.chunks_mut(per_piece * width).enumerate().map(move |(piece, y)| (part, piece * per_piece, y))
        })
        .collect();
    pool.each(pieces.into_iter(), |(part, first, y)| {
        copy_block(cols, part * width, width, &x[first * cols..], y);
    });
}

/// y [rows, cols] = the matrix whose `parts` column blocks x holds: the inverse of
/// [`pack_columns`].
pub fn unpack_columns<S: Stored>(pool: &Pool, shape: Shape, parts: usize, x: &[S], y: &mut [S]) {
    let Shape { rows, cols } = shape;
    let width = block_width(cols, parts);
    assert_eq!((x.len(), y.len()), (rows * cols, rows * cols));
    if cols == 0 {
        return;
    }
    let per_piece = pool.rows_per_piece(rows, cols);
    pool.each(y.chunks_mut(per_piece * cols).enumerate(), |(piece, y)| {
        for (i, y) in y.chunks_exact_mut(cols).enumerate() {
            let row = piece * per_piece + i;
            for (part, y) in y.chunks_exact_mut(width).enumerate() {
                let start = (part * rows + row) * width;
                y.copy_from_slice(&x[start..start + width]);
            }
        }
    });
}

/// y [rows, cols / parts] = column block `part` of x [rows, cols], one of [`pack_columns`]'s.
pub fn slice_columns<S: Stored>(pool: &Pool, shape: Shape, part: usize, parts: usize, x: &[S], y: &mut [S]) {
    let Shape { rows, cols } = shape;
    let width = block_width(cols, parts);
    copy_panel_columns(pool, PanelShape { rows, cols, first: part * width, count: width }, x, y);
}

/// y [rows, count] = columns `first..first + count` of x [rows, cols].
pub fn copy_panel_columns<S: Stored>(pool: &Pool, shape: PanelShape, x: &[S], y: &mut [S]) {
    let PanelShape { rows, cols, first, count } = shape;
    check_panel(rows, cols, first, count, x.len(), y.len());
    if count == 0 {
        return;
    }
    let per_piece = pool.rows_per_piece(rows, count);
    pool.each(y.chunks_mut(per_piece * count).enumerate(), |(piece, y)| {
        copy_block(cols, first, count, &x[piece * per_piece * cols..], y);
    });
}

/// Columns `first..first + count` of x [rows, cols] = y [rows, count], the inverse of
/// [`copy_panel_columns`]; other columns stay.
pub fn store_panel_columns<S: Stored>(pool: &Pool, shape: PanelShape, y: &[S], x: &mut [S]) {
    let PanelShape { rows, cols, first, count } = shape;
    check_panel(rows, cols, first, count, x.len(), y.len());
    if count == 0 {
        return;
    }
    let per_piece = pool.rows_per_piece(rows, count);
    pool.each(x.chunks_mut(per_piece * cols).zip(y.chunks(per_piece * count)), |(x, y)| {
        for (x, y) in x.chunks_exact_mut(cols).zip(y.chunks_exact(count)) {
            x[first..first + count].copy_from_slice(y);
        }
    });
}

fn check_panel(rows: usize, cols: usize, first: usize, count: usize, x: usize, y: usize) {
    assert!(first + count <= cols, "columns {first}..{} of {cols}", first + count);
    assert_eq!((x, y), (rows * cols, rows * count));
}

fn block_width(cols: usize, parts: usize) -> usize {
    assert!(parts > 0 && cols.is_multiple_of(parts), "{cols} columns in {parts} parts");
    cols / parts
}

/// y [_, width] = columns `left..left + width` of the first rows of x [_, cols].
fn copy_block<S: Stored>(cols: usize, left: usize, width: usize, x: &[S], y: &mut [S]) {
    for (x, y) in x.chunks_exact(cols).zip(y.chunks_exact_mut(width)) {
        y.copy_from_slice(&x[left..left + width]);
    }
}
