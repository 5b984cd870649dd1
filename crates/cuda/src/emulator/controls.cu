// Kernels with known faults beside a sound one, by which the emulator itself is tested. x and y have an element for each
// thread, or y one for each block.
#include "mma.cuh"

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
