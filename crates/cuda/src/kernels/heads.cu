// The queries of all heads apart from their keys and values, and the keys: what is normed together.
#include "prelude.cuh"

// Columns of a group of qkv [units, group]: queries, then a key of d columns, then a value.
struct Heads {
    i64 units, queries, d, group;
};

// queries [units, queries] and keys [units, d] = those columns of qkv.
KERNEL(split_heads)(Heads shape, const S* qkv, S* queries, S* keys) {
    i64 width = shape.queries + shape.d;
    for (EACH(i, shape.units * width)) {
        i64 unit = quotient(i, width), col = rest(i, width);
        S x = qkv[unit * shape.group + col];
        if (col < shape.queries)
            queries[unit * shape.queries + col] = x;
        else
            keys[unit * shape.d + col - shape.queries] = x;
    }
}

// Back; the value's columns become those of `beside`, or stay where there is none.
KERNEL(join_heads)(Heads shape, const S* queries, const S* keys, const S* beside, S* qkv) {
    i64 width = shape.queries + shape.d;
    for (EACH(i, shape.units * shape.group)) {
        i64 unit = quotient(i, shape.group), col = rest(i, shape.group);
        if (col < shape.queries)
            qkv[i] = queries[unit * shape.queries + col];
        else if (col < width)
            qkv[i] = keys[unit * shape.d + col - shape.queries];
        else if (beside)
            qkv[i] = beside[i];
    }
}
