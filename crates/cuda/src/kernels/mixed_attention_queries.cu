// Attention, backward, by tensor cores: the gradient of the queries. A block has 128 queries of a head while tiles of
// keys pass; letters are those of attention_backward.cu.
#include "attention_scores.cuh"

// Keys of a tile, and those whose probabilities a warp has at a time, as many as registers allow.
constexpr int KEYS = 64;

// The queries of dqkv = their gradient.
template <int D>
DEVICE void backward_queries(
    const Attention& shape, const AttentionMask& mask, const Saved& saved, bf16* dqkv, bf16* memory) {
    constexpr int STAGE = 2 * KEYS * D, STEP = D == 64 ? 16 : 32;
    bf16* douts = memory + 2 * STAGE;
    i64 tiles = quotient(shape.tokens + OF_BLOCK - 1, OF_BLOCK);
    float cap = (float)shape.cap, scale = (float)shape.scale, left = (float)mask.draw.scale;
    for (i64 unit = blockIdx.x; unit < shape.sequences * shape.heads * tiles; unit += gridDim.x) {
        u32 of_sequence = (u32)quotient(unit, tiles);
        int head = (int)(of_sequence % (u32)shape.heads), group = (int)group_of(shape, head);
        int sequence = (int)(of_sequence / (u32)shape.heads);
        QueryTile tile = query_tile(shape, (int)(tiles - 1 - rest(unit, tiles)), OF_BLOCK);
        int own = tile.first + warp_row() + lane() / 4, end = tile.first + tile.count;
        float logarithm[2], dot[2];
        load_sums(logarithm, dot, shape, saved, sequence, head, own, end);
        Span some = some_see(shape, tile), all = all_see(shape, tile);

        int begin = some.first / KEYS * KEYS, stage = 0;
        auto load = [&](int first, int at) {
            bf16* to = memory + at * STAGE;
            load_keys<KEYS, D>(to, to + KEYS * D, shape, saved.kv, sequence, group, first);
            commit_copies();
        };
        // Queries first lie where keys and values will.
        __syncthreads();
        load_queries<OF_BLOCK, D>(memory + STAGE, douts, shape, saved, sequence, head, tile);
        load(begin, 0);
        wait_for_copies<0>();
        __syncthreads();
        u32 queries[D / 16][4];
#pragma unroll
        for (int step = 0; step < D / 16; step++) load_left<D>(queries[step], memory + STAGE, warp_row(), step);

        float sums[D / 8][4] = {};
        for (; begin < some.end; begin += KEYS, stage ^= 1) {
            wait_for_copies<0>();
            __syncthreads();
            if (begin + KEYS < some.end) load(begin + KEYS, stage ^ 1);
            bf16 *keys = memory + stage * STAGE, *values = keys + KEYS * D;
            bool masked = begin < all.first || begin + KEYS > all.end;
#pragma unroll 1
            for (int part = 0; part < KEYS; part += STEP) {
                float scores[STEP / 8][4] = {}, gradients[STEP / 8][4] = {};
#pragma unroll
                for (int step = 0; step < D / 16; step++) {
                    multiply_rows<D>(scores, queries[step], keys, part, step);
                    u32 a[4];
                    load_left<D>(a, douts, warp_row(), step);
                    multiply_rows<D>(gradients, a, values, part, step);
                }
                differentiate_queries(
                    scores, gradients, shape, mask, masked, sequence, head, own, begin + part, scale, cap, left, logarithm, dot);
#pragma unroll
                for (int step = 0; step < STEP / 16; step++) {
                    u32 of_keys[4];
                    as_left(of_keys, gradients, step);
                    multiply_columns<D>(sums, of_keys, keys, part + 16 * step);
                }
            }
        }
        store_queries<D>(dqkv, shape, sequence, head, own, end, sums, scale);
    }
}

KERNEL(attention_backward_queries_64)(Attention shape, AttentionMask mask, Saved saved, S* dqkv) {
    DYNAMIC(bf16, memory, 6 * KEYS * 64);
    backward_queries<64>(shape, mask, saved, dqkv, memory);
}

// A block alone has 255 registers for a thread.
#undef BOUNDS
#define BOUNDS __launch_bounds__(THREADS, 1)

KERNEL(attention_backward_queries_128)(Attention shape, AttentionMask mask, Saved saved, S* dqkv) {
    DYNAMIC(bf16, memory, 6 * KEYS * 128);
    backward_queries<128>(shape, mask, saved, dqkv, memory);
}
