// What kernels of attention by tensor cores do with scores between two products. A lane has two rows' elements.
#pragma once
#include "attention_tiles.cuh"

// Of a tile of scores from key `begin` on: caps them, if there is a cap.
template <int N>
DEVICE void cap_scores(float (&scores)[N][4], float scale, float cap) {
    if (cap > 0)
#pragma unroll
        for (int i = 0; i < 4 * N; i++) scores[i / 4][i % 4] = softened_quickly(scores[i / 4][i % 4] * scale, cap);
}
// Leaves out keys that a query does not see; its first one is `own`.
template <int N>
DEVICE void mask_scores(float (&scores)[N][4], const Attention& shape, Span all, int begin, int own) {
    if (begin < all.first || begin + 8 * N > all.end)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            Span keys = keys_of(shape, (int)position_of(shape, own + 8 * half));
            int key = begin + lane() % 4 * 2;
#pragma unroll
            for (int i = 0; i < 2 * N; i++)
                if (!contains(keys, key + i / 2 * 8 + i % 2)) scores[i / 2][2 * half + i % 2] = -infinity(0.0f);
        }
}
// Makes scores weights of the running maximum, and adds them to the running sum; `rescale` gets what the sums so far
// are to be multiplied with.
template <int N, class Rescale>
DEVICE void weigh_scores(float (&scores)[N][4], float (&max)[2], float (&sum)[2], float factor, Rescale rescale) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float largest = max[half];
#pragma unroll
        for (int i = 0; i < 2 * N; i++) largest = larger(largest, scores[i / 2][2 * half + i % 2]);
        largest = larger(largest, __shfl_xor_sync(ALL, largest, 1));
        largest = larger(largest, __shfl_xor_sync(ALL, largest, 2));
        // A query that sees none yet has no maximum.
        float base = largest == -infinity(0.0f) ? 0.0f : largest * factor;
        float before = power_of_two(fused(max[half], factor, -base)), added = 0;
        max[half] = largest;
#pragma unroll
        for (int i = 0; i < 2 * N; i++) {
            float& score = scores[i / 2][2 * half + i % 2];
            score = power_of_two(fused(score, factor, -base));
            added = added + score;
        }
        sum[half] = fused(sum[half], before, added);
        rescale(half, before);
    }
}
// Drops weights, 64 keys at a time.
template <int N>
DEVICE void drop_weights(
    float (&weights)[N][4], const Attention& shape, const AttentionMask& mask, int sequence, int head, int begin,
    int own) {
    if (mask.draw.threshold > 0)
#pragma unroll
        for (int part = 0; part < N; part += 8) {
            u32 kept = kept_bits<8>(mask.draw, [&](int i) {
                int key = begin + 8 * part + i / 4 * 8 + lane() % 4 * 2 + i % 2;
                int query = (int)position_of(shape, own + (i & 2 ? 8 : 0));
                return probability_at(mask, sequence, head, query, key);
            });
#pragma unroll
            for (int i = 0; i < 32; i++)
                if (!(kept >> i & 1)) weights[part + i / 4][i % 4] = 0;
        }
}
// Stores a query's result and its logarithm.
template <int D>
DEVICE void store_results(
    const Attention& shape, const AttentionMask& mask, QueryTile tile, int sequence, int head, int own, float factor,
    const float (&sums)[D / 8][4], const float (&max)[2], const float (&sum)[2], bf16* out, float* log_sum_exp) {
    float left = mask.draw.threshold > 0 ? (float)mask.draw.scale : 1.0f;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float all = sum[half] + __shfl_xor_sync(ALL, sum[half], 1);
        all = all + __shfl_xor_sync(ALL, all, 2);
        int token = own + 8 * half;
        if (token >= tile.first + tile.count) continue;
        store_row<D>(out + out_at(shape, sequence, head, token), (int)shape.v, sums, half, left / all);
        if (lane() % 4 == 0)
            log_sum_exp[row_at(shape, sequence, head, token)] = max[half] * factor / LOG2_E + logf(all);
    }
}

// Backward, of a tile of scores whose rows are queries, from key `begin` on: makes the gradients of weights those of
// scores. `logarithm`, to base 2, and `dot` are of the lane's two queries.
template <int N>
DEVICE void differentiate_queries(
    float (&scores)[N][4], float (&gradients)[N][4], const Attention& shape, const AttentionMask& mask, bool masked,
    int sequence, int head, int own, int begin, float scale, float cap, float left, float (&logarithm)[2], float (&dot)[2]) {
    u32 kept = ~0u;
    if (mask.draw.threshold > 0)
        kept = kept_bits<N>(mask.draw, [&](int i) {
            int key = begin + i / 4 * 8 + lane() % 4 * 2 + i % 2;
            int query = (int)position_of(shape, own + (i & 2 ? 8 : 0));
            return probability_at(mask, sequence, head, query, key);
        });
#pragma unroll
    for (int i = 0; i < 4 * N; i++) {
        int half = i / 2 % 2;
        float score = scores[i / 4][i % 4] * scale, dp = gradients[i / 4][i % 4];
        if (cap > 0) score = softened_quickly(score, cap);
        float probability = power_of_two(fused(score, LOG2_E, -logarithm[half]));
        if (mask.draw.threshold > 0) dp = kept >> i & 1 ? dp * left : 0.0f;
        float gradient = probability * (dp - dot[half]);
        if (cap > 0) gradient = gradient * (1.0f - score / cap * (score / cap));
        gradients[i / 4][i % 4] = gradient;
    }
    if (masked)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            Span of_query = keys_of(shape, (int)position_of(shape, own + 8 * half));
            int key = begin + lane() % 4 * 2;
#pragma unroll
            for (int i = 0; i < 2 * N; i++)
                if (!contains(of_query, key + i / 2 * 8 + i % 2)) gradients[i / 2][2 * half + i % 2] = 0;
        }
}
// The same of transposed scores, whose rows are keys from `own` on, and columns the queries of a tile from `part` on,
// which have logarithms and dots: makes scores the weights, too.
template <int N>
DEVICE void differentiate_keys(
    float (&scores)[N][4], float (&gradients)[N][4], const Attention& shape, const AttentionMask& mask, QueryTile tile,
    bool masked, i64 sequence, i64 head, int own, int part, float scale, float cap, float left,
    float* logarithms, float* dots) {
    u32 kept = ~0u;
    if (mask.draw.threshold > 0)
        kept = kept_bits<N>(mask.draw, [&](int i) {
            int row = part + i / 4 * 8 + lane() % 4 * 2 + i % 2;
            int query = (int)position_of(shape, tile.first + row);
            return probability_at(mask, sequence, head, query, own + (i & 2 ? 8 : 0));
        });
#pragma unroll
    for (int i = 0; i < 4 * N; i++) {
        int row = part + i / 4 * 8 + lane() % 4 * 2 + i % 2, key = own + (i & 2 ? 8 : 0);
        float score = scores[i / 4][i % 4] * scale, dp = gradients[i / 4][i % 4];
        if (cap > 0) score = softened_quickly(score, cap);
        float weight = power_of_two((score - logarithms[row]) * LOG2_E);
        if (masked) {
            int query = (int)position_of(shape, tile.first + row);
            int window = (int)shape.window;
            bool later = shape.causal && key > query, before = window > 0 && key <= query - window;
            if (later || before) weight = 0;
        }
        bool stays = kept >> i & 1;
        float gradient = weight * ((stays ? dp * left : 0.0f) - dots[row]);
        if (cap > 0) gradient = gradient * (1.0f - score / cap * (score / cap));
        scores[i / 4][i % 4] = stays ? weight : 0.0f;
        gradients[i / 4][i % 4] = gradient;
    }
}

// Of each of a lane's two queries the logarithm of the denominator, to base 2, and the dot of its gradient; beyond the tile
// those of its last.
DEVICE void load_sums(
    float (&logarithm)[2], float (&dot)[2], const Attention& shape, const Saved& saved, int sequence, int head, int own,
    int end) {
    for (int half = 0; half < 2; half++) {
        i64 row = row_at(shape, sequence, head, own + 8 * half < end ? own + 8 * half : end - 1);
        logarithm[half] = saved.log_sum_exp[row] * LOG2_E, dot[half] = saved.dots[row];
    }
}

// Stores a lane's part of the gradients of two keys and of their values.
template <int D>
DEVICE void store_keys(
    bf16* dkv, const Attention& shape, int sequence, int group, int own, const float (&dkeys)[D / 8][4],
    const float (&dvalues)[D / 8][4], float scale, float left) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        if (own + 8 * half >= shape.seq_len) continue;
        bf16* to = dkv + key_at(shape, sequence, group, own + 8 * half);
        store_row<D>(to, (int)shape.d, dkeys, half, scale);
        store_row<D>(to + shape.d, (int)shape.v, dvalues, half, left);
    }
}

// Stores a lane's part of the gradients of two queries.
template <int D>
DEVICE void store_queries(
    bf16* dqkv, const Attention& shape, int sequence, int head, int own, int end, const float (&sums)[D / 8][4],
    float scale) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        bf16* to = dqkv + query_at(shape, sequence, head, own + 8 * half);
        if (own + 8 * half < end) store_row<D>(to, (int)shape.d, sums, half, scale);
    }
}
