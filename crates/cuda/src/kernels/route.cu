// The choice of experts and of their slots.
#include "router.cuh"

// A candidate and its key: number -1 is none.
struct Candidate {
    R key;
    i64 expert;
};
// The larger, of equal ones that with the lower number; what is not a number is less than all that are.
DEVICE Candidate better(Candidate a, Candidate b) {
    if (a.expert < 0 || b.expert < 0) return a.expert < 0 ? b : a;
    bool a_is_none = a.key != a.key, b_is_none = b.key != b.key;
    if (a_is_none != b_is_none) return a_is_none ? b : a;
    if (!a_is_none && a.key != b.key) return a.key > b.key ? a : b;
    return a.expert < b.expert ? a : b;
}
DEVICE Candidate warp_best(Candidate own) {
    for (int width = 16; width > 0; width /= 2) {
        Candidate other = {__shfl_xor_sync(ALL, own.key, width), __shfl_xor_sync(ALL, own.expert, width)};
        own = better(own, other);
    }
    return own;
}

// Experts and weights of routes; a key is the probability and, if there is one, the expert's bias.
KERNEL(route)(Router shape, Rule rule, const R* logits, const R* bias, R* routes) {
    i64 k = shape.per_token;
    for (EACH_BY_WARP(row, shape.rows)) {
        const R* of_row = logits + row * shape.experts;
        R *chosen = routes + row * 3 * k, *weights = chosen + 2 * k, total = 0;
        Softmax of = softmax_of(of_row, shape.experts);
        for (i64 choice = 0; choice < k; choice++) {
            // The best, and the first: if its key is no number it is chosen.
            Candidate best = {(R)0, -1}, first = {(R)0, -1};
            for (i64 expert = lane(); expert < shape.experts; expert += 32) {
                R key = probability(rule, of, of_row[expert]);
                if (bias) key = key + bias[expert];
                if (choice_of(chosen, choice, expert) >= 0 || key == -INFINITE) continue;
                best = better(best, {key, expert});
                if (first.expert < 0) first = {key, expert};
            }
            best = warp_best(best);
            first.expert = first.expert < 0 ? shape.experts : first.expert;
            for (int width = 16; width > 0; width /= 2) {
                Candidate other = {__shfl_xor_sync(ALL, first.key, width), __shfl_xor_sync(ALL, first.expert, width)};
                first = other.expert < first.expert ? other : first;
            }
            if (first.expert < shape.experts && first.key != first.key) best = first;
            R weight = probability(rule, of, of_row[best.expert]);
            total = total + weight;
            if (lane() == 0) chosen[choice] = (R)best.expert, weights[choice] = weight;
            __syncwarp();
        }
        for (i64 choice = lane(); choice < k; choice += 32)
            weights[choice] = rule.normalize ? weights[choice] / total * (R)rule.scale : weights[choice] * (R)rule.scale;
    }
}

// Groups of `rows` tokens, for each of which an expert has `slots` slots.
struct Groups {
    i64 rows, slots, by_score;
};
DEVICE R slot_of(const Groups& groups, i64 group, i64 taken) {
    return taken < groups.slots ? (R)(group * groups.slots + taken) : (R)-1;
}

// Slots by choice, then by row. A thread has an expert of a group.
KERNEL(take_slots)(Router shape, Groups groups, R* routes) {
    i64 k = shape.per_token;
    for (EACH(i, shape.rows / groups.rows * shape.experts)) {
        i64 group = i / shape.experts, expert = i % shape.experts, taken = 0;
        R* of_group = routes + group * groups.rows * 3 * k;
        for (i64 entry = 0; entry < groups.rows * k; entry++) {
            R* chosen = of_group + entry % groups.rows * 3 * k + entry / groups.rows;
            if ((i64)*chosen == expert) chosen[k] = slot_of(groups, group, taken++);
        }
    }
}

// A number by which weights are ordered as IEEE 754 orders them.
DEVICE i64 order_of(R weight) {
    i64 bits = __double_as_longlong((double)weight);
    return bits ^ (i64)((u64)(bits >> 63) >> 1);
}
// Slots by weight, the largest first, of equal ones by choice, then by row. A thread has a choice.
KERNEL(take_slots_by_score)(Router shape, Groups groups, R* routes) {
    i64 k = shape.per_token, entries = groups.rows * k;
    for (EACH(i, shape.rows * k)) {
        i64 group = i / entries, own = i % entries, taken = 0;
        R* of_group = routes + group * groups.rows * 3 * k;
        R* chosen = of_group + own % groups.rows * 3 * k + own / groups.rows;
        i64 weight = order_of(chosen[2 * k]);
        for (i64 entry = 0; entry < entries; entry++) {
            const R* other = of_group + entry % groups.rows * 3 * k + entry / groups.rows;
            if (*other != *chosen) continue;
            i64 of_other = order_of(other[2 * k]);
            taken += of_other > weight || (of_other == weight && entry < own);
        }
        chosen[k] = slot_of(groups, group, taken);
    }
}
