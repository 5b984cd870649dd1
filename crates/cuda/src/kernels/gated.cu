// Functions of a perceptron with gates: curve(gate) up, of pairs of columns [rows, 2 * cols].
#include "curves.cuh"

KERNEL(bias_gated_forward)(i64 curve, S* pre, const R* bias, S* y, i64 n, i64 cols) {
    for (EACH(i, n)) {
        if (bias) {
            i64 col = rest(i, cols);
            store(&pre[2 * i], widen(pre[2 * i]) + bias[2 * col]);
            store(&pre[2 * i + 1], widen(pre[2 * i + 1]) + bias[2 * col + 1]);
        }
        store(&y[i], value(curve, widen(pre[2 * i])) * widen(pre[2 * i + 1]));
    }
}

KERNEL(activate_gated)(i64 curve, const S* pre, S* y, i64 n) {
    for (EACH(i, n)) store(&y[i], value(curve, widen(pre[2 * i])) * widen(pre[2 * i + 1]));
}

// pre [rows, 2 * cols] becomes its gradient, given dy [rows, cols].
KERNEL(gated_backward)(i64 curve, S* pre, const S* dy, i64 n) {
    for (EACH(i, n)) {
        Slope of_gate = slope(curve, widen(pre[2 * i]));
        R up = widen(pre[2 * i + 1]), d = widen(dy[i]);
        store(&pre[2 * i], d * up * of_gate.slope);
        store(&pre[2 * i + 1], d * of_gate.value);
    }
}
