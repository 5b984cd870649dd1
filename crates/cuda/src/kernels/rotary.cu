// Rotary positions: pair i of a head, its numbers i and i + pairs, turns by an angle of the row's position.
#include "rows.cuh"

// Of each group of qkv, `group` columns, the first `turned` heads of `head_dim` columns.
struct Turn {
    i64 rows, groups, group, turned, head_dim, pairs, back;
};

// table [_, 2 * pairs]: cosines, then sines.
KERNEL(rotate)(Turn turn, Positions at, const R* table, S* x) {
    i64 heads = turn.groups * turn.turned;
    for (EACH(i, turn.rows * heads * turn.pairs)) {
        i64 pair = rest(i, turn.pairs), head = quotient(i, turn.pairs), row = quotient(head, heads);
        head = rest(head, heads);
        const R* angles = table + angle(at, row) * 2 * turn.pairs;
        R cosine = angles[pair], sine = turn.back ? -angles[turn.pairs + pair] : angles[turn.pairs + pair];
        S* first = x + (row * turn.groups + quotient(head, turn.turned)) * turn.group;
        first += rest(head, turn.turned) * turn.head_dim + pair;
        S* second = first + turn.pairs;
        R a = widen(*first), b = widen(*second);
        store(first, a * cosine - b * sine);
        store(second, b * cosine + a * sine);
    }
}
