// RMS norm, in the pieces between which ranks reduce. A warp has a row.
#include "norm.cuh"

KERNEL(rms_norm_squares)(const S* x, R* squares, i64 rows, i64 cols) {
    for (EACH_BY_WARP(row, rows)) {
        R sum = 0;
        for (EACH_COLUMN(col, cols)) sum = sum + widen(x[row * cols + col]) * widen(x[row * cols + col]);
        sum = warp_sum(sum);
        if (lane() == 0) squares[row] = sum;
    }
}

KERNEL(rms_norm_forward)(Norm norm, const S* x, const R* squares, Gamma gamma, S* y) {
    for (EACH_BY_WARP(row, norm.rows)) {
        R rrms = reciprocal_root(norm, squares[row]);
        for (EACH_COLUMN(col, norm.cols))
            store(&y[row * norm.cols + col], widen(x[row * norm.cols + col]) * rrms * gamma_of(gamma, col));
    }
}

// Both at once, of rows that no axis cuts: the same sums, in the same order.
KERNEL(whole_rms_norm)(Norm norm, const S* x, R* squares, Gamma gamma, S* y) {
    for (EACH_BY_WARP(row, norm.rows)) {
        const S* of_row = x + row * norm.cols;
        R square = 0;
        for (EACH_COLUMN(col, norm.cols)) square = square + widen(of_row[col]) * widen(of_row[col]);
        square = warp_sum(square);
        if (lane() == 0) squares[row] = square;
        R rrms = reciprocal_root(norm, square);
        for (EACH_COLUMN(col, norm.cols))
            store(&y[row * norm.cols + col], widen(of_row[col]) * rrms * gamma_of(gamma, col));
    }
}

// out [rows] = of each row the sum of dy gamma xhat.
KERNEL(rms_norm_backward_sums)(Norm norm, const S* x, const R* squares, Gamma gamma, const S* dy, R* out) {
    for (EACH_BY_WARP(row, norm.rows)) {
        R rrms = reciprocal_root(norm, squares[row]), sum = 0;
        for (EACH_COLUMN(col, norm.cols)) {
            i64 at = row * norm.cols + col;
            sum = sum + widen(dy[at]) * gamma_of(gamma, col) * (widen(x[at]) * rrms);
        }
        sum = warp_sum(sum);
        if (lane() == 0) out[row] = sum;
    }
}

// Partial column sums of dy xhat. A warp has 32 columns; its lanes share the statistics of 32 rows.
KERNEL(rms_norm_backward_columns)(Norm norm, const S* x, const R* squares, const S* dy, R* partials) {
    i64 cols = norm.cols;
    for (EACH_BY_WARP(unit, COLUMN_BLOCKS * strips_of(cols))) {
        ColumnPiece piece = strip_piece(unit, norm.rows, cols);
        R dgamma = 0;
        for (i64 first = piece.first; first < piece.end; first += 32) {
            R of_own = reciprocal_root(norm, squares[first + lane() < piece.end ? first + lane() : first]);
            for (int i = 0; i < 32 && first + i < piece.end; i++) {
                R rrms = __shfl_sync(ALL, of_own, i);
                if (piece.col >= cols) continue;
                i64 at = (first + i) * cols + piece.col;
                dgamma = fused(widen(dy[at]), widen(x[at]) * rrms, dgamma);
            }
        }
        if (piece.col < cols) partials[block_of_strip(unit, cols) * cols + piece.col] = dgamma;
    }
}

KERNEL(rms_norm_backward)
(Norm norm, const S* __restrict__ x, const R* __restrict__ squares, Gamma gamma, const S* __restrict__ dy,
 const R* __restrict__ reduced, S* __restrict__ dx, i64 accumulate) {
    for (EACH_BY_WARP(row, norm.rows)) {
        R rrms = reciprocal_root(norm, squares[row]), mean = reduced[row] / (R)norm.width;
        for (EACH_COLUMN(col, norm.cols)) {
            i64 at = row * norm.cols + col;
            R d = rrms * (widen(dy[at]) * gamma_of(gamma, col) - widen(x[at]) * rrms * mean);
            store(&dx[at], accumulate ? widen(dx[at]) + d : d);
        }
    }
}

// `rms_norm_backward_sums` and `rms_norm_backward` at once, likewise.
KERNEL(whole_rms_norm_backward)
(Norm norm, const S* __restrict__ x, const R* __restrict__ squares, Gamma gamma, const S* __restrict__ dy,
 R* __restrict__ out, S* __restrict__ dx, i64 accumulate) {
    for (EACH_BY_WARP(row, norm.rows)) {
        R rrms = reciprocal_root(norm, squares[row]), sum = 0;
        for (EACH_COLUMN(col, norm.cols)) {
            i64 at = row * norm.cols + col;
            sum = sum + widen(dy[at]) * gamma_of(gamma, col) * (widen(x[at]) * rrms);
        }
        sum = warp_sum(sum);
        if (lane() == 0) out[row] = sum;
        R mean = sum / (R)norm.width;
        for (EACH_COLUMN(col, norm.cols)) {
            i64 at = row * norm.cols + col;
            R d = rrms * (widen(dy[at]) * gamma_of(gamma, col) - widen(x[at]) * rrms * mean);
            store(&dx[at], accumulate ? widen(dx[at]) + d : d);
        }
    }
}
