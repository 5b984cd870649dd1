// Kernels with known faults beside a sound one, by which the emulator itself is tested. x and y have an element for each
// thread, or y one for each block.
#include "wgmma.cuh"

// y[block] = the sum of the block's elements, with the barriers or without.
DEVICE void block_sum(double* y, const double* x, bool barriers) {
    SHARED(double, parts, THREADS);
    parts[threadIdx.x] = x[blockIdx.x * THREADS + threadIdx.x];
    for (int width = THREADS / 2; width > 0; width /= 2) {
        if (barriers) __syncthreads();
        if (threadIdx.x < (u32)width) parts[threadIdx.x] += parts[threadIdx.x + width];
    }
    if (threadIdx.x == 0) y[blockIdx.x] = parts[0];
}

KERNEL(control_sound)(double* y, const double* x) { block_sum(y, x, true); }
KERNEL(control_without_barrier)(double* y, const double* x) { block_sum(y, x, false); }

// Half of the threads wait elsewhere than the others.
KERNEL(control_divergent)(double* y, const double* x) {
    if (threadIdx.x % 2 == 0) {
        __syncthreads();
        y[threadIdx.x] = x[threadIdx.x];
    } else {
        __syncthreads();
        y[threadIdx.x] = -x[threadIdx.x];
    }
}

// A lane of each warp is missing where the others exchange.
KERNEL(control_missing_lane)(double* y, const double* x) {
    if (threadIdx.x % 32 == 7) return;
    y[threadIdx.x] = warp_sum(x[threadIdx.x]);
}

// Shared memory is read that nobody has written.
KERNEL(control_unwritten)(double* y, const double* x) {
    SHARED(double, parts, THREADS);
    if (threadIdx.x != 3) parts[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = parts[threadIdx.x];
}

// y = x by way of the launch's memory, and copies that are waited for or not.
#define COPIED(groups)                                                                                       \
    DYNAMIC(double, parts, THREADS);                                                                         \
    if (threadIdx.x % 2 == 0) copy_later<16>(parts + threadIdx.x, x + threadIdx.x, threadIdx.x != 2);        \
    commit_copies();                                                                                         \
    wait_for_copies<groups>();                                                                               \
    __syncthreads();                                                                                         \
    y[threadIdx.x] = parts[threadIdx.x];
KERNEL(control_copies)(double* y, const double* x) { COPIED(0) }
KERNEL(control_unfinished_copies)(double* y, const double* x) { COPIED(1) }

// What can be wrong with products of warpgroups.
enum Wrong {
    NOTHING,
    UNALIGNED,
    BEYOND,
    OTHERWISE,
    LANES_DIFFER,
    WARPS_DIFFER,
    NEVER_WAITED_FOR,
    OVERWRITTEN,
    LEFT_CHANGED,
    SUMS_CHANGED
};
// y = a sum of products of ones and a tile of zeros.
template <Wrong WRONG>
DEVICE void products(double* y, const double* x) {
    constexpr int ROWS = 64;
    DYNAMIC(bf16, tile, ROWS * 64);
    check_tiles(tile + (WRONG == UNALIGNED ? 64 : 0));
    for (int i = (int)threadIdx.x; i < ROWS * 8; i += THREADS)
        copy_later<16>(panel_piece<ROWS>(tile, i / 8, i % 8), x, false);
    commit_copies();
    wait_for_copies<0>();
    show_copies();
    __syncthreads();
    bool other = (WRONG == LANES_DIFFER && lane() == 5) || (WRONG == WARPS_DIFFER && threadIdx.x / 32 == 6);
    u64 at = rows_at<ROWS>(tile, WRONG == BEYOND ? ROWS / 16 : other);
    // Swizzled by 64 bytes.
    if (WRONG == OTHERWISE) at ^= 3ull << 62;
    u32 left[4] = {0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80};
    float sums[8][4] = {};
    begin_products();
    multiply(sums, left, at);
    commit_products();
    if (WRONG == NEVER_WAITED_FOR) return;
    __syncthreads();
    // A copy that nobody waits for.
    if (WRONG == OVERWRITTEN && threadIdx.x == 7) copy_later<16>(tile, x, false);
    if (WRONG == LEFT_CHANGED) left[2] = 0;
    if (WRONG == SUMS_CHANGED) sums[3][1] = 0;
    __syncthreads();
    wait_for_products<0>();
    float sum = 0;
    for (int i = 0; i < 32; i++) sum += sums[i / 4][i % 4];
    y[threadIdx.x] = sum;
}
KERNEL(control_products)(double* y, const double* x) { products<NOTHING>(y, x); }
KERNEL(control_products_unaligned)(double* y, const double* x) { products<UNALIGNED>(y, x); }
KERNEL(control_products_beyond)(double* y, const double* x) { products<BEYOND>(y, x); }
KERNEL(control_products_otherwise)(double* y, const double* x) { products<OTHERWISE>(y, x); }
KERNEL(control_products_lanes_differ)(double* y, const double* x) { products<LANES_DIFFER>(y, x); }
KERNEL(control_products_warps_differ)(double* y, const double* x) { products<WARPS_DIFFER>(y, x); }
KERNEL(control_products_never_waited_for)(double* y, const double* x) { products<NEVER_WAITED_FOR>(y, x); }
KERNEL(control_products_overwritten)(double* y, const double* x) { products<OVERWRITTEN>(y, x); }
KERNEL(control_products_left_changed)(double* y, const double* x) { products<LEFT_CHANGED>(y, x); }
KERNEL(control_products_sums_changed)(double* y, const double* x) { products<SUMS_CHANGED>(y, x); }
