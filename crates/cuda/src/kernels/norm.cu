// Layer norm, in the pieces between which ranks reduce. A warp has a row.
#include "norm.cuh"

KERNEL(norm_row_sums)(const S* x, R* sums, i64 rows, i64 cols) {
    for (EACH_BY_WARP(row, rows)) {
        R sum = 0;
        for (EACH_COLUMN(col, cols)) sum = sum + widen(x[row * cols + col]);
        sum = warp_sum(sum);
        if (lane() == 0) sums[row] = sum;
    }
}

KERNEL(norm_centered_squares)(Norm norm, const S* x, const R* sums, R* squares) {
    for (EACH_BY_WARP(row, norm.rows)) {
        R mean = sums[row] / (R)norm.width, sum = 0;
        for (EACH_COLUMN(col, norm.cols)) {
            R distance = widen(x[row * norm.cols + col]) - mean;
            sum = sum + distance * distance;
        }
        sum = warp_sum(sum);
        if (lane() == 0) squares[row] = sum;
    }
}

KERNEL(norm_forward)(Norm norm, const S* x, const R* sums, const R* squares, Gamma gamma, const R* beta, S* y) {
    for (EACH_BY_WARP(row, norm.rows)) {
        R mean = sums[row] / (R)norm.width, rstd = reciprocal_root(norm, squares[row]);
        for (EACH_COLUMN(col, norm.cols)) {
            R xhat = (widen(x[row * norm.cols + col]) - mean) * rstd;
            store(&y[row * norm.cols + col], fused(xhat, gamma_of(gamma, col), beta[col]));
        }
    }
}

// The three above at once, of rows that no axis cuts: the same sums, in the same order.
KERNEL(whole_norm)(Norm norm, const S* x, R* sums, R* squares, Gamma gamma, const R* beta, S* y) {
    for (EACH_BY_WARP(row, norm.rows)) {
        const S* of_row = x + row * norm.cols;
        R sum = 0, square = 0;
        for (EACH_COLUMN(col, norm.cols)) sum = sum + widen(of_row[col]);
        sum = warp_sum(sum);
        R mean = sum / (R)norm.width;
        for (EACH_COLUMN(col, norm.cols)) {
            R distance = widen(of_row[col]) - mean;
            square = square + distance * distance;
        }
        square = warp_sum(square);
        if (lane() == 0) sums[row] = sum, squares[row] = square;
        R rstd = reciprocal_root(norm, square);
        for (EACH_COLUMN(col, norm.cols)) {
            R xhat = (widen(of_row[col]) - mean) * rstd;
            store(&y[row * norm.cols + col], fused(xhat, gamma_of(gamma, col), beta[col]));
        }
    }
}

// out [rows, 2] = of each row the sums of dy gamma and of dy gamma xhat.
KERNEL(norm_backward_sums)(Norm norm, const S* x, const R* sums, const R* squares, Gamma gamma, const S* dy, R* out) {
    for (EACH_BY_WARP(row, norm.rows)) {
        R mean = sums[row] / (R)norm.width, rstd = reciprocal_root(norm, squares[row]), first = 0, second = 0;
        for (EACH_COLUMN(col, norm.cols)) {
            i64 at = row * norm.cols + col;
            R d = widen(dy[at]) * gamma_of(gamma, col);
            first = first + d;
            second = second + d * ((widen(x[at]) - mean) * rstd);
        }
        first = warp_sum(first);
        second = warp_sum(second);
        if (lane() == 0) out[2 * row] = first, out[2 * row + 1] = second;
    }
}

// Partial column sums of dy xhat, and behind them of dy. A warp has 32 columns; its lanes share the statistics of 32 rows.
KERNEL(norm_backward_columns)(Norm norm, const S* x, const R* sums, const R* squares, const S* dy, R* partials) {
    i64 cols = norm.cols;
    for (EACH_BY_WARP(unit, COLUMN_BLOCKS * strips_of(cols))) {
        ColumnPiece piece = strip_piece(unit, norm.rows, cols);
        R dgamma = 0, dbeta = 0;
        for (i64 first = piece.first; first < piece.end; first += 32) {
            i64 own = first + lane() < piece.end ? first + lane() : first;
            R of_own = sums[own] / (R)norm.width, rstd_of_own = reciprocal_root(norm, squares[own]);
            for (int i = 0; i < 32 && first + i < piece.end; i++) {
                R mean = __shfl_sync(ALL, of_own, i), rstd = __shfl_sync(ALL, rstd_of_own, i);
                if (piece.col >= cols) continue;
                i64 at = (first + i) * cols + piece.col;
                dgamma = fused(widen(dy[at]), (widen(x[at]) - mean) * rstd, dgamma);
                dbeta = dbeta + widen(dy[at]);
            }
        }
        R* of_block = partials + block_of_strip(unit, cols) * 2 * cols;
        if (piece.col < cols) of_block[piece.col] = dgamma, of_block[cols + piece.col] = dbeta;
    }
}

// `dx` overlaps nothing: so the numbers of further columns are read before those of earlier ones are written.
KERNEL(norm_backward)
(Norm norm, const S* __restrict__ x, const R* __restrict__ sums, const R* __restrict__ squares, Gamma gamma,
 const S* __restrict__ dy, const R* __restrict__ reduced, S* __restrict__ dx, i64 accumulate) {
    for (EACH_BY_WARP(row, norm.rows)) {
        R mean = sums[row] / (R)norm.width, rstd = reciprocal_root(norm, squares[row]);
        R first = reduced[2 * row] / (R)norm.width, second = reduced[2 * row + 1] / (R)norm.width;
        for (EACH_COLUMN(col, norm.cols)) {
            i64 at = row * norm.cols + col;
            R xhat = (widen(x[at]) - mean) * rstd;
            R d = rstd * (widen(dy[at]) * gamma_of(gamma, col) - first - xhat * second);
            store(&dx[at], accumulate ? widen(dx[at]) + d : d);
        }
    }
}

// `norm_backward_sums` and `norm_backward` at once, likewise.
KERNEL(whole_norm_backward)
(Norm norm, const S* __restrict__ x, const R* __restrict__ sums, const R* __restrict__ squares, Gamma gamma,
 const S* __restrict__ dy, R* __restrict__ out, S* __restrict__ dx, i64 accumulate) {
    for (EACH_BY_WARP(row, norm.rows)) {
        R mean = sums[row] / (R)norm.width, rstd = reciprocal_root(norm, squares[row]), first = 0, second = 0;
        for (EACH_COLUMN(col, norm.cols)) {
            i64 at = row * norm.cols + col;
            R d = widen(dy[at]) * gamma_of(gamma, col);
            first = first + d;
            second = second + d * ((widen(x[at]) - mean) * rstd);
        }
        first = warp_sum(first);
        second = warp_sum(second);
        if (lane() == 0) out[2 * row] = first, out[2 * row + 1] = second;
        first = first / (R)norm.width;
        second = second / (R)norm.width;
        for (EACH_COLUMN(col, norm.cols)) {
            i64 at = row * norm.cols + col;
            R xhat = (widen(x[at]) - mean) * rstd;
            R d = rstd * (widen(dy[at]) * gamma_of(gamma, col) - first - xhat * second);
            store(&dx[at], accumulate ? widen(dx[at]) + d : d);
        }
    }
}
