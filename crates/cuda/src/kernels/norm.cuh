// What layer norm and RMS norm share.
#pragma once
#include "column_sums.cuh"

// A matrix whose rows are normed over `width` columns on all ranks.
struct Norm {
    i64 rows, cols, width;
    double eps;
};
DEVICE R reciprocal_root(Norm norm, R squares) { return (R)1 / root(squares / (R)norm.width + (R)norm.eps); }

// What columns are multiplied with: what is stored, or one more.
struct Gamma {
    const R* stored;
    i64 offset;
};
DEVICE R gamma_of(Gamma gamma, i64 col) { return gamma.offset ? (R)1 + gamma.stored[col] : gamma.stored[col]; }

// The columns of a row that a lane takes.
#define EACH_COLUMN(col, cols) i64 col = lane(); col < (cols); col += 32
