// What the kernels of attention by tensor cores share. A block has a tile of 128 rows, queries or keys, of which a warp
// has 16; tiles of the others pass in shared memory, two at a time: one is copied while the other is worked on. Heads
// with fewer columns than D have zeros in the rest.
#pragma once
#include "attention.cuh"
#include "wgmma.cuh"

#define OF_BLOCK (16 * WARPS)
#define LOG2_E 1.44269504088896341f

DEVICE int warp_row() { return (int)threadIdx.x / 32 * 16; }

// Where 8 columns of a row lie. Eight rows' pieces of the same columns lie in different banks.
template <int D>
DEVICE bf16* piece(bf16* tile, int row, int at) {
    return tile + row * D + (at ^ (row & 7)) * 8;
}

// Begins to copy a tile of rows that begin where `begin` says: `count` of them, `cols` columns of each; others are 0.
template <int ROWS, int D, class Begin>
DEVICE void load_tile(bf16* tile, int count, int cols, Begin begin) {
    for (int i = (int)threadIdx.x; i < ROWS * D / 8; i += THREADS) {
        int row = i / (D / 8), at = i % (D / 8);
        bool there = row < count && at * 8 < cols;
        copy_later<16>(piece<D>(tile, row, at), begin(there ? row : 0) + (there ? at * 8 : 0), there);
    }
}

// The left operand of a product: 16 rows of a tile, and 16 columns.
template <int D>
DEVICE void load_left(u32 (&a)[4], bf16* tile, int row, int step) {
    load_matrices<false>(a, piece<D>(tile, row + lane() % 16, 2 * step + lane() / 16));
}
template <int N>
DEVICE void as_left(u32 (&a)[4], const float (&c)[N][4], int step) {
    for (int i = 0; i < 4; i++) a[i] = packed(c[2 * step + i / 2][i % 2 * 2], c[2 * step + i / 2][i % 2 * 2 + 1]);
}
// c += a times 8 N rows of a tile, transposed: what 16 of their columns add.
template <int D, int N>
DEVICE void multiply_rows(float (&c)[N][4], const u32 (&a)[4], bf16* tile, int row, int step) {
#pragma unroll
    for (int n = 0; n < N; n += 2) {
        u32 b[4];
        load_matrices<false>(b, piece<D>(tile, row + 8 * n + lane() % 8 + lane() / 16 * 8, 2 * step + lane() / 8 % 2));
        mma(c[n], a, b[0], b[1]);
        mma(c[n + 1], a, b[2], b[3]);
    }
}
// c += a times 16 rows of a tile.
template <int D>
DEVICE void multiply_columns(float (&c)[D / 8][4], const u32 (&a)[4], bf16* tile, int row) {
#pragma unroll
    for (int n = 0; n < D / 8; n += 2) {
        u32 b[4];
        load_matrices<true>(b, piece<D>(tile, row + lane() % 16, n + lane() / 16));
        mma(c[n], a, b[0], b[1]);
        mma(c[n + 1], a, b[2], b[3]);
    }
}
// Stores the lane's part of one of its two rows.
template <int D>
DEVICE void store_row(bf16* to, int cols, const float (&c)[D / 8][4], int half, float factor) {
#pragma unroll
    for (int n = 0; n < D / 8; n++)
        if (8 * n < cols)
            *(u32*)(to + 8 * n + lane() % 4 * 2) = packed(c[n][2 * half] * factor, c[n][2 * half + 1] * factor);
}

// From `first` up to `end`.
struct Span {
    int first, end;
};
DEVICE bool contains(Span span, int at) { return at >= span.first && at < span.end; }
// The keys that a query at a position sees.
DEVICE Span keys_of(const Attention& shape, int position) {
    Seen keys = seen(shape, position);
    return {(int)keys.first, (int)keys.end};
}

// Local tokens whose queries are a tile, and the positions of the first and the last: others lie between.
struct QueryTile {
    int first, count, low, high;
};
DEVICE QueryTile query_tile(const Attention& shape, int number, int most) {
    int first = number * most, left = (int)shape.tokens - first, count = left < most ? left : most;
    return {first, count, (int)position_of(shape, first), (int)position_of(shape, first + count - 1)};
}
// The keys that some query of a tile sees, and those that all see.
DEVICE Span some_see(const Attention& shape, QueryTile tile) {
    return {keys_of(shape, tile.low).first, keys_of(shape, tile.high).end};
}
DEVICE Span all_see(const Attention& shape, QueryTile tile) {
    return {keys_of(shape, tile.high).first, keys_of(shape, tile.low).end};
}

// Begins to copy keys of a group and their values, from a position on. Unrolled it would take registers that
// sums need.
template <int ROWS, int D>
DEVICE void load_keys(
    bf16* keys, bf16* values, const Attention& shape, const bf16* kv, int sequence, int group, int first) {
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < ROWS * D / 8; i += THREADS) {
        int row = i / (D / 8), at = i % (D / 8) * 8, position = first + row;
        bool inside = position < (int)shape.seq_len;
        bool is_key = inside && at < (int)shape.d, is_value = inside && at < (int)shape.v;
        const bf16* from = kv + key_at(shape, sequence, group, inside ? position : first);
        copy_later<16>(piece<D>(keys, row, at / 8), from + (is_key ? at : 0), is_key);
        copy_later<16>(piece<D>(values, row, at / 8), from + shape.d + (is_value ? at : 0), is_value);
    }
}

// The thread's number, read where it is needed: what follows from it takes no registers that sums need.
DEVICE int thread_anew() {
#ifdef EMULATED
    return (int)threadIdx.x;
#else
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
#endif
}
// Begins to copy rows of a tile in panels, those from `first` up to `end`: row 0 would begin at `from`, others every
// `stride` elements; those from `count` on are 0, and columns from `cols` on. A thread's pieces lie one below another.
template <int ROWS, int D>
DEVICE void load_panels(bf16* tile, const bf16* from, i64 stride, int first, int end, int count, int cols) {
    constexpr int PIECES = D / 8, STEP = THREADS / PIECES;
    int row = thread_anew() / PIECES, at = thread_anew() % PIECES;
    bf16* to = panel_piece<ROWS>(tile, row, at);
    from += row * stride + at * 8;
#pragma unroll 1
    for (int i = 0; i < ROWS / STEP; i++, row += STEP, to += STEP * 64, from += STEP * stride)
        if (row >= first && row < end) copy_later<16>(to, from, row < count && at * 8 < cols);
}
// The same of keys of a group, or of their values with `values`, from a position on: those of a chunk lie evenly.
template <int ROWS, int D>
DEVICE void load_positions(
    bf16* tile, const Attention& shape, const bf16* kv, int sequence, int group, int first, bool values) {
    int seq_len = (int)shape.seq_len, chunk = shape.context.parts > 1 ? (int)shape.chunk : seq_len;
    i64 stride = shape.kv_heads * (shape.gathered ? shape.d + shape.v : group_cols(shape));
    for (int row = 0; row < ROWS;) {
        int position = first + row, end = ROWS;
        if (position < seq_len) {
            int of_chunk = (int)((u32)position / (u32)chunk + 1) * chunk - first;
            end = of_chunk < ROWS && of_chunk + first < seq_len ? of_chunk : ROWS;
        }
        const bf16* from = kv + key_at(shape, sequence, group, position < seq_len ? position : 0) - row * stride;
        load_panels<ROWS, D>(
            tile, from + (values ? shape.d : 0), stride, row, end, seq_len - first, (int)(values ? shape.v : shape.d));
        row = end;
    }
}

// Begin to copy a tile of queries of a head, and the gradients of what they gave: for a warp's products, and in panels.
template <int ROWS, int D, class Index>
DEVICE void load_queries(
    bf16* queries, bf16* douts, const Attention& shape, const Saved& saved, const Index& sequence, const Index& head,
    const QueryTile& tile) {
    auto query = [&](int row) { return saved.qkv + query_at(shape, sequence, head, tile.first + row); };
    auto dout = [&](int row) { return saved.dout + out_at(shape, sequence, head, tile.first + row); };
    load_tile<ROWS, D>(queries, tile.count, (int)shape.d, query);
    load_tile<ROWS, D>(douts, tile.count, (int)shape.v, dout);
}
template <int ROWS, int D>
DEVICE void load_query_panels(
    bf16* queries, bf16* douts, const Attention& shape, const Saved& saved, int sequence, int head, QueryTile tile) {
    load_panels<ROWS, D>(
        queries, saved.qkv + query_at(shape, sequence, head, tile.first), shape.kv_heads * group_cols(shape), 0, ROWS,
        tile.count, (int)shape.d);
    load_panels<ROWS, D>(
        douts, saved.dout + out_at(shape, sequence, head, tile.first), shape.heads * shape.v, 0, ROWS, tile.count,
        (int)shape.v);
}
// Begins to copy log_sum_exp of a tile of queries of a head, and behind them the row dots.
template <int ROWS>
DEVICE void copy_sums(
    float* sums, const Attention& shape, const Saved& saved, i64 sequence, i64 head, QueryTile tile) {
    int row = (int)threadIdx.x % ROWS;
    if (threadIdx.x < 2 * ROWS) {
        const R* from = threadIdx.x < ROWS ? saved.log_sum_exp : saved.dots;
        bool there = row < tile.count;
        from += row_at(shape, sequence, head, tile.first + (there ? row : 0));
        copy_later<4>(sums + threadIdx.x, from, there);
    }
}
// Of all tiles of so many queries those of which some see some of a block's keys, which begin at `first`: positions ascend
// with tokens.
template <int ROWS>
DEVICE Span seeing_tiles(const Attention& shape, int tiles, int first) {
    Span seeing = {0, tiles};
    auto seen_by = [&](int number) { return some_see(shape, query_tile(shape, number, ROWS)); };
    while (seeing.first < seeing.end && seen_by(seeing.first).end <= first) seeing.first++;
    while (seeing.end > seeing.first && seen_by(seeing.end - 1).first >= first + OF_BLOCK) seeing.end--;
    return seeing;
}

// A bit for each of a lane's 4 N elements: whether that of the index stays.
template <int N, class Index>
DEVICE u32 kept_bits(Draw draw, Index index) {
    static_assert(4 * N <= 32, "a bit for each in a word");
    u32 bits = 0;
    u64 drawn = 0;
    Words words = philox(draw.key, 0);
#pragma unroll 1
    for (int i = 0; i < 4 * N; i++) {
        u64 at = (u64)index(i);
        if (at / 4 != drawn) drawn = at / 4, words = philox(draw.key, drawn);
        u32 low = at & 1 ? words.word[1] : words.word[0], high = at & 1 ? words.word[3] : words.word[2];
        if ((at & 2 ? high : low) >= draw.threshold) bits |= 1u << i;
    }
    return bits;
}
DEVICE i64 probability_at(const AttentionMask& mask, int sequence, int head, int query, int key) {
    i64 row = ((mask.first_sequence + sequence) * mask.heads + mask.first_head + head) * mask.seq_len + query;
    return row * mask.seq_len + key;
}

// The soft cap of a score.
DEVICE float softened_quickly(float score, float cap) {
    return cap - 2.0f * cap * reciprocal(power_of_two(score * (2.0f * LOG2_E / cap)) + 1.0f);
}
