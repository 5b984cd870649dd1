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

// What the sum of squares of one array needs: its elements, whether they are as stored, and the first of its blocks of
// SUM_BLOCK elements, counted through all arrays.
struct Squares {
    const void* x;
    i64 n, is_stored, first;
};

// partials = those of sum_of_squares, of all arrays of a table, one after another.
KERNEL(sum_of_squares_of_all)(double* partials, const Squares* table, i64 count, i64 blocks) {
    for (EACH_BY_WARP(block, blocks)) {
        const Squares& of = entry_of(table, count, block);
        i64 first = (block - of.first) * SUM_BLOCK, end = first + SUM_BLOCK < of.n ? first + SUM_BLOCK : of.n;
        double sum = 0;
        for (i64 at = first + lane(); at < end; at += 32) {
            double x = of.is_stored ? (double)widen(((const S*)of.x)[at]) : (double)((const R*)of.x)[at];
            sum += x * x;
        }
        sum = warp_sum(sum);
        if (lane() == 0) partials[block] = sum;
    }
}

// sums = of each array of a table the sum of its partial sums, as add_partials forms it.
KERNEL(add_partials_of_all)(double* sums, const double* partials, const Squares* table, i64 count, i64 blocks) {
    for (EACH_BY_WARP(i, count)) {
        i64 end = i + 1 < count ? table[i + 1].first : blocks;
        double sum = 0;
        for (i64 at = table[i].first + lane(); at < end; at += 32) sum += partials[at];
        sum = warp_sum(sum);
        if (lane() == 0) sums[i] = sum;
    }
}

// total[0] += sums, one after another.
KERNEL(add_sums)(double* total, const double* sums, i64 n) {
    if (blockIdx.x > 0 || threadIdx.x > 0) return;
    double sum = total[0];
    for (i64 at = 0; at < n; at++) sum += sums[at];
    total[0] = sum;
}

// total[0] += the sum of the partial sums, by one warp.
KERNEL(add_partials)(double* total, const double* partials, i64 n) {
    if (blockIdx.x > 0 || threadIdx.x >= 32) return;
    double sum = 0;
    for (i64 at = lane(); at < n; at += 32) sum += partials[at];
    sum = warp_sum(sum);
    if (lane() == 0) total[0] += sum;
}
