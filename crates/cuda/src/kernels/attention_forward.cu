// Attention, forward, by plain arithmetic: a warp has a query, and a running maximum and sum while tiles of keys pass.
#include "attention.cuh"

// Keys of a tile, two to a lane: that of the processor, after which it rescales what it has summed.
#define TILE 64

// out = softmax(q k^T / sqrt(d)) v; log_sum_exp [rows, heads] = the logarithm of each softmax' denominator.
KERNEL(attention_forward)
(Attention shape, AttentionMask mask, const S* qkv, const S* kv, S* out, R* log_sum_exp) {
    SHARED(R, weights, WARPS * TILE);
    R* of_tile = weights + threadIdx.x / 32 * TILE;
    for (EACH_BY_WARP(unit, shape.sequences * shape.heads * shape.tokens)) {
        Query at = query_of(shape, unit);
        i64 group = group_of(shape, at.head);
        const S* query = qkv + query_at(shape, at.sequence, at.head, at.token);
        Seen keys = seen(shape, at.position);
        R max = -INFINITE, sum = 0, sums[OF_LANE] = {};
        for (i64 tile = keys.first / TILE * TILE; tile < keys.end; tile += TILE) {
            R scores[2], largest = max;
            for (int half = 0; half < 2; half++) {
                i64 key = tile + lane() + 32 * half;
                scores[half] = -INFINITE;
                if (key < keys.first || key >= keys.end) continue;
                const S* of_key = kv + key_at(shape, at.sequence, group, key);
                scores[half] = scaled_dot(query, (R)shape.scale, of_key, shape.d);
                if (shape.cap > 0) scores[half] = softened(scores[half], shape.cap);
                largest = larger(largest, scores[half]);
            }
            largest = warp_largest(largest);
            R before = exponential(max - largest), of_lane = 0;
            __syncwarp();
            for (int half = 0; half < 2; half++) {
                i64 key = tile + lane() + 32 * half;
                R weight = exponential(scores[half] - largest);
                of_lane = of_lane + weight;
                if (mask.draw.threshold > 0 && weight > (R)0)
                    weight = weight * factor(mask, at.sequence, at.head, at.position, key);
                of_tile[lane() + 32 * half] = weight;
            }
            sum = fused(before, sum, warp_sum(of_lane));
            max = largest;
            __syncwarp();
            i64 first = keys.first > tile ? keys.first : tile, end = keys.end < tile + TILE ? keys.end : tile + TILE;
#pragma unroll
            for (int i = 0; i < OF_LANE; i++) {
                i64 col = lane() + 32 * i;
                if (col >= shape.v) break;
                sums[i] = sums[i] * before;
                for (i64 key = first; key < end; key++) {
                    const S* value = kv + key_at(shape, at.sequence, group, key) + shape.d;
                    sums[i] = fused(of_tile[key - tile], widen(value[col]), sums[i]);
                }
            }
        }
        S* to = out + out_at(shape, at.sequence, at.head, at.token);
        R inverse = (R)1 / sum;
#pragma unroll
        for (int i = 0; i < OF_LANE; i++)
            if (lane() + 32 * i < shape.v) store(&to[lane() + 32 * i], sums[i] * inverse);
        if (lane() == 0) log_sum_exp[row_at(shape, at.sequence, at.head, at.token)] = max + (R)log((double)sum);
    }
}
