// Products of warpgroups alone, by which tests tell whether a device reads operands as is meant: where these lie and the
// words that say so are written out here, beside the functions of wgmma.cuh, which attention uses.
#include "wgmma.cuh"

// What is summed over; rows of the left operand, of which each group has half.
constexpr int DEPTH = 64, ROWS = 128;
// The left operand lies in shared memory if both lie by columns, before the right one.
template <int COLUMNS, bool BY_ROWS>
constexpr int MEMORY = DEPTH * (COLUMNS + (BY_ROWS ? 0 : ROWS));

// c = a b: a [ROWS, DEPTH], b [DEPTH, COLUMNS], or [COLUMNS, DEPTH] unless it lies by rows.
template <int COLUMNS, bool BY_ROWS>
DEVICE void product(const S* a, const S* b, R* c, bf16* memory) {
    check_tiles(memory);
    // Lines of 128 bytes, eight pieces of 16 each; columns from the 64th on lie 64 lines, 8,192 bytes, further.
    constexpr int LINES = MEMORY<COLUMNS, BY_ROWS> / 64;
    for (int i = (int)threadIdx.x; i < LINES * 8; i += THREADS) {
        int line = i / 8, piece = i % 8;
        const S* from;
        if (BY_ROWS) from = b + line % 64 * COLUMNS + line / 64 * 64 + piece * 8;
        else from = (line < ROWS ? a + line * DEPTH : b + (line - ROWS) * DEPTH) + piece * 8;
        copy_later<16>((char*)memory + line * 128 + (piece ^ line % 8) * 16, from, true);
    }
    commit_copies();
    wait_for_copies<0>();
    show_copies();
    __syncthreads();

    // Bits 62-63: swizzled by 128 bytes. From bit 32 on: 64 * 16 bytes between eight lines. From bit 16 on: 512 * 16 bytes
    // between 64 columns, where lines are what is summed over, and 1, which does not count.
    constexpr u64 LIES = BY_ROWS ? 0x4000004002000000ull : 0x4000004000010000ull;
    u64 at = shared_address(memory) / 16, group = threadIdx.x / 128;
    int row = (int)threadIdx.x / 32 * 16 + lane() / 4, pair = lane() % 4 * 2;
    float sums[COLUMNS / 8][4] = {};
    u32 left[DEPTH / 16][4];
    for (int step = 0; step < DEPTH / 16; step++)
        for (int i = 0; i < 4; i++) left[step][i] = *(const u32*)(a + (row + i % 2 * 8) * DEPTH + step * 16 + i / 2 * 8 + pair);
    settle(left), settle(sums);
    begin_products();
#pragma unroll
    for (int step = 0; step < DEPTH / 16; step++) {
        // 16 lines further, or 16 columns.
        if (BY_ROWS) multiply(sums, left[step], LIES | (at + step * 128));
        else multiply(sums, LIES | (at + group * 512 + step * 2), LIES | (at + 1024 + step * 2), step > 0);
    }
    commit_products();
    wait_for_products<0>();
    settle(sums);
    for (int i = 0; i < COLUMNS / 2; i++)
        c[(row + i / 2 % 2 * 8) * COLUMNS + i / 4 * 8 + pair + i % 2] = sums[i / 4][i % 4];
}

KERNEL(product_by_columns_64_wgmma)(const S* a, const S* b, R* c) {
    DYNAMIC(bf16, memory, (MEMORY<64, false>));
    product<64, false>(a, b, c, memory);
}

KERNEL(product_by_columns_128_wgmma)(const S* a, const S* b, R* c) {
    DYNAMIC(bf16, memory, (MEMORY<128, false>));
    product<128, false>(a, b, c, memory);
}

KERNEL(product_by_rows_64_wgmma)(const S* a, const S* b, R* c) {
    DYNAMIC(bf16, memory, (MEMORY<64, true>));
    product<64, true>(a, b, c, memory);
}

KERNEL(product_by_rows_128_wgmma)(const S* a, const S* b, R* c) {
    DYNAMIC(bf16, memory, (MEMORY<128, true>));
    product<128, true>(a, b, c, memory);
}
