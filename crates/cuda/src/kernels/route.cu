// The choice of experts and of their slots.
#include "router.cuh"

// A candidate and its key: number -1 is none.
struct Candidate {
    R key;
    i64 at;
};
// The larger, of equal ones the first; what is not a number is less than all that are.
DEVICE Candidate better(Candidate a, Candidate b) {
    if (a.at < 0 || b.at < 0) return a.at < 0 ? b : a;
    bool a_is_none = a.key != a.key, b_is_none = b.key != b.key;
    if (a_is_none != b_is_none) return a_is_none ? b : a;
    if (!a_is_none && a.key != b.key) return a.key > b.key ? a : b;
    return a.at < b.at ? a : b;
}
DEVICE Candidate earlier(Candidate a, Candidate b) {
    if (a.at < 0 || b.at < 0) return a.at < 0 ? b : a;
    return a.at < b.at ? a : b;
}
DEVICE Candidate of_lane(Candidate own, int other) {
    return {__shfl_xor_sync(ALL, own.key, other), __shfl_xor_sync(ALL, own.at, other)};
}

// The first of the largest keys that lie `stride` apart. What is not a number is chosen only where it comes first, and minus
// infinity never; 0 if there is nothing else. `step` and `from`: the keys that this lane looks at.
DEVICE Candidate largest_of(const R* keys, i64 count, i64 stride, i64 from, i64 step, Candidate* first) {
    Candidate best = {(R)0, -1};
    *first = best;
    for (i64 at = from; at < count; at += step) {
        R key = keys[at * stride];
        if (key == -INFINITE) continue;
        best = better(best, {key, at});
        *first = earlier(*first, {key, at});
    }
    return best;
}
DEVICE i64 chosen_of(Candidate best, Candidate first) {
    i64 at = first.key != first.key ? first.at : best.at;
    return at < 0 ? 0 : at;
}
// By one lane, and by all lanes of a warp.
DEVICE i64 largest_key(const R* keys, i64 count) {
    Candidate first, best = largest_of(keys, count, 1, 0, 1, &first);
    return chosen_of(best, first);
}
DEVICE i64 warp_largest_key(const R* keys, i64 count, i64 stride) {
    Candidate first, best = largest_of(keys, count, stride, lane(), 32, &first);
    for (int width = 16; width > 0; width /= 2) {
        best = better(best, of_lane(best, width));
        first = earlier(first, of_lane(first, width));
    }
    return chosen_of(best, first);
}

// What gives the keys of a row's experts: probabilities and, if there is one, each expert's bias; where a probability is no
// number, as of a diverged model, the distance from the expert whose turn it is.
struct Keys {
    Rule rule;
    Softmax of;
    const R *logits, *bias;
    i64 experts, turn;
    bool in_turn;
};
DEVICE R key_of(const Keys& keys, i64 expert) {
    if (keys.in_turn) return -(R)rest(expert + keys.experts - keys.turn, keys.experts);
    R p = probability(keys.rule, keys.of, keys.logits[expert]);
    return keys.bias ? p + keys.bias[expert] : p;
}

// Makes keys minus infinity but those of the groups with the largest sums of largest keys. A lane has a group, whose first key
// holds its sum meanwhile.
DEVICE void close_groups(const Keys& of, i64 per_token, R* keys) {
    i64 groups = of.rule.groups, size = of.experts / groups;
    for (i64 group = lane(); group < groups; group += 32) {
        R *own = keys + group * size, sum = 0;
        for (i64 taken = 0; taken < per_token / of.rule.chosen_groups; taken++) {
            i64 largest = largest_key(own, size);
            sum = sum + own[largest];
            own[largest] = -INFINITE;
        }
        own[0] = sum;
    }
    __syncwarp();
    for (i64 taken = 0; taken < of.rule.chosen_groups; taken++) {
        i64 largest = warp_largest_key(keys, groups, size);
        // No lane marks it as taken before all have looked at it.
        __syncwarp();
        if (lane() == 0) keys[largest * size] = -INFINITE;
        __syncwarp();
    }
    for (i64 group = lane(); group < groups; group += 32) {
        bool open = keys[group * size] == -INFINITE;
        for (i64 expert = group * size; expert < (group + 1) * size; expert++)
            keys[expert] = open ? key_of(of, expert) : -INFINITE;
    }
    __syncwarp();
}

// Experts and weights of routes, and the slots of padding, whose entry of `present` [rows] is 0; keys [rows, experts] are
// scratch. A warp has a row.
KERNEL(route)(Router shape, Rule rule, const u32* present, const R* logits, const R* bias, R* keys, R* routes) {
    i64 k = shape.per_token, experts = shape.experts;
    for (EACH_BY_WARP(row, shape.rows)) {
        if (!present[row]) {
            for (i64 i = lane(); i < 3 * k; i += 32) routes[row * 3 * k + i] = i < 2 * k ? (R)-1 : (R)0;
            continue;
        }
        const R* of_row = logits + row * experts;
        R *own = keys + row * experts, *chosen = routes + row * 3 * k, *weights = chosen + 2 * k, total = 0;
        Keys of = {rule, softmax_of(of_row, experts), of_row, bias, experts, rest(row * k, experts), false};
        int no_numbers = 0;
        for (i64 expert = lane(); expert < experts; expert += 32) {
            R p = probability(rule, of.of, of_row[expert]);
            no_numbers += p != p;
        }
        of.in_turn = warp_sum(no_numbers) > 0;
        for (i64 expert = lane(); expert < experts; expert += 32) own[expert] = key_of(of, expert);
        __syncwarp();
        if (rule.groups > rule.chosen_groups) close_groups(of, k, own);
        for (i64 choice = 0; choice < k; choice++) {
            i64 best = warp_largest_key(own, experts, 1);
            R weight = probability(rule, of.of, of_row[best]);
            total = total + weight;
            // Less than any key: it is not chosen again. No lane says so before all have looked.
            __syncwarp();
            if (lane() == 0) own[best] = -INFINITE, chosen[choice] = (R)best, weights[choice] = weight;
            __syncwarp();
        }
        for (i64 choice = lane(); choice < k; choice += 32)
            weights[choice] = rule.normalize ? weights[choice] / total * (R)rule.scale : weights[choice] * (R)rule.scale;
    }
}
