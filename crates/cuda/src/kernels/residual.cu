// Dropout and the residual stream.
#include "rows.cuh"

DEVICE R dropped(R x, R factor) { return factor == (R)0 ? (R)0 : x * factor; }

KERNEL(dropout)(ElementMask mask, S* x, i64 n, i64 cols) {
    for (EACH(i, n)) store(&x[i], dropped(widen(x[i]), factor(mask, quotient(i, cols), rest(i, cols))));
}

// x becomes residual + dropout(x + bias); without a bias if there is none.
KERNEL(residual_forward)(ElementMask mask, S* x, const R* bias, const S* residual, i64 n, i64 cols) {
    for (EACH(i, n)) {
        R biased = bias ? widen(x[i]) + bias[rest(i, cols)] : widen(x[i]);
        if (mask.draw.threshold > 0) biased = dropped(biased, factor(mask, quotient(i, cols), rest(i, cols)));
        store(&x[i], widen(residual[i]) + biased);
    }
}
