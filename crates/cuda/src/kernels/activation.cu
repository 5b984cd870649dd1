// Biases, and functions of a perceptron without gates.
#include "column_sums.cuh"
#include "curves.cuh"

// x [rows, cols] += bias [cols].
KERNEL(bias_forward)(S* x, const R* bias, i64 n, i64 cols) {
    for (EACH(i, n)) store(&x[i], widen(x[i]) + bias[rest(i, cols)]);
}

// Partial column sums of dy [rows, cols].
KERNEL(bias_backward)(R* partials, const S* dy, i64 rows, i64 cols) {
    for (EACH(i, COLUMN_BLOCKS * cols)) {
        ColumnPiece piece = column_piece(i, rows, cols);
        R sum = 0;
        for (i64 row = piece.first; row < piece.end; row++) sum = sum + widen(dy[row * cols + piece.col]);
        partials[i] = sum;
    }
}

// out [cols] = (or +=) the partial sums of a run of columns, out of `width`, of all blocks in order.
KERNEL(add_columns)(R* out, const R* partials, i64 cols, i64 width, i64 accumulate) {
    for (EACH(i, cols)) {
        R sum = accumulate ? out[i] : (R)0;
        for (i64 block = 0; block < COLUMN_BLOCKS; block++) sum = sum + partials[block * width + i];
        out[i] = sum;
    }
}

// pre += bias, if there is one; y = curve(pre), of what was stored.
KERNEL(bias_curve_forward)(i64 curve, S* pre, const R* bias, S* y, i64 n, i64 cols) {
    for (EACH(i, n)) {
        if (bias) store(&pre[i], widen(pre[i]) + bias[rest(i, cols)]);
        store(&y[i], value(curve, widen(pre[i])));
    }
}

KERNEL(activate_curve)(i64 curve, const S* pre, S* y, i64 n) {
    for (EACH(i, n)) store(&y[i], value(curve, widen(pre[i])));
}

// dy becomes the gradient of pre.
KERNEL(curve_backward)(i64 curve, const S* pre, S* dy, i64 n) {
    for (EACH(i, n)) store(&dy[i], widen(dy[i]) * slope(curve, widen(pre[i])).slope);
}
