// The products of a router, whose weight [cols, experts] and logits are as computed with.
#include "prelude.cuh"

// logits [rows, experts] = x [rows, cols] weight.
KERNEL(router_forward)(const S* x, const R* weight, R* logits, i64 rows, i64 cols, i64 experts) {
    for (EACH(i, rows * experts)) {
        const S* of_row = x + quotient(i, experts) * cols;
        R sum = 0;
        for (i64 col = 0; col < cols; col++) sum = fused(widen(of_row[col]), weight[col * experts + rest(i, experts)], sum);
        logits[i] = sum;
    }
}

// dx [rows, cols] = dlogits times the transposed weight, rounded once.
KERNEL(router_input_gradient)(const R* dlogits, const R* weight, S* dx, i64 rows, i64 cols, i64 experts) {
    for (EACH(i, rows * cols)) {
        const R *of_row = dlogits + quotient(i, cols) * experts, *of_col = weight + rest(i, cols) * experts;
        R sum = 0;
        for (i64 expert = 0; expert < experts; expert++) sum = fused(of_row[expert], of_col[expert], sum);
        store(&dx[i], sum);
    }
}

// dweight = (or +=) the transposed x times dlogits.
KERNEL(router_weight_gradient)
(const S* x, const R* dlogits, R* dweight, i64 rows, i64 cols, i64 experts, i64 accumulate) {
    for (EACH(i, cols * experts)) {
        i64 col = quotient(i, experts), expert = rest(i, experts);
        R sum = accumulate ? dweight[i] : (R)0;
        for (i64 row = 0; row < rows; row++) sum = fused(widen(x[row * cols + col]), dlogits[row * experts + expert], sum);
        dweight[i] = sum;
    }
}
