// Attention, forward, by tensor cores: a block has 128 queries of a head, and a running maximum and sum of each while
// tiles of keys pass (Dao, 2023).
#include "attention_scores.cuh"

// Keys of a tile.
constexpr int KEYS = 64;

// out = softmax(q k^T / sqrt(d)) v; log_sum_exp [rows, heads] = the logarithm of each softmax' denominator.
template <int D>
DEVICE void forward(
    const Attention& shape, const AttentionMask& mask, const bf16* qkv, const bf16* kv, bf16* out, float* log_sum_exp,
    bf16* memory) {
    // Keys and their values, then others: first of all the queries, which have the same size.
    constexpr int STAGE = 2 * KEYS * D;
    i64 tiles = quotient(shape.tokens + OF_BLOCK - 1, OF_BLOCK);
    float cap = (float)shape.cap, scale = (float)shape.scale, factor = (cap > 0 ? 1.0f : scale) * LOG2_E;
    for (i64 unit = blockIdx.x; unit < shape.sequences * shape.heads * tiles; unit += gridDim.x) {
        u32 of_sequence = (u32)quotient(unit, tiles);
        int head = (int)(of_sequence % (u32)shape.heads), group = (int)group_of(shape, head);
        int sequence = (int)(of_sequence / (u32)shape.heads);
        // The last queries first: they see most keys.
        QueryTile tile = query_tile(shape, (int)(tiles - 1 - rest(unit, tiles)), OF_BLOCK);
        int own = tile.first + warp_row() + lane() / 4;
        Span some = some_see(shape, tile), all = all_see(shape, tile);

        int begin = some.first / KEYS * KEYS, stage = 0;
        auto load = [&](int first, int at) {
            bf16* to = memory + at * STAGE;
            load_keys<KEYS, D>(to, to + KEYS * D, shape, kv, sequence, group, first);
        };
        auto query = [&](int row) { return qkv + query_at(shape, sequence, head, tile.first + row); };
        __syncthreads();
        load_tile<OF_BLOCK, D>(memory + STAGE, tile.count, (int)shape.d, query);
        load(begin, 0);
        commit_copies();
        wait_for_copies<0>();
        __syncthreads();
        u32 queries[D / 16][4];
#pragma unroll
        for (int step = 0; step < D / 16; step++) load_left<D>(queries[step], memory + STAGE, warp_row(), step);

        float sums[D / 8][4] = {}, max[2] = {-infinity(0.0f), -infinity(0.0f)}, sum[2] = {};
        for (; begin < some.end; begin += KEYS, stage ^= 1) {
            wait_for_copies<0>();
            __syncthreads();
            if (begin + KEYS < some.end) load(begin + KEYS, stage ^ 1);
            commit_copies();
            bf16 *keys = memory + stage * STAGE, *values = keys + KEYS * D;
            float scores[KEYS / 8][4] = {};
#pragma unroll
            for (int step = 0; step < D / 16; step++) multiply_rows<D>(scores, queries[step], keys, 0, step);
            cap_scores(scores, scale, cap);
            mask_scores(scores, shape, all, begin, own);
            weigh_scores(scores, max, sum, factor, [&](int half, float before) {
#pragma unroll
                for (int i = 0; i < D / 4; i++) sums[i / 2][2 * half + i % 2] *= before;
            });
            drop_weights(scores, shape, mask, sequence, head, begin, own);
#pragma unroll
            for (int step = 0; step < KEYS / 16; step++) {
                u32 weights[4];
                as_left(weights, scores, step);
                multiply_columns<D>(sums, weights, values, 16 * step);
            }
        }
        store_results<D>(shape, mask, tile, sequence, head, own, factor, sums, max, sum, out, log_sum_exp);
    }
}

KERNEL(attention_forward_64)
(Attention shape, AttentionMask mask, const S* qkv, const S* kv, S* out, R* log_sum_exp) {
    DYNAMIC(bf16, memory, 4 * KEYS * 64);
    forward<64>(shape, mask, qkv, kv, out, log_sum_exp, memory);
}

// A block alone has 255 registers for a thread, of which sums of so many columns need more than half.
#undef BOUNDS
#define BOUNDS __launch_bounds__(THREADS, 1)

KERNEL(attention_forward_128)
(Attention shape, AttentionMask mask, const S* qkv, const S* kv, S* out, R* log_sum_exp) {
    DYNAMIC(bf16, memory, 4 * KEYS * 128);
    forward<128>(shape, mask, qkv, kv, out, log_sum_exp, memory);
}
