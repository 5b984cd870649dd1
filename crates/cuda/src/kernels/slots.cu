// The slots of chosen experts.
#include "router.cuh"

// Groups of `rows` tokens, for each of which an expert has `slots` slots; of a group with padding for its tokens alone.
struct Groups {
    i64 rows, slots;
    double slots_per_token;
    i64 by_score;
};
DEVICE i64 slots_for(const Groups& groups, i64 tokens) {
    if (tokens == groups.rows) return groups.slots;
    double wanted = ceil(groups.slots_per_token * (double)tokens * (1 - 1e-12));
    i64 most = groups.slots < tokens ? groups.slots : tokens;
    return wanted < (double)most ? (i64)wanted : most;
}
DEVICE R slot_of(const Groups& groups, i64 group, i64 taken, i64 slots) {
    return taken < slots ? (R)(group * groups.slots + taken) : (R)-1;
}
// Entry i of a group's routes: choice by choice, each by row.
DEVICE i64 entry_at(Router shape, Groups groups, i64 i) {
    return rest(i, groups.rows) * 3 * shape.per_token + quotient(i, groups.rows);
}

// Slots by choice, then by row. A warp has an expert of a group, its lanes entries.
KERNEL(take_slots)(Router shape, Groups groups, R* routes) {
    i64 k = shape.per_token, entries = groups.rows * k;
    for (EACH_BY_WARP(i, shape.rows / groups.rows * shape.experts)) {
        i64 group = quotient(i, shape.experts), expert = rest(i, shape.experts), taken = 0;
        R* of_group = routes + group * groups.rows * 3 * k;
        i64 tokens = 0;
        for (i64 row = lane(); row < groups.rows; row += 32) tokens += !is_padding(of_group + row * 3 * k);
        i64 slots = slots_for(groups, warp_sum(tokens));
        for (i64 first = 0; first < entries; first += 32) {
            i64 entry = first + lane();
            R* chosen = entry < entries ? of_group + entry_at(shape, groups, entry) : nullptr;
            bool is_own = chosen && (i64)*chosen == expert;
            u32 all = ballot(is_own);
            if (is_own) chosen[k] = slot_of(groups, group, taken + ones(all & ((1u << lane()) - 1)), slots);
            taken += ones(all);
        }
    }
}

// A weight, rounded to 13 binary digits: those that differ by the rounding of sums alone are equal, unless they lie beside the
// middle between two of these numbers. Larger ones are larger.
DEVICE u64 order_of(R weight) {
    u64 bits = (u64)__double_as_longlong((double)weight), half = 1ull << 39;
    return (bits > ~half ? ~0ull : bits + half) >> 40;
}
// Slots by weight, the largest first, of equal ones by choice, then by row. A thread has a choice.
KERNEL(take_slots_by_score)(Router shape, Groups groups, R* routes) {
    i64 k = shape.per_token, entries = groups.rows * k;
    for (EACH(i, shape.rows * k)) {
        i64 group = quotient(i, entries), own = rest(i, entries), taken = 0, tokens = 0;
        R* of_group = routes + group * groups.rows * 3 * k;
        R* chosen = of_group + entry_at(shape, groups, own);
        if (is_padding(chosen)) continue;
        u64 weight = order_of(chosen[2 * k]);
        for (i64 entry = 0, choice = 0; choice < k; choice++) {
            const R* other = of_group + choice;
            for (i64 row = 0; row < groups.rows; row++, entry++, other += 3 * k) {
                tokens += choice == 0 && *other >= (R)0;
                if (*other != *chosen) continue;
                u64 of_other = order_of(other[2 * k]);
                taken += of_other > weight || (of_other == weight && entry < own);
            }
        }
        chosen[k] = slot_of(groups, group, taken, slots_for(groups, tokens));
    }
}
