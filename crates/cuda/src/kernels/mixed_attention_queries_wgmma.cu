// Attention, backward, by tensor cores of warpgroups: the gradient of the queries, as mixed_attention_queries.cu.
#include "attention_scores.cuh"

// Keys of a tile.
constexpr int KEYS = 64;
// Queries and the gradients of what they gave; two tiles of keys and values.
template <int D>
constexpr int MEMORY = (2 * OF_BLOCK + 4 * KEYS) * D;

// The queries of dqkv = their gradient.
template <int D>
DEVICE void backward_queries(
    const Attention& shape, const AttentionMask& mask, const Saved& saved, bf16* dqkv, bf16* memory) {
    check_tiles(memory);
    bf16 *queries = memory, *douts = queries + OF_BLOCK * D, *stages = douts + OF_BLOCK * D;
    u32 tiles = (u32)(shape.tokens + OF_BLOCK - 1) / OF_BLOCK, units = (u32)(shape.sequences * shape.heads) * tiles;
    float cap = (float)shape.cap, scale = (float)shape.scale, left = (float)mask.draw.scale;
    for (u32 unit = blockIdx.x; unit < units; unit += gridDim.x) {
        u32 of_sequence = unit / tiles;
        int head = (int)(of_sequence % (u32)shape.heads), group = (int)group_of(shape, head);
        int sequence = (int)(of_sequence / (u32)shape.heads);
        QueryTile tile = query_tile(shape, (int)(tiles - 1 - unit % tiles), OF_BLOCK);
        int own = tile.first + warp_row() + lane() / 4, end = tile.first + tile.count;
        float logarithm[2], dot[2];
        load_sums(logarithm, dot, shape, saved, sequence, head, own, end);
        Span some = some_see(shape, tile), all = all_see(shape, tile);

        int begin = some.first / KEYS * KEYS, stage = 0;
        auto load = [&](int first, int at) {
            bf16* to = stages + at * 2 * KEYS * D;
            load_positions<KEYS, D>(to, shape, saved.kv, sequence, group, first, false);
            load_positions<KEYS, D>(to + KEYS * D, shape, saved.kv, sequence, group, first, true);
            commit_copies();
        };
        __syncthreads();
        load_query_panels<OF_BLOCK, D>(queries, douts, shape, saved, sequence, head, tile);
        load(begin, 0);

        float sums[D / 8][4] = {};
        for (; begin < some.end; begin += KEYS, stage ^= 1) {
            wait_for_copies<0>();
            show_copies();
            __syncthreads();
            if (begin + KEYS < some.end) load(begin + KEYS, stage ^ 1);
            bf16 *keys = stages + stage * 2 * KEYS * D, *values = keys + KEYS * D;
            int row = warp_row() / 64 * 64;
            float scores[KEYS / 8][4], gradients[KEYS / 8][4];
            settle(scores), settle(gradients);
            begin_products();
#pragma unroll
            for (int step = 0; step < D / 16; step++)
                multiply(scores, columns_at<OF_BLOCK>(queries, row, step), columns_at<KEYS>(keys, 0, step), step > 0);
#pragma unroll
            for (int step = 0; step < D / 16; step++)
                multiply(gradients, columns_at<OF_BLOCK>(douts, row, step), columns_at<KEYS>(values, 0, step), step > 0);
            commit_products();
            wait_for_products<0>();
            settle(scores), settle(gradients);

            bool masked = begin < all.first || begin + KEYS > all.end;
            differentiate_queries(
                scores, gradients, shape, mask, masked, sequence, head, own, begin, scale, cap, left, logarithm, dot);
            u32 of_keys[KEYS / 16][4];
#pragma unroll
            for (int step = 0; step < KEYS / 16; step++) as_left(of_keys[step], gradients, step);
            settle(of_keys), settle(sums);
            begin_products();
#pragma unroll
            for (int step = 0; step < KEYS / 16; step++) multiply(sums, of_keys[step], rows_at<KEYS>(keys, step));
            commit_products();
            wait_for_products<0>();
            settle(sums);
        }
        store_queries<D>(dqkv, shape, sequence, head, own, end, sums, scale);
    }
}

// A block alone has 255 registers for a thread.
#undef BOUNDS
#define BOUNDS __launch_bounds__(THREADS, 1)

KERNEL(attention_backward_queries_64_wgmma)(Attention shape, AttentionMask mask, Saved saved, S* dqkv) {
    DYNAMIC(bf16, memory, MEMORY<64>);
    backward_queries<64>(shape, mask, saved, dqkv, memory);
}

KERNEL(attention_backward_queries_128_wgmma)(Attention shape, AttentionMask mask, Saved saved, S* dqkv) {
    DYNAMIC(bf16, memory, MEMORY<128>);
    backward_queries<128>(shape, mask, saved, dqkv, memory);
}
