// What kernels of routers share. routes [rows, 3 k] are of each row the k experts that are chosen, their slots, -1 where
// there is none, and their weights; of padding experts and slots are -1, weights 0. A warp has a row, its lanes experts.
#pragma once
#include "prelude.cuh"

struct Router {
    i64 rows, experts, per_token;
};
struct Rule {
    i64 sigmoid, normalize;
    double scale;
    // Groups of consecutive experts, and of how many of them a token chooses experts.
    i64 groups, chosen_groups;
};

// True if a row of routes is padding.
DEVICE bool is_padding(const R* routes) {
    return routes[0] < (R)0;
}
// The sum of the counts of a scope's experts.
DEVICE double sum_of_counts(const R* counts, i64 experts) {
    double total = 0;
    for (i64 expert = lane(); expert < experts; expert += 32) total += (double)counts[expert];
    return warp_sum(total);
}

// By what a row's logits become probabilities.
struct Softmax {
    R largest, total;
};
DEVICE Softmax softmax_of(const R* logits, i64 experts) {
    R largest = -INFINITE, total = 0;
    for (i64 expert = lane(); expert < experts; expert += 32) largest = larger(largest, logits[expert]);
    largest = warp_largest(largest);
    for (i64 expert = lane(); expert < experts; expert += 32) total = total + exponential(logits[expert] - largest);
    return {largest, warp_sum(total)};
}
DEVICE R probability(const Rule& rule, const Softmax& of, R logit) {
    return rule.sigmoid ? (R)1 / ((R)1 + exponential(-logit)) : exponential(logit - of.largest) / of.total;
}
// The sum of a row's probabilities.
DEVICE R total_of(const Rule& rule, const Softmax& of, const R* logits, i64 experts) {
    R total = 0;
    for (i64 expert = lane(); expert < experts; expert += 32) total = total + probability(rule, of, logits[expert]);
    return warp_sum(total);
}
// Which of a row's choices is an expert, -1 for none.
DEVICE i64 choice_of(const R* chosen, i64 choices, i64 expert) {
    for (i64 choice = 0; choice < choices; choice++)
        if ((i64)chosen[choice] == expert) return choice;
    return -1;
}
