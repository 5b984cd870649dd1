// Whole arrays. Suffixes of names say where an operand is as computed with (R) in place of as stored (S).
#include "prelude.cuh"

// y += x.
KERNEL(add_assign)(S* y, const S* x, i64 n) {
    for (EACH(i, n)) store(&y[i], widen(y[i]) + widen(x[i]));
}
KERNEL(add_assign_reals)(S* y, const R* x, i64 n) {
    for (EACH(i, n)) store(&y[i], widen(y[i]) + x[i]);
}
KERNEL(add_assign_to_reals)(R* y, const S* x, i64 n) {
    for (EACH(i, n)) y[i] = y[i] + widen(x[i]);
}

// y = x, rounded.
KERNEL(round)(S* y, const R* x, i64 n) {
    for (EACH(i, n)) store(&y[i], x[i]);
}

// x *= factor.
KERNEL(scale)(S* x, double factor, i64 n) {
    for (EACH(i, n)) store(&x[i], widen(x[i]) * (R)factor);
}

// Elements of a partial sum.
#define SUM_BLOCK 4096

// partials = of each SUM_BLOCK of x the sum of the squares.
KERNEL(sum_of_squares)(double* partials, const S* x, i64 n) {
    for (EACH_BY_WARP(block, (n + SUM_BLOCK - 1) / SUM_BLOCK)) {
        i64 first = block * SUM_BLOCK, end = first + SUM_BLOCK < n ? first + SUM_BLOCK : n;
        double sum = 0;
        for (i64 at = first + lane(); at < end; at += 32) sum += (double)widen(x[at]) * (double)widen(x[at]);
        sum = warp_sum(sum);
        if (lane() == 0) partials[block] = sum;
    }
}

// total[0] += the sum of the partial sums, by one warp.
KERNEL(add_partials)(double* total, const double* partials, i64 n) {
    if (blockIdx.x > 0 || threadIdx.x >= 32) return;
    double sum = 0;
    for (i64 at = lane(); at < n; at += 32) sum += partials[at];
    sum = warp_sum(sum);
    if (lane() == 0) total[0] += sum;
}
