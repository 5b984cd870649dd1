// Attention, forward, by tensor cores of warpgroups: as mixed_attention_forward.cu, but that while the weights of a tile
// of keys are computed the tensor cores multiply those of the tile before with its values (Shah et al., 2024). Values
// come a tile later than keys.
#include "attention_scores.cuh"

// Keys of a tile.
template <int D>
constexpr int KEYS = D == 64 ? 64 : 128;
// Queries, two tiles of keys, two of values.
template <int D>
constexpr int MEMORY = (OF_BLOCK + 4 * KEYS<D>) * D;

// out = softmax(q k^T / sqrt(d)) v; log_sum_exp [rows, heads] = the logarithm of each softmax' denominator.
template <int D>
DEVICE void forward(
    const Attention& shape, const AttentionMask& mask, const bf16* qkv, const bf16* kv, bf16* out, float* log_sum_exp,
    bf16* memory) {
    check_tiles(memory);
    constexpr int ROWS = KEYS<D>, OF_TILE = ROWS * D;
    bf16 *queries = memory, *keys = queries + OF_BLOCK * D, *values = keys + 2 * OF_TILE;
    // Tiles of queries, of which there are fewer than 2^32.
    u32 tiles = (u32)(shape.tokens + OF_BLOCK - 1) / OF_BLOCK, units = (u32)(shape.sequences * shape.heads) * tiles;
    float cap = (float)shape.cap, scale = (float)shape.scale, factor = (cap > 0 ? 1.0f : scale) * LOG2_E;
    for (u32 unit = blockIdx.x; unit < units; unit += gridDim.x) {
        u32 of_sequence = unit / tiles;
        int head = (int)(of_sequence % (u32)shape.heads), group = (int)group_of(shape, head);
        int sequence = (int)(of_sequence / (u32)shape.heads);
        // The last queries first: they see most keys.
        QueryTile tile = query_tile(shape, (int)(tiles - 1 - unit % tiles), OF_BLOCK);
        int own = tile.first + warp_row() + lane() / 4;
        Span some = some_see(shape, tile), all = all_see(shape, tile);
        int first = some.first / ROWS * ROWS, count = (some.end - first + ROWS - 1) / ROWS;

        auto load = [&](bf16* pair, int number, bool of_values) {
            bf16* to = pair + number % 2 * OF_TILE;
            load_positions<ROWS, D>(to, shape, kv, sequence, group, first + number * ROWS, of_values);
        };
        // Whoever is late has queries and keys behind it.
        load_panels<OF_BLOCK, D>(
            queries, qkv + query_at(shape, sequence, head, tile.first), shape.kv_heads * group_cols(shape), 0, OF_BLOCK,
            tile.count, (int)shape.d);
        load(keys, 0, false);
        commit_copies();

        float sums[D / 8][4] = {}, max[2] = {-infinity(0.0f), -infinity(0.0f)}, sum[2] = {};
        u32 weights[ROWS / 16][4];
        auto add_values = [&](int number) {
#pragma unroll
            for (int step = 0; step < ROWS / 16; step++)
                multiply(sums, weights[step], rows_at<ROWS>(values + number % 2 * OF_TILE, step));
        };
        for (int number = 0; number < count; number++) {
            wait_for_copies<0>();
            show_copies();
            __syncthreads();
            if (number + 1 < count) load(keys, number + 1, false);
            load(values, number, true);
            commit_copies();

            float scores[ROWS / 8][4];
            settle(scores), settle(sums);
            begin_products();
#pragma unroll
            for (int step = 0; step < D / 16; step++)
                multiply(
                    scores, columns_at<OF_BLOCK>(queries, warp_row() / 64 * 64, step),
                    columns_at<ROWS>(keys + number % 2 * OF_TILE, 0, step), step > 0);
            commit_products();
            if (number > 0) {
                begin_products();
                add_values(number - 1);
                commit_products();
                wait_for_products<1>();
            } else {
                wait_for_products<0>();
            }
            settle(scores);

            int begin = first + number * ROWS;
            float before[2];
            cap_scores(scores, scale, cap);
            mask_scores(scores, shape, all, begin, own);
            weigh_scores(scores, max, sum, factor, [&](int half, float shrunk) { before[half] = shrunk; });
            drop_weights(scores, shape, mask, sequence, head, begin, own);
            wait_for_products<0>();
            settle(sums);
#pragma unroll
            for (int i = 0; i < D / 2; i++) sums[i / 4][i % 4] *= before[i / 2 % 2];
#pragma unroll
            for (int step = 0; step < ROWS / 16; step++) as_left(weights[step], scores, step);
            settle(weights);
        }
        wait_for_copies<0>();
        show_copies();
        __syncthreads();
        settle(sums);
        begin_products();
        add_values(count - 1);
        commit_products();
        wait_for_products<0>();
        settle(sums);
        store_results<D>(shape, mask, tile, sequence, head, own, factor, sums, max, sum, out, log_sum_exp);
    }
}

KERNEL(attention_forward_64_wgmma)
(Attention shape, AttentionMask mask, const S* qkv, const S* kv, S* out, R* log_sum_exp) {
    DYNAMIC(bf16, memory, MEMORY<64>);
    forward<64>(shape, mask, qkv, kv, out, log_sum_exp, memory);
}

// A block alone has 255 registers for a thread.
#undef BOUNDS
#define BOUNDS __launch_bounds__(THREADS, 1)

KERNEL(attention_forward_128_wgmma)
(Attention shape, AttentionMask mask, const S* qkv, const S* kv, S* out, R* log_sum_exp) {
    DYNAMIC(bf16, memory, MEMORY<128>);
    forward<128>(shape, mask, qkv, kv, out, log_sum_exp, memory);
}
