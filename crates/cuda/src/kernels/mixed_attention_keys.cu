// Attention, backward, by tensor cores: the gradients of keys and values. A block has 128 keys of a group while tiles
// of queries pass, head by head. Scores and their gradients are transposed: a warp's rows are keys.
#include "attention_scores.cuh"

// Queries of a tile; and those whose probabilities a warp has at a time.
template <int D>
constexpr int QUERIES = 4096 / D;
constexpr int STEP = 32;

// What passes: queries, the gradients of what they gave, log_sum_exp and row dots.
template <int D>
constexpr int STAGE = 2 * QUERIES<D> * D + 4 * QUERIES<D>;
template <int D>
constexpr int MEMORY = 2 * OF_BLOCK * D + 2 * STAGE<D>;

// The keys and values of dkv = what this part's queries contribute to their gradient.
template <int D>
DEVICE void backward_keys(
    const Attention& shape, const AttentionMask& mask, const Saved& saved, bf16* dkv, bf16* memory) {
    i64 tiles = quotient(shape.seq_len + OF_BLOCK - 1, OF_BLOCK);
    int query_tiles = (int)quotient(shape.tokens + QUERIES<D> - 1, QUERIES<D>);
    float cap = (float)shape.cap, scale = (float)shape.scale;
    float left = mask.draw.threshold > 0 ? (float)mask.draw.scale : 1.0f;
    bf16 *keys = memory, *values = keys + OF_BLOCK * D, *stages = values + OF_BLOCK * D;
    for (i64 unit = blockIdx.x; unit < shape.sequences * shape.kv_heads * tiles; unit += gridDim.x) {
        // The first keys first: most queries see them.
        int first = (int)rest(unit, tiles) * OF_BLOCK, own = first + warp_row() + lane() / 4;
        i64 of_sequence = quotient(unit, tiles), group = rest(of_sequence, shape.kv_heads);
        i64 sequence = quotient(of_sequence, shape.kv_heads);
        Span seeing = seeing_tiles<QUERIES<D>>(shape, query_tiles, first);
        auto tile_at = [&](int number) { return query_tile(shape, number, QUERIES<D>); };
        int of_head = seeing.end - seeing.first, turns = of_head * (int)shape.of_group;
        auto load = [&](int turn) {
            i64 head = group * shape.of_group + turn / of_head;
            QueryTile tile = tile_at(seeing.first + turn % of_head);
            bf16 *queries = stages + turn % 2 * STAGE<D>, *douts = queries + QUERIES<D> * D;
            load_queries<QUERIES<D>, D>(queries, douts, shape, saved, sequence, head, tile);
            copy_sums<QUERIES<D>>((float*)(douts + QUERIES<D> * D), shape, saved, sequence, head, tile);
            commit_copies();
        };
        __syncthreads();
        // Copies that nobody waits for are not begun.
        if (turns > 0) {
            load_keys<OF_BLOCK, D>(keys, values, shape, saved.kv, sequence, group, first);
            load(0);
        }

        float dkeys[D / 8][4] = {}, dvalues[D / 8][4] = {};
        for (int turn = 0; turn < turns; turn++) {
            wait_for_copies<0>();
            __syncthreads();
            if (turn + 1 < turns) load(turn + 1);
            i64 head = group * shape.of_group + turn / of_head;
            QueryTile tile = tile_at(seeing.first + turn % of_head);
            Span all = all_see(shape, tile);
            bool masked = first < all.first || first + OF_BLOCK > all.end;
            bf16 *queries = stages + turn % 2 * STAGE<D>, *douts = queries + QUERIES<D> * D;
            float *logarithms = (float*)(douts + QUERIES<D> * D), *dots = logarithms + QUERIES<D>;
#pragma unroll
            for (int part = 0; part < QUERIES<D>; part += STEP) {
                float scores[STEP / 8][4] = {}, gradients[STEP / 8][4] = {};
#pragma unroll
                for (int step = 0; step < D / 16; step++) {
                    u32 a[4];
                    load_left<D>(a, keys, warp_row(), step);
                    multiply_rows<D>(scores, a, queries, part, step);
                    load_left<D>(a, values, warp_row(), step);
                    multiply_rows<D>(gradients, a, douts, part, step);
                }
                differentiate_keys(
                    scores, gradients, shape, mask, tile, masked, sequence, head, own, part, scale, cap, left, logarithms,
                    dots);
#pragma unroll
                for (int step = 0; step < STEP / 16; step++) {
                    u32 a[4];
                    as_left(a, scores, step);
                    multiply_columns<D>(dvalues, a, douts, part + 16 * step);
                    as_left(a, gradients, step);
                    multiply_columns<D>(dkeys, a, queries, part + 16 * step);
                }
            }
        }
        store_keys<D>(dkv, shape, sequence, group, own, dkeys, dvalues, scale, left);
    }
}

// A block alone has 255 registers for a thread: sums of keys and of values need half of them.
#undef BOUNDS
#define BOUNDS __launch_bounds__(THREADS, 1)

KERNEL(attention_backward_keys_64)(Attention shape, AttentionMask mask, Saved saved, S* dkv) {
    DYNAMIC(bf16, memory, MEMORY<64>);
    backward_keys<64>(shape, mask, saved, dkv, memory);
}

KERNEL(attention_backward_keys_128)(Attention shape, AttentionMask mask, Saved saved, S* dkv) {
    DYNAMIC(bf16, memory, MEMORY<128>);
    backward_keys<128>(shape, mask, saved, dkv, memory);
}
