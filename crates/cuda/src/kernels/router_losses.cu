// What keeps loads of experts equal and logits small.
#include "router.cuh"

// How often the rows whose scope is `scope`, or all where there are no scopes, choose an expert. A warp counts.
DEVICE i64 choices_of(Router shape, const R* routes, const u32* scopes, i64 scope, i64 expert) {
    i64 k = shape.per_token, count = 0;
    for (i64 row = lane(); row < shape.rows; row += 32)
        if (!scopes || scopes[row] == scope) count += choice_of(routes + row * 3 * k, k, expert) >= 0;
    return warp_sum(count);
}

// counts [scopes, experts] = (or +=) how often each expert is chosen by the rows of each scope.
KERNEL(count_choices)(Router shape, const R* routes, const u32* scopes, R* counts, i64 n, i64 accumulate) {
    for (EACH_BY_WARP(i, n)) {
        i64 count = choices_of(shape, routes, scopes, i / shape.experts, i % shape.experts);
        if (lane() == 0) counts[i] = accumulate ? counts[i] + (R)count : (R)count;
    }
}

// loads [experts] += how often each expert is chosen.
KERNEL(add_loads)(Router shape, const R* routes, R* loads) {
    for (EACH_BY_WARP(expert, shape.experts)) {
        i64 count = choices_of(shape, routes, nullptr, 0, expert);
        if (lane() == 0) loads[expert] = loads[expert] + (R)count;
    }
}

// Moves biases by `rate` towards equal loads; update[0]: whether the step is applied.
KERNEL(follow_loads)(const double* update, double rate, i64 choices, i64 experts, const R* loads, R* bias, i64 n) {
    if (update[0] == 0) return;
    for (EACH(i, n)) {
        double below = (double)choices - (double)loads[i] * (double)experts;
        if (below > 0) bias[i] = bias[i] + (R)rate;
        if (below < 0) bias[i] = bias[i] - (R)rate;
    }
}

// balance, z, dropped [rows] = of each token balance_factor sum_e f_e p_e, z_factor lse^2, and how many choices are dropped;
// each loss only if its factor is not 0. Those of padding are 0.
KERNEL(router_losses)
(Router shape, Rule rule, double balance_factor, double z_factor, const R* logits, const R* routes, const R* counts,
 const u32* scopes, double* balance, double* z, double* dropped) {
    i64 k = shape.per_token, experts = shape.experts;
    for (EACH_BY_WARP(row, shape.rows)) {
        const R *of_row = logits + row * experts, *chosen = routes + row * 3 * k;
        if (is_padding(chosen)) {
            if (lane() == 0) balance[row] = z[row] = dropped[row] = 0;
            continue;
        }
        Softmax of = softmax_of(of_row, experts);
        double factor = 0, of_counts = 0, lse = (double)of.largest + log((double)of.total);
        if (balance_factor != 0) {
            const R* own = counts + scopes[row] * experts;
            R total = rule.sigmoid ? total_of(rule, of, of_row, experts) : (R)1;
            factor = balance_factor * ((double)experts / sum_of_counts(own, experts));
            for (i64 expert = lane(); expert < experts; expert += 32) {
                R share = probability(rule, of, of_row[expert]) / total;
                of_counts += (double)share * (double)own[expert];
            }
        }
        of_counts = warp_sum(of_counts);
        if (lane() > 0) continue;
        balance[row] = balance_factor == 0 ? 0 : factor * of_counts;
        z[row] = z_factor == 0 ? 0 : z_factor * (lse * lse);
        double lost = 0;
        for (i64 choice = 0; choice < k; choice++) lost += chosen[k + choice] < (R)0;
        dropped[row] = lost;
    }
}
