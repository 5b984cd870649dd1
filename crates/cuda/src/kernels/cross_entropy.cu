// Vocabulary-parallel cross-entropy, in the pieces between which ranks reduce. A warp has a row.
#include "cap.cuh"

// A target that is left out.
#define IGNORED 0xffffffffu

// Logits [rows, cols] of the ids from `start` on, of which the first `valid` are real.
struct Logits {
    i64 rows, cols, valid, start;
};
// Whether a column is the target.
DEVICE bool is_target(Logits shape, u32 target, i64 col) { return (i64)target - shape.start == col; }

KERNEL(cross_entropy_max)(Logits shape, const S* logits, R* max) {
    for (EACH_BY_WARP(row, shape.rows)) {
        R largest = -INFINITE;
        for (i64 col = lane(); col < shape.valid; col += 32) largest = larger(largest, widen(logits[row * shape.cols + col]));
        largest = warp_largest(largest);
        if (lane() == 0) max[row] = largest;
    }
}

// sums [rows, 2] = the sum of exp(logit - max), and the target's logit - max, 0 if it is elsewhere.
KERNEL(cross_entropy_sums)(Logits shape, const S* logits, const R* max, const u32* targets, R* sums) {
    for (EACH_BY_WARP(row, shape.rows)) {
        const S* of_row = logits + row * shape.cols;
        R m = max[row], sum = 0;
        for (i64 col = lane(); col < shape.valid; col += 32) sum = sum + exponential(widen(of_row[col]) - m);
        sum = warp_sum(sum);
        if (lane() > 0) continue;
        i64 target = (i64)targets[row] - shape.start;
        sums[2 * row] = sum;
        sums[2 * row + 1] = target >= 0 && target < shape.valid ? widen(of_row[target]) - m : (R)0;
    }
}

// x = its soft cap.
KERNEL(cap)(S* x, double cap, i64 n) {
    for (EACH(i, n)) store(&x[i], softened(widen(x[i]), cap));
}

// Logits become their gradient, (softmax - onehot) scale, 0 in the padding and where the target is left out; where a soft cap
// gave them (above 0), that of what it was given.
KERNEL(cross_entropy_gradient)
(Logits shape, S* logits, const R* max, const R* sums, const u32* targets, double scale, double cap) {
    for (EACH_BY_WARP(row, shape.rows)) {
        S* of_row = logits + row * shape.cols;
        R m = max[row], factor = (R)scale / sums[2 * row];
        bool counts = targets[row] != IGNORED;
        for (i64 col = lane(); col < shape.cols; col += 32) {
            if (!counts || col >= shape.valid) {
                of_row[col] = zero();
                continue;
            }
            R logit = widen(of_row[col]), slope = cap > 0 ? cap_slope(logit, cap) : (R)1;
            R softmax = exponential(logit - m) * factor;
            store(&of_row[col], (is_target(shape, targets[row], col) ? softmax - (R)scale : softmax) * slope);
        }
    }
}

// Rows of a partial sum of the loss.
#define LOSS_BLOCK 1024

// losses, counts = of each LOSS_BLOCK of rows the sum of ln S - q, and how many targets count.
KERNEL(cross_entropy_loss)(const R* sums, const u32* targets, double* losses, double* counts, i64 rows) {
    for (EACH_BY_WARP(block, (rows + LOSS_BLOCK - 1) / LOSS_BLOCK)) {
        i64 first = block * LOSS_BLOCK, end = first + LOSS_BLOCK < rows ? first + LOSS_BLOCK : rows;
        double loss = 0, count = 0;
        for (i64 row = first + lane(); row < end; row += 32) {
            if (targets[row] == IGNORED) continue;
            loss += log((double)sums[2 * row]) - (double)sums[2 * row + 1];
            count += 1;
        }
        loss = warp_sum(loss);
        count = warp_sum(count);
        if (lane() == 0) losses[block] = loss, counts[block] = count;
    }
}
