// What attention kernels share. Letters: d = columns of a query and a key, v = columns of a value.
#pragma once
#include "cap.cuh"
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
    // What queries are multiplied with; the soft cap of scores, 0 for none.
    double scale, cap;
    // Whether keys and values are those of all parts, apart from the queries.
    i64 gathered;
    // What follows from these: tokens of a sequence on this rank, tokens of a chunk, heads that share a key.
    i64 tokens, chunk, of_group;
};
// Which probabilities stay: by the logical sequence, of `heads` heads, and positions, of `seq_len`.
struct AttentionMask {
    Draw draw;
    i64 first_sequence, first_head, heads, seq_len;
};
// What was saved of the forward pass, and the gradient of its result; row dots of the two.
struct Saved {
    const S *qkv, *kv, *dout;
    const R *log_sum_exp, *dots;
};
DEVICE R factor(const AttentionMask& mask, i64 sequence, i64 head, i64 query, i64 key) {
    i64 row = ((mask.first_sequence + sequence) * mask.heads + mask.first_head + head) * mask.seq_len + query;
    return factor(mask.draw, row * mask.seq_len + key);
}

DEVICE i64 group_cols(const Attention& shape) { return (shape.of_group + 1) * shape.d + shape.v; }
// The group of a head.
DEVICE i64 group_of(const Attention& shape, i64 head) { return (u32)head / (u32)shape.of_group; }
// Where a local token's query begins in qkv.
DEVICE i64 query_at(const Attention& shape, i64 sequence, i64 head, i64 token) {
    i64 group = group_of(shape, head), other = head - group * shape.of_group;
    i64 row = sequence * shape.tokens + token;
    return (row * shape.kv_heads + group) * group_cols(shape) + other * shape.d;
}
// Number of a head's row among all rows of all heads, and where what it gives begins in the output.
DEVICE i64 row_at(const Attention& shape, i64 sequence, i64 head, i64 token) {
    return (sequence * shape.tokens + token) * shape.heads + head;
}
DEVICE i64 out_at(const Attention& shape, i64 sequence, i64 head, i64 token) {
    return row_at(shape, sequence, head, token) * shape.v;
}
// Where the key of a position begins, which its value follows.
DEVICE i64 key_at(const Attention& shape, i64 sequence, i64 group, i64 position) {
    i64 pair = shape.d + shape.v, of_group = shape.gathered ? pair : group_cols(shape), parts = shape.context.parts;
    i64 row = sequence * shape.tokens + position;
    if (parts > 1) {
        // Positions and heads are less than 2^32.
        i64 chunk = (u32)position / (u32)shape.chunk, held = chunk < parts ? 0 : shape.chunk;
        i64 part = chunk < parts ? chunk : 2 * parts - 1 - chunk;
        row = (part * shape.sequences + sequence) * shape.tokens + held + (u32)position % (u32)shape.chunk;
    }
    return (row * shape.kv_heads + group + 1) * of_group - pair;
}
// The position of a local token.
DEVICE i64 position_of(const Attention& shape, i64 token) {
    Part part = shape.context;
    return (token < shape.chunk ? part.part : 2 * part.parts - 2 - part.part) * shape.chunk + token;
}

// The keys that a query at a position sees: from `first` up to `end`.
struct Seen {
    i64 first, end;
};
DEVICE Seen seen(const Attention& shape, i64 position) {
    i64 first = shape.window > 0 ? position + 1 - shape.window : 0;
    return {first > 0 ? first : 0, shape.causal ? position + 1 : shape.seq_len};
}

// x times factor, and y: the sum of products, in order.
DEVICE R scaled_dot(const S* x, R factor, const S* y, i64 n) {
    R sum = 0;
    for (i64 i = 0; i < n; i++) sum = fused(widen(x[i]) * factor, widen(y[i]), sum);
    return sum;
}

// Of a sequence's rows in a head's order: unit = (sequence * heads + head) * tokens + token.
struct Query {
    i64 sequence, head, token, position;
};
DEVICE Query query_of(const Attention& shape, i64 unit) {
    i64 token = rest(unit, shape.tokens), head = quotient(unit, shape.tokens);
    return {quotient(head, shape.heads), rest(head, shape.heads), token, position_of(shape, token)};
}
