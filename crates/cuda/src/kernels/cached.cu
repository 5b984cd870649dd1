// Attention to keys and values of earlier passes, for generation. The cache is [sequences, kv_heads, c (d + v)]: of each
// sequence and group of heads the keys, in tiles of 32 positions that lie as [d, positions], then the values [c, v].
#include "attention.cuh"

// Positions in a tile of keys; the last one may have fewer.
#define CACHE_TILE 32

struct Cache {
    i64 sequences, tokens, capacity, heads, kv_heads, d, v;
    // 0: none.
    i64 window;
    // What scores are multiplied with; their soft cap, 0 for none.
    double scale, cap;
};
DEVICE i64 of_unit(const Cache& shape) { return shape.capacity * (shape.d + shape.v); }
DEVICE i64 group_cols(const Cache& shape) { return (shape.heads / shape.kv_heads + 1) * shape.d + shape.v; }
// Where number `col` of the key of a position lies in the cache of its unit.
DEVICE i64 key_at(const Cache& shape, i64 position, i64 col) {
    i64 first = position / CACHE_TILE * CACHE_TILE, width = shape.capacity - first < CACHE_TILE ? shape.capacity - first : CACHE_TILE;
    return first * shape.d + col * width + position - first;
}

// Puts the keys and values of qkv into the cache, behind those that were there; what is beyond the capacity is left out.
KERNEL(store_keys_values)(Cache shape, const u32* starts, const S* qkv, S* cache) {
    i64 pair = shape.d + shape.v;
    for (EACH(i, shape.sequences * shape.tokens * shape.kv_heads * pair)) {
        i64 col = rest(i, pair), unit = quotient(i, pair), group = rest(unit, shape.kv_heads);
        i64 row = quotient(unit, shape.kv_heads), sequence = row / shape.tokens;
        i64 position = starts[sequence] + row % shape.tokens;
        if (position >= shape.capacity) continue;
        S* of_cache = cache + (sequence * shape.kv_heads + group) * of_unit(shape);
        i64 to = col < shape.d ? key_at(shape, position, col) : shape.capacity * shape.d + position * shape.v + col - shape.d;
        of_cache[to] = qkv[(unit + 1) * group_cols(shape) - pair + col];
    }
}

// The score of a query and a cached key.
DEVICE R cached_score(const Cache& shape, const S* query, const S* cache, i64 position) {
    R sum = 0;
    for (i64 col = 0; col < shape.d; col++) sum = sum + widen(query[col]) * widen(cache[key_at(shape, position, col)]);
    R score = sum * (R)shape.scale;
    return shape.cap > 0 ? softened(score, shape.cap) : score;
}

// out [sequences * tokens, heads * v] = softmax(q k^T / sqrt(d)) v over the cache; zero in rows beyond the capacity. A warp
// has a head of a token; scores [sequences * tokens * heads, capacity] are scratch.
KERNEL(cached_attention)(Cache shape, const u32* starts, const S* qkv, const S* cache, R* scores, S* out) {
    for (EACH_BY_WARP(unit, shape.sequences * shape.tokens * shape.heads)) {
        i64 head = unit % shape.heads, row = unit / shape.heads, sequence = row / shape.tokens;
        i64 of_group = shape.heads / shape.kv_heads, group = head / of_group;
        i64 seen = starts[sequence] + row % shape.tokens + 1;
        i64 first = shape.window > 0 && seen > shape.window ? seen - shape.window : 0;
        const S* query = qkv + (row * shape.kv_heads + group) * group_cols(shape) + head % of_group * shape.d;
        const S* of_cache = cache + (sequence * shape.kv_heads + group) * of_unit(shape);
        R *weights = scores + unit * shape.capacity, max = -INFINITE, sum = 0;
        if (seen > shape.capacity) first = seen = 0;
        for (i64 key = first + lane(); key < seen; key += 32) {
            weights[key] = cached_score(shape, query, of_cache, key);
            max = larger(max, weights[key]);
        }
        max = warp_largest(max);
        for (i64 key = first + lane(); key < seen; key += 32) sum = sum + (weights[key] = exponential(weights[key] - max));
        R inverse = (R)1 / warp_sum(sum);
        __syncwarp();
        for (i64 col = lane(); col < shape.v; col += 32) {
            R weighted = 0;
            for (i64 key = first; key < seen; key++) {
                R value = widen(of_cache[shape.capacity * shape.d + key * shape.v + col]);
                weighted = weighted + weights[key] * inverse * value;
            }
            store(&out[unit * shape.v + col], weighted);
        }
        __syncwarp();
    }
}

// y [sequences, cols] = of each sequence of x [sequences * tokens, cols] the row newest[sequence].
KERNEL(newest_rows)(const u32* newest, const S* x, S* y, i64 sequences, i64 tokens, i64 cols) {
    for (EACH(i, sequences * cols)) {
        i64 sequence = quotient(i, cols);
        y[i] = x[(sequence * tokens + newest[sequence]) * cols + rest(i, cols)];
    }
}
