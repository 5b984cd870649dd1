// Queries, keys and values of latent attention, put beside each other.
#include "prelude.cuh"

// Letters as of the processor: d columns of a query and a key, v of a value, k of a key that all heads share.
struct Latent {
    i64 rows, heads, d, v, k;
};
DEVICE i64 head_of(Latent shape) { return 2 * shape.d + shape.v; }
DEVICE i64 pair_of(Latent shape) { return shape.d - shape.k + shape.v; }

// qkv = of each head the query, the shared part of the key, and the pair of the rest of the key and the value.
KERNEL(join_latent)(Latent shape, const S* queries, const S* pairs, const S* shared, S* qkv) {
    i64 d = shape.d, k = shape.k, width = head_of(shape);
    for (EACH(i, shape.rows * shape.heads * width)) {
        i64 head = quotient(i, width), col = rest(i, width);
        if (col < d)
            qkv[i] = queries[head * d + col];
        else if (col < d + k)
            qkv[i] = shared[quotient(head, shape.heads) * k + col - d];
        else
            qkv[i] = pairs[head * pair_of(shape) + col - d - k];
    }
}

KERNEL(split_latent)(Latent shape, const S* dqkv, S* dqueries, S* dpairs) {
    i64 d = shape.d, k = shape.k, width = head_of(shape);
    for (EACH(i, shape.rows * shape.heads * width)) {
        i64 head = quotient(i, width), col = rest(i, width);
        if (col < d)
            dqueries[head * d + col] = dqkv[i];
        else if (col >= d + k)
            dpairs[head * pair_of(shape) + col - d - k] = dqkv[i];
    }
}

// dshared [rows, k] = the sums over heads, in their order.
KERNEL(split_latent_shared)(Latent shape, const S* dqkv, S* dshared) {
    for (EACH(i, shape.rows * shape.k)) {
        i64 row = quotient(i, shape.k), col = shape.d + rest(i, shape.k);
        R sum = 0;
        for (i64 head = 0; head < shape.heads; head++)
            sum = sum + widen(dqkv[(row * shape.heads + head) * head_of(shape) + col]);
        store(&dshared[i], sum);
    }
}
