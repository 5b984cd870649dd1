// The gradient of a router's logits, of the weights and of the losses. A warp has a row, its lanes experts.
#include "router.cuh"

// Factors of the losses' gradients: of the balance loss by frequency, 0 for none, of the other by the logarithm. `counts`
// [scopes, experts] are of the scopes that `scopes` [rows] names.
struct Losses {
    double balance, z;
    const R* counts;
    const u32* scopes;
};

// What the weights give to the probability of a chosen expert: slope (dw - mean).
struct OfWeights {
    R slope, mean;
};
DEVICE OfWeights of_weights(Router shape, Rule rule, Softmax of, const R* logits, const R* chosen, const R* dweights) {
    R slope = (R)rule.scale, mean = 0, total = 0;
    if (!rule.normalize) return {slope, mean};
    for (i64 choice = 0; choice < shape.per_token; choice++) {
        R p = probability(rule, of, logits[(i64)chosen[choice]]);
        total = total + p;
        mean = mean + p * dweights[choice];
    }
    return {slope / total, mean / total};
}

KERNEL(route_backward)(Router shape, Rule rule, Losses losses, R* logits, const R* routes, const R* dweights) {
    i64 k = shape.per_token, experts = shape.experts;
    for (EACH_BY_WARP(row, shape.rows)) {
        R* of_row = logits + row * experts;
        const R *chosen = routes + row * 3 * k, *dw = dweights + row * k;
        if (is_padding(chosen)) {
            for (i64 expert = lane(); expert < experts; expert += 32) of_row[expert] = 0;
            continue;
        }
        Softmax of = softmax_of(of_row, experts);
        OfWeights weights = of_weights(shape, rule, of, of_row, chosen, dw);
        const R* counts = losses.counts ? losses.counts + losses.scopes[row] * experts : nullptr;
        R slope = 0, of_counts = 0;
        if (counts) slope = (R)(losses.balance * ((double)experts / sum_of_counts(counts, experts)));
        if (counts && rule.sigmoid) {
            R total = total_of(rule, of, of_row, experts);
            slope = slope / total;
            for (i64 expert = lane(); expert < experts; expert += 32)
                of_counts = of_counts + counts[expert] * (probability(rule, of, of_row[expert]) / total);
            of_counts = warp_sum(of_counts);
        }
        // The gradient of an expert's probability; with it twice, for their mean and for each.
        auto dp_of = [&](i64 expert) {
            i64 choice = choice_of(chosen, k, expert);
            R dp = counts ? slope * (counts[expert] - of_counts) : (R)0;
            return choice < 0 ? dp : dp + weights.slope * (dw[choice] - weights.mean);
        };
        R mean = 0;
        for (i64 expert = lane(); expert < experts; expert += 32)
            mean = mean + dp_of(expert) * probability(rule, of, of_row[expert]);
        mean = warp_sum(mean);
        R of_z = losses.z == 0 ? (R)0 : (R)(losses.z * ((double)of.largest + log((double)of.total)));
        // No lane writes before all have read the logits of chosen experts: the sum above waits for all.
        for (i64 expert = lane(); expert < experts; expert += 32) {
            R p = probability(rule, of, of_row[expert]), dp = dp_of(expert);
            R of_rule = rule.sigmoid ? dp * p * ((R)1 - p) : p * (dp - mean);
            R softmax = losses.z == 0 ? (R)0 : exponential(of_row[expert] - of.largest) / of.total;
            of_row[expert] = of_rule + of_z * softmax;
        }
    }
}
