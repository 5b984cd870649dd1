//! Copies of one head's columns into contiguous, padded matrices, and back.

use super::tile::{PAD, TILE};
use crate::dispatch::vectorised;
use crate::element::Element;
use crate::pool::Disjoint;
use crate::turn::turn;

/// One head's block of columns in a matrix with `stride` columns.
#[derive(Clone, Copy)]
pub(super) struct Block {
    /// Index of the block's first element.
    pub start: usize,
    /// Elements from one row to the next.
    pub stride: usize,
    /// Rows, s.
    pub rows: usize,
    /// Columns, d.
    pub cols: usize,
}

pub(super) fn padded(len: usize) -> usize {
    len.next_multiple_of(PAD)
}

/// Elements of a transposed block.
pub(super) fn transposed(rows: usize, cols: usize) -> usize {
    rows.next_multiple_of(TILE) * cols
}

impl Block {
    /// The elements of a row of the block in `x`.
    #[inline(always)]
    pub(super) fn row<'a, T>(&self, x: &'a [T], row: usize) -> &'a [T] {
        let start = self.start + row * self.stride;
        &x[start..start + self.cols]
    }

    /// to [padded rows, padded cols] = the block times `factor`, zero in the padding.
    pub(super) fn copy<T: Element>(&self, x: &[T], factor: T, to: &mut [T]) {
        let (values, padding) = to.split_at_mut(self.rows * padded(self.cols));
        vectorised(
            #[inline(always)]
            || {
                for (row, to) in values.chunks_exact_mut(padded(self.cols)).enumerate() {
                    let (to, padding) = to.split_at_mut(self.cols);
                    to.iter_mut().zip(self.row(x, row)).for_each(|(to, x)| *to = *x * factor);
                    padding.fill(T::ZERO);
                }
            },
        );
        padding.fill(T::ZERO);
    }

    /// to [tiles, cols, TILE] = the block transposed, tile by tile of its rows, so that the lines
    /// of a tile do not compete for the same sets of the cache; zero in the padding.
    pub(super) fn transpose<T: Element>(&self, x: &[T], to: &mut [T]) {
        for (tile, to) in to.chunks_exact_mut(self.cols * TILE).enumerate() {
            let first = tile * TILE;
            let rows = TILE.min(self.rows - first);
            turn(rows, self.cols, &x[self.start + first * self.stride..], self.stride, to, TILE);
            to.chunks_exact_mut(TILE).for_each(|to| to[rows..].fill(T::ZERO));
        }
    }

    /// The block in `x` = the first rows and columns of `from` [_, padded cols] times `factor`.
    ///
    /// # Safety
    /// No other thread accesses this block of `x`.
    pub(super) unsafe fn write<T: Element>(&self, x: &Disjoint<'_, T>, from: &[T], factor: T) {
        vectorised(
            #[inline(always)]
            || {
                for (row, from) in from.chunks_exact(padded(self.cols)).take(self.rows).enumerate() {
                    // SAFETY: the caller's promise; rows of a block do not overlap.
                    let x = unsafe { x.part(self.start + row * self.stride, self.cols) };
                    x.iter_mut().zip(from).for_each(|(x, from)| *x = *from * factor);
                }
            },
        );
    }
}

impl super::AttentionShape {
    /// Block `part` (0 query, 1 key, 2 value) of a head in `qkv`.
    pub(super) fn qkv_block(&self, sequence: usize, head: usize, part: usize) -> Block {
        let stride = self.qkv_cols();
        let start = sequence * self.seq_len * stride + (head * 3 + part) * self.head_dim;
        Block { start, stride, rows: self.seq_len, cols: self.head_dim }
    }

    /// A head's block in the output.
    pub(super) fn out_block(&self, sequence: usize, head: usize) -> Block {
        let stride = self.out_cols();
        let start = sequence * self.seq_len * stride + head * self.head_dim;
        Block { start, stride, rows: self.seq_len, cols: self.head_dim }
    }
}

/// Cuts the next `len` elements off `rest`.
pub(super) fn take<'a, T>(rest: &mut &'a mut [T], len: usize) -> &'a mut [T] {
    let (taken, left) = std::mem::take(rest).split_at_mut(len);
    *rest = left;
    taken
}
