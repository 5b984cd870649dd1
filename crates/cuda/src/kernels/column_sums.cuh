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
    i64 height = block_rows(rows), first = quotient(piece, cols) * height;
    i64 end = first + height < rows ? first + height : rows;
    return {rest(piece, cols), first, end};
}

// Strips of 32 columns, less than 2^32 of all blocks, and the piece of a warp's lane out of COLUMN_BLOCKS * strips: lanes beyond
// the last column have none.
DEVICE i64 strips_of(i64 cols) { return (cols + 31) / 32; }
DEVICE i64 block_of_strip(i64 unit, i64 cols) { return (u32)unit / (u32)strips_of(cols); }
DEVICE ColumnPiece strip_piece(i64 unit, i64 rows, i64 cols) {
    i64 block = block_of_strip(unit, cols), height = block_rows(rows), first = block * height;
    i64 end = first + height < rows ? first + height : rows;
    return {(unit - block * strips_of(cols)) * 32 + lane(), first, end};
}
