// Squared error of predicted numbers, whose targets are in 64 bits.
#include "prelude.cuh"

// y = x, rounded to what is computed in and then to what is stored.
KERNEL(rounded)(S* y, const double* x, i64 n) {
    for (EACH(i, n)) store(&y[i], (R)x[i]);
}

// Elements of a partial sum.
#define SUM_BLOCK 4096

DEVICE double square(R difference) { return (double)difference * (double)difference; }

// partials = of each SUM_BLOCK the sum of the squares of x - target.
KERNEL(squared_error_loss)(double* partials, const S* x, const double* targets, i64 n) {
    for (EACH_BY_WARP(block, (n + SUM_BLOCK - 1) / SUM_BLOCK)) {
        i64 first = block * SUM_BLOCK, end = first + SUM_BLOCK < n ? first + SUM_BLOCK : n;
        double sum = 0;
        for (i64 at = first + lane(); at < end; at += 32) sum += square(widen(x[at]) - (R)targets[at]);
        sum = warp_sum(sum);
        if (lane() == 0) partials[block] = sum;
    }
}

// x becomes the gradient 2 (x - target) scale.
KERNEL(squared_error)(S* x, const double* targets, double scale, i64 n) {
    for (EACH(i, n)) store(&x[i], (widen(x[i]) - (R)targets[i]) * ((R)scale + (R)scale));
}
