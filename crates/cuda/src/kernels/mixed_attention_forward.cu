// Attention, forward, by tensor cores: a block has 128 queries of a head, and a running maximum and sum of each while
// tiles of keys pass (Dao, 2023).
#include "attention_tiles.cuh"

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
            if (cap > 0)
#pragma unroll
                for (int i = 0; i < KEYS / 2; i++)
                    scores[i / 4][i % 4] = softened_quickly(scores[i / 4][i % 4] * scale, cap);
            if (begin < all.first || begin + KEYS > all.end)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    Span keys = keys_of(shape, (int)position_of(shape, own + 8 * half));
                    int key = begin + lane() % 4 * 2;
#pragma unroll
                    for (int i = 0; i < KEYS / 4; i++)
                        if (!contains(keys, key + i / 2 * 8 + i % 2)) scores[i / 2][2 * half + i % 2] = -infinity(0.0f);
                }
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float largest = max[half];
#pragma unroll
                for (int i = 0; i < KEYS / 4; i++) largest = larger(largest, scores[i / 2][2 * half + i % 2]);
                largest = larger(largest, __shfl_xor_sync(ALL, largest, 1));
                largest = larger(largest, __shfl_xor_sync(ALL, largest, 2));
                // A query that sees none yet has no maximum.
                float base = largest == -infinity(0.0f) ? 0.0f : largest * factor;
                float before = power_of_two(fused(max[half], factor, -base)), added = 0;
                max[half] = largest;
#pragma unroll
                for (int i = 0; i < KEYS / 4; i++) {
                    float& score = scores[i / 2][2 * half + i % 2];
                    score = power_of_two(fused(score, factor, -base));
                    added = added + score;
                }
                sum[half] = fused(sum[half], before, added);
#pragma unroll
                for (int i = 0; i < D / 4; i++) sums[i / 2][2 * half + i % 2] *= before;
            }
            if (mask.draw.threshold > 0) {
                u32 kept = kept_bits<KEYS / 8>(mask.draw, [&](int i) {
                    int key = begin + i / 4 * 8 + lane() % 4 * 2 + i % 2;
                    int query = (int)position_of(shape, own + (i & 2 ? 8 : 0));
                    return probability_at(mask, sequence, head, query, key);
                });
#pragma unroll
                for (int i = 0; i < KEYS / 2; i++)
                    if (!(kept >> i & 1)) scores[i / 4][i % 4] = 0;
            }
#pragma unroll
            for (int step = 0; step < KEYS / 16; step++) {
                u32 weights[4];
                as_left(weights, scores, step);
                multiply_columns<D>(sums, weights, values, 16 * step);
            }
        }
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
