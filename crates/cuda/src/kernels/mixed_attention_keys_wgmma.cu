// Attention, backward, by tensor cores of warpgroups: the gradients of keys and values, as mixed_attention_keys.cu.
#include "attention_scores.cuh"

// Queries of a tile.
constexpr int QUERIES = 64;
// Keys and values of the block; of two tiles queries and the gradients of what they gave, and of each two sums.
template <int D>
constexpr int MEMORY = (2 * OF_BLOCK + 4 * QUERIES) * D + 8 * QUERIES;

// The keys and values of dkv = what this part's queries contribute to their gradient.
template <int D>
DEVICE void backward_keys(
    const Attention& shape, const AttentionMask& mask, const Saved& saved, bf16* dkv, bf16* memory) {
    check_tiles(memory);
    u32 tiles = (u32)(shape.seq_len + OF_BLOCK - 1) / OF_BLOCK, units = (u32)(shape.sequences * shape.kv_heads) * tiles;
    int query_tiles = (int)quotient(shape.tokens + QUERIES - 1, QUERIES);
    float cap = (float)shape.cap, scale = (float)shape.scale;
    float left = mask.draw.threshold > 0 ? (float)mask.draw.scale : 1.0f;
    bf16 *keys = memory, *values = keys + OF_BLOCK * D, *stages = values + OF_BLOCK * D;
    float* sums = (float*)(stages + 4 * QUERIES * D);
    for (u32 unit = blockIdx.x; unit < units; unit += gridDim.x) {
        // The first keys first: most queries see them.
        int first = (int)(unit % tiles) * OF_BLOCK, own = first + warp_row() + lane() / 4;
        u32 of_sequence = unit / tiles;
        int group = (int)(of_sequence % (u32)shape.kv_heads), sequence = (int)(of_sequence / (u32)shape.kv_heads);
        Span seeing = seeing_tiles<QUERIES>(shape, query_tiles, first);
        int of_head = seeing.end - seeing.first, turns = of_head * (int)shape.of_group;
        auto head_at = [&](int turn) { return group * (int)shape.of_group + (int)((u32)turn / (u32)of_head); };
        auto tile_of = [&](int turn) {
            return query_tile(shape, seeing.first + (int)((u32)turn % (u32)of_head), QUERIES);
        };
        auto load = [&](int turn) {
            bf16 *queries = stages + turn % 2 * 2 * QUERIES * D, *douts = queries + QUERIES * D;
            int head = head_at(turn);
            QueryTile tile = tile_of(turn);
            load_query_panels<QUERIES, D>(queries, douts, shape, saved, sequence, head, tile);
            copy_sums<QUERIES>(sums + turn % 2 * 2 * QUERIES, shape, saved, sequence, head, tile);
            commit_copies();
        };
        __syncthreads();
        // Copies that nobody waits for are not begun.
        if (turns > 0) {
            load_positions<OF_BLOCK, D>(keys, shape, saved.kv, sequence, group, first, false);
            load_positions<OF_BLOCK, D>(values, shape, saved.kv, sequence, group, first, true);
            load(0);
        }

        float dkeys[D / 8][4] = {}, dvalues[D / 8][4] = {};
        for (int turn = 0; turn < turns; turn++) {
            wait_for_copies<0>();
            show_copies();
            __syncthreads();
            if (turn + 1 < turns) load(turn + 1);
            bf16 *queries = stages + turn % 2 * 2 * QUERIES * D, *douts = queries + QUERIES * D;
            float *logarithms = sums + turn % 2 * 2 * QUERIES, *dots = logarithms + QUERIES;
            int row = warp_row() / 64 * 64;
            float scores[QUERIES / 8][4], gradients[QUERIES / 8][4];
            settle(scores), settle(gradients);
            begin_products();
#pragma unroll
            for (int step = 0; step < D / 16; step++)
                multiply(scores, columns_at<OF_BLOCK>(keys, row, step), columns_at<QUERIES>(queries, 0, step), step > 0);
#pragma unroll
            for (int step = 0; step < D / 16; step++)
                multiply(
                    gradients, columns_at<OF_BLOCK>(values, row, step), columns_at<QUERIES>(douts, 0, step), step > 0);
            commit_products();
            wait_for_products<0>();
            settle(scores), settle(gradients);

            QueryTile tile = tile_of(turn);
            Span all = all_see(shape, tile);
            bool masked = first < all.first || first + OF_BLOCK > all.end;
            differentiate_keys(
                scores, gradients, shape, mask, tile, masked, sequence, head_at(turn), own, 0, scale, cap, left,
                logarithms, dots);
            u32 weights[QUERIES / 16][4], slopes[QUERIES / 16][4];
#pragma unroll
            for (int step = 0; step < QUERIES / 16; step++)
                as_left(weights[step], scores, step), as_left(slopes[step], gradients, step);
            settle(weights), settle(slopes), settle(dvalues), settle(dkeys);
            begin_products();
#pragma unroll
            for (int step = 0; step < QUERIES / 16; step++)
                multiply(dvalues, weights[step], rows_at<QUERIES>(douts, step));
#pragma unroll
            for (int step = 0; step < QUERIES / 16; step++)
                multiply(dkeys, slopes[step], rows_at<QUERIES>(queries, step));
            commit_products();
            wait_for_products<0>();
            settle(dvalues), settle(dkeys);
        }
        store_keys<D>(dkv, shape, sequence, group, own, dkeys, dvalues, scale, left);
    }
}

// A block alone has 255 registers for a thread: sums of keys and of values need half of them.
#undef BOUNDS
#define BOUNDS __launch_bounds__(THREADS, 1)

KERNEL(attention_backward_keys_64_wgmma)(Attention shape, AttentionMask mask, Saved saved, S* dkv) {
    DYNAMIC(bf16, memory, MEMORY<64>);
    backward_keys<64>(shape, mask, saved, dkv, memory);
}

KERNEL(attention_backward_keys_128_wgmma)(Attention shape, AttentionMask mask, Saved saved, S* dkv) {
    DYNAMIC(bf16, memory, MEMORY<128>);
    backward_keys<128>(shape, mask, saved, dkv, memory);
}
