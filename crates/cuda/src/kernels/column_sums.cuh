// Column sums in two stages over fixed blocks of rows, so that bits depend on shapes alone.
#pragma once
#include "prelude.cuh"

// Blocks of rows whose sums are formed apart, as COLUMN_BLOCKS of the host says.
#define COLUMN_BLOCKS 64

DEVICE i64 block_rows(i64 rows) {
    i64 height = (rows + COLUMN_BLOCKS - 1) / COLUMN_BLOCKS;
    return height > 1 ? height : 1;
}

// The column, and the rows from `first` up to `end`, of a piece of work out of COLUMN_BLOCKS * cols.
struct ColumnPiece {
    i64 col, first, end;
};
DEVICE ColumnPiece column_piece(i64 piece, i64 rows, i64 cols) {
    i64 height = block_rows(rows), first = piece / cols * height;
    i64 end = first + height < rows ? first + height : rows;
    return {piece % cols, first, end};
}
