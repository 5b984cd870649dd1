// Tokens copied to the slots of their experts, and the weighted sums of what experts computed.
#include "prelude.cuh"

// Experts have blocks of `slots` rows in `pieces` pieces of `of_piece` rows, or, where there are `starts`, queues: expert e the rows from
// starts[e] on.
struct Spread {
    i64 rows, cols, experts, per_token, slots, pieces, of_piece;
    const u32* starts;
    i64 places;
};
// The place of a choice of a row among the rows of all experts; -1 if it is dropped.
DEVICE i64 place_of(const Spread& shape, const R* routes, i64 row, i64 choice) {
    const R* own = routes + row * 3 * shape.per_token + choice;
    i64 expert = (i64)own[0], slot = (i64)own[shape.per_token];
    if (slot < 0) return -1;
    if (shape.starts) return shape.starts[expert] + slot;
    if (shape.pieces == 1) return expert * shape.slots + slot;
    return (quotient(slot, shape.of_piece) * shape.experts + expert) * shape.of_piece + rest(slot, shape.of_piece);
}
DEVICE R weight_of(const Spread& shape, const R* routes, i64 row, i64 choice) {
    return routes[(row * 3 + 2) * shape.per_token + choice];
}

// choices [places], where nobody's are all ones, = the choice that has each place.
KERNEL(choices)(Spread shape, const R* routes, u32* choices) {
    for (EACH(i, shape.rows * shape.per_token)) {
        i64 place = place_of(shape, routes, quotient(i, shape.per_token), rest(i, shape.per_token));
        if (place >= 0) choices[place] = (u32)i;
    }
}
// choices = nobody's.
KERNEL(no_choices)(u32* choices, i64 n) {
    for (EACH(i, n)) choices[i] = 0xffffffffu;
}

// y [places, cols] = in each choice's place a copy of its row of x; zero in places that nobody has.
KERNEL(spread)(Spread shape, const u32* choices, const S* x, S* y) {
    for (EACH(i, shape.places * shape.cols)) {
        u32 choice = choices[quotient(i, shape.cols)];
        y[i] = choice == 0xffffffffu ? zero() : x[quotient(choice, shape.per_token) * shape.cols + rest(i, shape.cols)];
    }
}

// dx [rows, cols] = the sum of dy over the places of a row, choice by choice, rounded once; `combine`: each times its
// weight.
KERNEL(spread_backward)(Spread shape, const S* dy, const R* routes, S* dx) {
    for (EACH(i, shape.rows * shape.cols)) {
        i64 row = quotient(i, shape.cols), col = rest(i, shape.cols);
        R sum = 0;
        for (i64 choice = 0; choice < shape.per_token; choice++) {
            i64 place = place_of(shape, routes, row, choice);
            if (place >= 0) sum = sum + widen(dy[place * shape.cols + col]);
        }
        store(&dx[i], sum);
    }
}
KERNEL(combine)(Spread shape, const S* x, const R* routes, S* y) {
    for (EACH(i, shape.rows * shape.cols)) {
        i64 row = quotient(i, shape.cols), col = rest(i, shape.cols);
        R sum = 0;
        for (i64 choice = 0; choice < shape.per_token; choice++) {
            i64 place = place_of(shape, routes, row, choice);
            if (place >= 0) sum = sum + weight_of(shape, routes, row, choice) * widen(x[place * shape.cols + col]);
        }
        store(&y[i], sum);
    }
}

// dx [places, cols] = weight times the row of dy, zero in places that nobody has.
KERNEL(combine_backward)(Spread shape, const u32* choices, const S* dy, const R* routes, S* dx) {
    for (EACH(i, shape.places * shape.cols)) {
        u32 choice = choices[quotient(i, shape.cols)];
        if (choice == 0xffffffffu) {
            dx[i] = zero();
        } else {
            i64 row = quotient(choice, shape.per_token);
            R weight = weight_of(shape, routes, row, rest(choice, shape.per_token));
            store(&dx[i], weight * widen(dy[row * shape.cols + rest(i, shape.cols)]));
        }
    }
}
// dweights [rows, k] = the row of dy times that of x, 0 of dropped choices. A warp has a choice.
KERNEL(combine_weights)(Spread shape, const S* dy, const S* x, const R* routes, R* dweights) {
    for (EACH_BY_WARP(choice, shape.rows * shape.per_token)) {
        i64 row = quotient(choice, shape.per_token);
        i64 place = place_of(shape, routes, row, rest(choice, shape.per_token));
        R sum = 0;
        for (i64 col = lane(); place >= 0 && col < shape.cols; col += 32)
            sum = sum + widen(dy[row * shape.cols + col]) * widen(x[place * shape.cols + col]);
        sum = warp_sum(sum);
        if (lane() == 0) dweights[choice] = sum;
    }
}
