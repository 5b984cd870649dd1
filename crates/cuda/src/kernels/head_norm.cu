// Norms of the queries or the keys of all heads, each over its own columns. A warp has a head of a row.
#include "norm.cuh"

// Which columns of qkv, in groups of `group` columns, are normed: of each group `heads` heads from column `first` on.
struct HeadNorm {
    i64 rows, groups, group, first, heads, head_dim, centered;
    double eps;
};
DEVICE i64 heads_of(HeadNorm norm) { return norm.rows * norm.groups * norm.heads; }
// Where a head begins.
DEVICE i64 begin_of(HeadNorm norm, i64 head) {
    return quotient(head, norm.heads) * norm.group + norm.first + rest(head, norm.heads) * norm.head_dim;
}

struct Statistics {
    R mean, rstd;
};
DEVICE Statistics statistics(HeadNorm norm, const S* x) {
    R sum = 0, squares = 0, mean = 0;
    if (norm.centered) {
        for (EACH_COLUMN(col, norm.head_dim)) sum = sum + widen(x[col]);
        mean = warp_sum(sum) / (R)norm.head_dim;
    }
    for (EACH_COLUMN(col, norm.head_dim)) squares = squares + (widen(x[col]) - mean) * (widen(x[col]) - mean);
    squares = warp_sum(squares) / (R)norm.head_dim;
    return {mean, (R)1 / root(squares + (R)norm.eps)};
}

KERNEL(head_norm_forward)(HeadNorm norm, Gamma gamma, const R* beta, S* x) {
    for (EACH_BY_WARP(head, heads_of(norm))) {
        S* columns = x + begin_of(norm, head);
        Statistics of = statistics(norm, columns);
        for (EACH_COLUMN(col, norm.head_dim)) {
            R y = (widen(columns[col]) - of.mean) * of.rstd * gamma_of(gamma, col);
            store(&columns[col], beta ? y + beta[col] : y);
        }
    }
}

// found [heads, 2] = of each head mean and 1 / deviation.
KERNEL(head_norm_statistics)(HeadNorm norm, const S* x, R* found) {
    for (EACH_BY_WARP(head, heads_of(norm))) {
        Statistics of = statistics(norm, x + begin_of(norm, head));
        if (lane() == 0) found[2 * head] = of.mean, found[2 * head + 1] = of.rstd;
    }
}

// Partial sums over heads of dy xhat, and behind them of dy.
KERNEL(head_norm_backward_columns)(HeadNorm norm, const S* x, const R* found, const S* dy, R* partials) {
    i64 d = norm.head_dim;
    for (EACH(i, COLUMN_BLOCKS * d)) {
        ColumnPiece piece = column_piece(i, heads_of(norm), d);
        R dgamma = 0, dbeta = 0;
        for (i64 head = piece.first; head < piece.end; head++) {
            i64 at = begin_of(norm, head) + piece.col;
            dgamma = dgamma + widen(dy[at]) * ((widen(x[at]) - found[2 * head]) * found[2 * head + 1]);
            dbeta = dbeta + widen(dy[at]);
        }
        R* of_block = partials + i / d * 2 * d;
        of_block[piece.col] = dgamma;
        of_block[d + piece.col] = dbeta;
    }
}

// dy becomes dx in place.
KERNEL(head_norm_backward)(HeadNorm norm, const S* x, const R* found, Gamma gamma, S* dy) {
    for (EACH_BY_WARP(head, heads_of(norm))) {
        i64 begin = begin_of(norm, head);
        R mean = found[2 * head], rstd = found[2 * head + 1], of_d = 0, of_d_xhat = 0;
        for (EACH_COLUMN(col, norm.head_dim)) {
            R d = widen(dy[begin + col]) * gamma_of(gamma, col);
            of_d = of_d + d;
            of_d_xhat = of_d_xhat + d * ((widen(x[begin + col]) - mean) * rstd);
        }
        R mean_d = norm.centered ? warp_sum(of_d) / (R)norm.head_dim : (R)0;
        R mean_d_xhat = warp_sum(of_d_xhat) / (R)norm.head_dim;
        for (EACH_COLUMN(col, norm.head_dim)) {
            R xhat = (widen(x[begin + col]) - mean) * rstd;
            R d = widen(dy[begin + col]) * gamma_of(gamma, col);
            store(&dy[begin + col], (d - mean_d - xhat * mean_d_xhat) * rstd);
        }
    }
}
