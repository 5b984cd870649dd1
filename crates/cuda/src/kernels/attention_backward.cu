// Attention, backward, by plain arithmetic: probabilities are recomputed from the saved logarithms. With P the
// probabilities, F the dropout factors and D = rowsum(dout out): dP = dout V^T, dS = P (dP F - D), dV = (P F)^T dout,
// dQ = dS K, dK = dS^T Q. Every sum is in the order of queries or keys.
#include "attention.cuh"

// dots [rows, heads] = D.
KERNEL(attention_row_dots)(Attention shape, const S* out, const S* dout, R* dots) {
    for (EACH_BY_WARP(row, shape.sequences * shape.tokens * shape.heads)) {
        R sum = 0;
        for (i64 col = lane(); col < shape.v; col += 32)
            sum = sum + widen(out[row * shape.v + col]) * widen(dout[row * shape.v + col]);
        sum = warp_sum(sum);
        if (lane() == 0) dots[row] = sum;
    }
}

struct Pair {
    // P F and dS.
    R weight, gradient;
};
// Of a query and a key that it sees.
DEVICE Pair pair_of(const Attention& shape, const AttentionMask& mask, const Saved& saved, Query at, i64 key) {
    const S* of_key = saved.kv + key_at(shape, at.sequence, group_of(shape, at.head), key);
    i64 out = out_at(shape, at.sequence, at.head, at.token), row = row_at(shape, at.sequence, at.head, at.token);
    const S* query = saved.qkv + query_at(shape, at.sequence, at.head, at.token);
    R score = scaled_dot(query, (R)shape.scale, of_key, shape.d);
    if (shape.cap > 0) score = softened(score, shape.cap);
    R kept = factor(mask, at.sequence, at.head, at.position, key);
    R dp = scaled_dot(saved.dout + out, (R)1, of_key + shape.d, shape.v);
    R probability = exponential(score - saved.log_sum_exp[row]);
    R gradient = probability * (dp * kept - saved.dots[row]);
    return {probability * kept, shape.cap > 0 ? gradient * cap_slope(score, shape.cap) : gradient};
}

// The queries of dqkv = their gradient. A warp has a query, its lanes 32 keys at a time.
KERNEL(attention_backward_queries)(Attention shape, AttentionMask mask, Saved saved, S* dqkv) {
    SHARED(R, gradients, THREADS);
    R* of_tile = gradients + threadIdx.x / 32 * 32;
    for (EACH_BY_WARP(unit, shape.sequences * shape.heads * shape.tokens)) {
        Query at = query_of(shape, unit);
        i64 group = group_of(shape, at.head);
        Seen keys = seen(shape, at.position);
        R sums[OF_LANE] = {};
        for (i64 first = keys.first; first < keys.end; first += 32) {
            i64 count = keys.end - first < 32 ? keys.end - first : 32;
            __syncwarp();
            if (lane() < count) of_tile[lane()] = pair_of(shape, mask, saved, at, first + lane()).gradient;
            __syncwarp();
#pragma unroll
            for (int i = 0; i < OF_LANE; i++) {
                i64 col = lane() + 32 * i;
                if (col >= shape.d) break;
                for (i64 key = 0; key < count; key++) {
                    i64 from = key_at(shape, at.sequence, group, first + key);
                    sums[i] = fused(of_tile[key], widen(saved.kv[from + col]), sums[i]);
                }
            }
        }
        S* to = dqkv + query_at(shape, at.sequence, at.head, at.token);
#pragma unroll
        for (int i = 0; i < OF_LANE; i++)
            if (lane() + 32 * i < shape.d) store(&to[lane() + 32 * i], sums[i] * (R)shape.scale);
    }
}

// The tokens of a chunk that see a key: from `first` up to `end`.
DEVICE Seen seeing(const Attention& shape, i64 chunk, i64 key) {
    i64 len = shape.chunk, token = chunk * len, begin = position_of(shape, token);
    i64 first = shape.causal && key > begin ? key - begin : 0;
    i64 end = shape.window > 0 && key + shape.window - begin < len ? key + shape.window - begin : len;
    return {token + first, token + end};
}

// The keys and values of dkv = what this part's queries contribute to their gradient. A warp has a key of a group, its
// lanes 32 queries at a time, head by head.
KERNEL(attention_backward_keys)(Attention shape, AttentionMask mask, Saved saved, S* dkv) {
    SHARED(R, weights, THREADS);
    SHARED(R, gradients, THREADS);
    R *of_weights = weights + threadIdx.x / 32 * 32, *of_gradients = gradients + threadIdx.x / 32 * 32;
    i64 of_group = shape.of_group, chunks = shape.context.parts == 1 ? 1 : 2;
    for (EACH_BY_WARP(unit, shape.sequences * shape.kv_heads * shape.seq_len)) {
        i64 key = rest(unit, shape.seq_len), of_sequence = quotient(unit, shape.seq_len);
        i64 group = rest(of_sequence, shape.kv_heads), sequence = quotient(of_sequence, shape.kv_heads);
        R dkey[OF_LANE] = {}, dvalue[OF_LANE] = {};
        for (i64 turn = 0; turn < of_group * chunks; turn++) {
            i64 head = group * of_group + (u32)turn / (u32)chunks;
            Query at = {sequence, head, 0, 0};
            Seen queries = seeing(shape, (u32)turn % (u32)chunks, key);
            for (i64 first = queries.first; first < queries.end; first += 32) {
                i64 count = queries.end - first < 32 ? queries.end - first : 32;
                at.token = first + lane();
                at.position = position_of(shape, at.token);
                __syncwarp();
                if (lane() < count) {
                    Pair pair = pair_of(shape, mask, saved, at, key);
                    of_weights[lane()] = pair.weight;
                    of_gradients[lane()] = pair.gradient;
                }
                __syncwarp();
#pragma unroll
                for (int i = 0; i < OF_LANE; i++) {
                    i64 col = lane() + 32 * i;
                    for (i64 query = 0; query < count && (col < shape.d || col < shape.v); query++) {
                        const S* of_query = saved.qkv + query_at(shape, sequence, at.head, first + query);
                        const S* of_out = saved.dout + out_at(shape, sequence, at.head, first + query);
                        R scaled = col < shape.d ? widen(of_query[col]) * (R)shape.scale : (R)0;
                        R dout = col < shape.v ? widen(of_out[col]) : (R)0;
                        dkey[i] = fused(of_gradients[query], scaled, dkey[i]);
                        dvalue[i] = fused(of_weights[query], dout, dvalue[i]);
                    }
                }
            }
        }
        S* to = dkv + key_at(shape, sequence, group, key);
#pragma unroll
        for (int i = 0; i < OF_LANE; i++) {
            i64 col = lane() + 32 * i;
            if (col < shape.d) store(&to[col], dkey[i]);
            if (col < shape.v) store(&to[shape.d + col], dvalue[i]);
        }
    }
}
