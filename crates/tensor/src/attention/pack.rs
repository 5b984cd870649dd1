//! Copies of one head's columns into contiguous, padded matrices, and back.

use super::AttentionShape;
use super::tile::{PAD, TILE};
use crate::dispatch::vectorised;
use crate::element::Element;
use crate::pool::Disjoint;
use crate::stored::Stored;
use crate::turn::turn_widened;

/// One head's block of columns in a matrix with `stride` columns.
#[derive(Clone, Copy)]
pub(super) struct Block {
    /// Index of the block's first element.
    pub start: usize,
    /// Elements from one row to the next.
    pub stride: usize,
    /// Rows.
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
    /// The rows `first..first + rows` of the block.
    pub(super) fn part(self, first: usize, rows: usize) -> Self {
        Block { start: self.start + first * self.stride, rows, ..self }
    }

    /// The elements of a row of the block in `x`.
    #[inline(always)]
    pub(super) fn row<'a, T>(&self, x: &'a [T], row: usize) -> &'a [T] {
        let start = self.start + row * self.stride;
        &x[start..start + self.cols]
    }

    /// The first rows of to [_, padded cols] = the block times `factor`, zero in padded columns.
    pub(super) fn copy<S: Stored>(&self, x: &[S], factor: S::Real, to: &mut [S::Real]) {
        let values = &mut to[..self.rows * padded(self.cols)];
        vectorised(
            #[inline(always)]
            || {
                for (row, to) in values.chunks_exact_mut(padded(self.cols)).enumerate() {
                    let (to, padding) = to.split_at_mut(self.cols);
                    to.iter_mut().zip(self.row(x, row)).for_each(|(to, x)| *to = x.widen() * factor);
                    padding.fill(S::Real::ZERO);
                }
            },
        );
    }

    /// Columns `first..` of a transposed matrix, to [tiles, cols, TILE], = the block transposed:
    /// tile by tile, so that the lines of a tile do not compete for the same sets of the cache.
    fn transpose<S: Stored>(&self, x: &[S], first: usize, to: &mut [S::Real]) {
        let mut row = 0;
        while row < self.rows {
            let tile = (first + row) / TILE;
            let lane = (first + row) % TILE;
            let rows = (TILE - lane).min(self.rows - row);
            let to = &mut to[tile * self.cols * TILE + lane..];
            turn_widened(rows, self.cols, &x[self.start + row * self.stride..], self.stride, to, TILE);
            row += rows;
        }
    }

    /// The block in `x` = the first rows and columns of `from` [_, padded cols] times `factor`.
    ///
    /// # Safety
    /// No other thread accesses this block of `x`.
    pub(super) unsafe fn write<S: Stored>(&self, x: &Disjoint<'_, S>, from: &[S::Real], factor: S::Real) {
        vectorised(
            #[inline(always)]
            || {
                for (row, from) in from.chunks_exact(padded(self.cols)).take(self.rows).enumerate() {
                    // SAFETY: the caller's promise; rows of a block do not overlap.
                    let x = unsafe { x.part(self.start + row * self.stride, self.cols) };
                    x.iter_mut().zip(from).for_each(|(x, from)| *x = S::rounded(*from * factor));
                }
            },
        );
    }
}

impl AttentionShape {
    /// A head's queries in `qkv`.
    pub(super) fn query_block(&self, sequence: usize, head: usize) -> Block {
        let stride = self.qkv_cols();
        let rows = self.context.tokens(self.seq_len);
        // Before the head's query lie the groups before and its group's others.
        let group = head / self.group_heads();
        let others = head % self.group_heads();
        let start = sequence * rows * stride + group * self.group_cols() + others * self.head_dim;
        Block { start, stride, rows, cols: self.head_dim }
    }

    /// A head's block in the output.
    pub(super) fn out_block(&self, sequence: usize, head: usize) -> Block {
        let stride = self.out_cols();
        let rows = self.context.tokens(self.seq_len);
        let start = sequence * rows * stride + head * self.value_dim;
        Block { start, stride, rows, cols: self.value_dim }
    }
}

/// to [padded rows, padded cols], each chunk padded for itself, = a block of queries' rows times
/// `factor`, zero in the padding.
pub(super) fn copy_chunks<S: Stored>(
    shape: AttentionShape,
    block: Block,
    x: &[S],
    factor: S::Real,
    to: &mut [S::Real],
) {
    let d = padded(block.cols);
    for chunk in shape.chunks() {
        let to = &mut to[chunk.packed * d..(chunk.packed + chunk.rows) * d];
        block.part(chunk.token, chunk.count).copy(x, factor, to);
        to[chunk.count * d..].fill(S::Real::ZERO);
    }
}

/// to [padded rows, padded cols] = the rows of all runs, zero in the padding.
pub(super) fn copy_runs<S: Stored>(runs: impl Iterator<Item = (usize, Block)>, x: &[S], to: &mut [S::Real]) {
    let mut end = 0;
    for (first, run) in runs {
        run.copy(x, S::Real::ONE, &mut to[first * padded(run.cols)..]);
        end = (first + run.rows) * padded(run.cols);
    }
    to[end..].fill(S::Real::ZERO);
}

/// to [tiles, cols, TILE] = the rows of all runs transposed, zero in the padding.
pub(super) fn transpose_runs<S: Stored>(runs: impl Iterator<Item = (usize, Block)>, x: &[S], to: &mut [S::Real]) {
    for (first, run) in runs {
        run.transpose(x, first, to);
        // The rest of the run's last tile, unless the next run overwrites it.
        let end = first + run.rows;
        if !end.is_multiple_of(TILE) {
            let tile = to.chunks_exact_mut(run.cols * TILE).nth(end / TILE);
            let padding = |to: &mut [S::Real]| to[end % TILE..].fill(S::Real::ZERO);
            tile.into_iter().flat_map(|tile| tile.chunks_exact_mut(TILE)).for_each(padding);
        }
    }
}

/// Cuts the next `len` elements off `rest`.
pub(super) fn take<'a, T>(rest: &mut &'a mut [T], len: usize) -> &'a mut [T] {
    let (taken, left) = std::mem::take(rest).split_at_mut(len);
    *rest = left;
    taken
}
