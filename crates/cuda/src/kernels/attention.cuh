// What attention kernels share. Letters: d = columns of a query and a key, v = columns of a value.
#pragma once
#include "rows.cuh"

// The most columns of a query, a key or a value: a lane has one in 32 of them in registers.
#define MOST_COLUMNS 256
#define OF_LANE (MOST_COLUMNS / 32)

struct Attention {
    i64 sequences, seq_len;
    Part context;
    i64 heads, kv_heads, d, v, causal;
    // 0: none.
    i64 window;
    double cap;
    // Whether keys and values are those of all parts, apart from the queries.
    i64 gathered;
};
// Which probabilities stay: by the logical sequence, of `heads` heads, and positions, of `seq_len`.
struct AttentionMask {
    Draw draw;
    i64 first_sequence, first_head, heads, seq_len;
};
DEVICE R factor(const AttentionMask& mask, i64 sequence, i64 head, i64 query, i64 key) {
    i64 row = ((mask.first_sequence + sequence) * mask.heads + mask.first_head + head) * mask.seq_len + query;
    return factor(mask.draw, row * mask.seq_len + key);
}

DEVICE i64 tokens_of(const Attention& shape) { return shape.seq_len / shape.context.parts; }
DEVICE i64 group_heads(const Attention& shape) { return shape.heads / shape.kv_heads; }
DEVICE i64 group_cols(const Attention& shape) { return (group_heads(shape) + 1) * shape.d + shape.v; }
// Where a local token's query begins in qkv, and what a head gives in the output.
DEVICE i64 query_at(const Attention& shape, i64 sequence, i64 head, i64 token) {
    i64 group = head / group_heads(shape), other = head % group_heads(shape);
    i64 row = sequence * tokens_of(shape) + token;
    return (row * shape.kv_heads + group) * group_cols(shape) + other * shape.d;
}
DEVICE i64 out_at(const Attention& shape, i64 sequence, i64 head, i64 token) {
    return ((sequence * tokens_of(shape) + token) * shape.heads + head) * shape.v;
}
// Where the key of a position begins, which its value follows.
DEVICE i64 key_at(const Attention& shape, i64 sequence, i64 group, i64 position) {
    i64 pair = shape.d + shape.v, of_group = shape.gathered ? pair : group_cols(shape);
    i64 len = chunk_len(shape.context, shape.seq_len), chunk = position / len, parts = shape.context.parts;
    i64 part = chunk < parts ? chunk : 2 * parts - 1 - chunk, held = chunk < parts ? 0 : 1;
    i64 row = (part * shape.sequences + sequence) * tokens_of(shape) + held * len + position % len;
    return (row * shape.kv_heads + group + 1) * of_group - pair;
}

// The keys that a query at a position sees: from `first` up to `end`.
struct Seen {
    i64 first, end;
};
DEVICE Seen seen(const Attention& shape, i64 position) {
    i64 first = shape.window > 0 ? position + 1 - shape.window : 0;
    return {first > 0 ? first : 0, shape.causal ? position + 1 : shape.seq_len};
}

// What queries are multiplied with.
DEVICE R scale_of(i64 d) { return (R)1 / root((R)d); }

// x times factor, and y: the sum of products, in order.
DEVICE R scaled_dot(const S* x, R factor, const S* y, i64 n) {
    R sum = 0;
    for (i64 i = 0; i < n; i++) sum = fused(widen(x[i]) * factor, widen(y[i]), sum);
    return sum;
}

// The soft cap of a score; its slope where it gave `capped`.
DEVICE R softened(R score, double cap) {
    R inverse = (R)1 / (R)cap;
    return (R)cap * ((R)1 - (R)2 / (exponential((R)2 * score * inverse) + (R)1));
}
DEVICE R cap_slope(R capped, double cap) {
    R tanh = capped / (R)cap;
    return (R)1 - tanh * tanh;
}

// Of a sequence's rows in a head's order: unit = (sequence * heads + head) * tokens + token.
struct Query {
    i64 sequence, head, token, position;
};
DEVICE Query query_of(const Attention& shape, i64 unit) {
    i64 tokens = tokens_of(shape), token = unit % tokens, head = unit / tokens;
    return {head / shape.heads, head % shape.heads, token, position_of(shape.context, token, shape.seq_len)};
}
