// Token and position embeddings.
#include "rows.cuh"

// y [rows, cols] = the table's row of each token, out of `count` from token `start` on; zero where there is none.
KERNEL(embed_forward)(const u32* tokens, const S* table, S* y, i64 rows, i64 cols, i64 start, i64 count) {
    for (EACH(i, rows * cols)) {
        i64 row = (i64)tokens[quotient(i, cols)] - start;
        y[i] = row >= 0 && row < count ? table[row * cols + rest(i, cols)] : zero();
    }
}

KERNEL(add_positions)(Positions at, S* x, const S* table, i64 rows, i64 cols) {
    for (EACH(i, rows * cols)) {
        i64 from = position(at, quotient(i, cols)) * cols + rest(i, cols);
        store(&x[i], widen(x[i]) + widen(table[from]));
    }
}

// The sum, in ascending order, of the rows of dy that belong to a row of the table: those that `order` has from `first`
// up to `end`.
DEVICE R sum_of_rows(R sum, const u32* order, i64 first, i64 end, const S* dy, i64 cols, i64 col) {
    for (i64 at = first; at < end; at++) sum = sum + widen(dy[order[at] * cols + col]);
    return sum;
}

// Row r of dtable [count, cols] = (or +=) the rows of dy that belong to it, of which the first is number firsts[r] of
// `order`. Rounded once. `add_rows_to_reals`: dtable as computed with.
KERNEL(add_rows)
(const u32* firsts, const u32* order, const S* dy, S* dtable, i64 count, i64 cols, i64 accumulate) {
    for (EACH(i, count * cols)) {
        i64 row = quotient(i, cols), first = firsts[row], end = firsts[row + 1];
        if (accumulate && first == end) continue;
        R before = accumulate ? widen(dtable[i]) : (R)0;
        store(&dtable[i], sum_of_rows(before, order, first, end, dy, cols, rest(i, cols)));
    }
}
KERNEL(add_rows_to_reals)
(const u32* firsts, const u32* order, const S* dy, R* dtable, i64 count, i64 cols, i64 accumulate) {
    for (EACH(i, count * cols)) {
        i64 row = quotient(i, cols), first = firsts[row], end = firsts[row + 1];
        if (accumulate && first == end) continue;
        R before = accumulate ? dtable[i] : (R)0;
        dtable[i] = sum_of_rows(before, order, first, end, dy, cols, rest(i, cols));
    }
}
