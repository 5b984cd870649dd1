// Attention, backward, by tensor cores of warpgroups: the gradients of keys and values, as mixed_attention_keys.cu.
#include "attention_scores.cuh"

// Queries of a tile.
constexpr int QUERIES = 64;
// Keys and values of the block; of two tiles queries and the gradients of what they gave, and of each two sums.
template <int D>
constexpr int MEMORY = (2 * OF_BLOCK + 4 * QUERIES) * D + 8 * QUERIES;

// Begins to copy a tile of queries of a head, and the gradients of what they gave; log_sum_exp and row dots.
template <int D>
DEVICE void load_queries(
    bf16* to, float* sums, const Attention& shape, const Saved& saved, int sequence, int head, QueryTile tile) {
    load_panels<QUERIES, D>(
        to, saved.qkv + query_at(shape, sequence, head, tile.first), shape.kv_heads * group_cols(shape), 0, QUERIES,
        tile.count, (int)shape.d);
    load_panels<QUERIES, D>(
        to + QUERIES * D, saved.dout + out_at(shape, sequence, head, tile.first), shape.heads * shape.v, 0, QUERIES,
        tile.count, (int)shape.v);
    int row = (int)threadIdx.x % QUERIES;
    if (threadIdx.x < 2 * QUERIES) {
        const float* from = threadIdx.x < QUERIES ? saved.log_sum_exp : saved.dots;
        bool there = row < tile.count;
        from += row_at(shape, sequence, head, tile.first + (there ? row : 0));
        copy_later<4>(sums + threadIdx.x, from, there);
    }
}

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
        // Tiles of queries of which some see some of the keys: positions ascend with tokens.
        Span seeing = {0, query_tiles};
        auto tile_at = [&](int number) { return query_tile(shape, number, QUERIES); };
        while (seeing.first < seeing.end && some_see(shape, tile_at(seeing.first)).end <= first) seeing.first++;
        while (seeing.end > seeing.first && some_see(shape, tile_at(seeing.end - 1)).first >= first + OF_BLOCK)
            seeing.end--;
        int of_head = seeing.end - seeing.first, turns = of_head * (int)shape.of_group;
        auto head_at = [&](int turn) { return group * (int)shape.of_group + (int)((u32)turn / (u32)of_head); };
        auto tile_of = [&](int turn) { return tile_at(seeing.first + (int)((u32)turn % (u32)of_head)); };
        auto load = [&](int turn) {
            load_queries<D>(
                stages + turn % 2 * 2 * QUERIES * D, sums + turn % 2 * 2 * QUERIES, shape, saved, sequence,
                head_at(turn), tile_of(turn));
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
