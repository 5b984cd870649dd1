// What all kernels share. A file of kernels is compiled once for each format, FORMAT_F64, FORMAT_F32 or FORMAT_MIXED:
// values are stored as S and computed with as R. Matrices are row-major; parameters are words of 8 bytes, or structures
// of such. A kernel takes any number of blocks of THREADS threads, and its result depends on neither.
//
// Arithmetic is that of the processor's kernels, sum by sum: nothing is contracted, `fused` stands where they fuse.
#pragma once

typedef long long i64;
typedef unsigned int u32;
typedef unsigned long long u64;

#ifdef EMULATED
#include "emulator.hpp"
#else
#define SHARED(type, name, count) __shared__ type name[count]
// Memory whose size the launch gives.
#define DYNAMIC(type, name, count) extern __shared__ __align__(1024) type name[]
#endif
// With room for two blocks a thread has 128 registers; left to itself the compiler takes fewer, and spills some.
#define BOUNDS __launch_bounds__(THREADS, 2)

// What is stored in 16 bits.
struct bf16 {
    unsigned short bits;
};

#if defined(FORMAT_F64)
typedef double S;
typedef double R;
#define ENTRY(name) name##_f64
#elif defined(FORMAT_F32)
typedef float S;
typedef float R;
#define ENTRY(name) name##_f32
#elif defined(FORMAT_MIXED)
typedef bf16 S;
typedef float R;
#define ENTRY(name) name##_mixed
#else
#error "a file of kernels is compiled for a format: FORMAT_F64, FORMAT_F32 or FORMAT_MIXED"
#endif

#define DEVICE static __device__ __forceinline__
#define THREADS 256
#define WARPS (THREADS / 32)
#define ALL 0xffffffffu
#define KERNEL(name) extern "C" __global__ void BOUNDS ENTRY(name)

// The elements, or other pieces of work, of this thread; of this warp.
#define EACH(i, count) i64 i = (i64)blockIdx.x * THREADS + threadIdx.x; i < (count); i += (i64)gridDim.x * THREADS
#define EACH_BY_WARP(i, count) \
    i64 i = (i64)blockIdx.x * WARPS + threadIdx.x / 32; i < (count); i += (i64)gridDim.x * WARPS

// i / n and i % n, by 32-bit division where it is enough.
DEVICE i64 quotient(i64 i, i64 n) { return (i | n) >> 32 == 0 ? (i64)((u32)i / (u32)n) : i / n; }
DEVICE i64 rest(i64 i, i64 n) { return (i | n) >> 32 == 0 ? (i64)((u32)i % (u32)n) : i % n; }

// Of a table whose entries have units one after another, the entry of a unit: `first` is an entry's first one, the least is 0.
template <class T>
DEVICE const T& entry_of(const T* table, i64 count, i64 unit) {
    i64 low = 0, beyond = count;
    while (beyond - low > 1) {
        i64 middle = (low + beyond) / 2;
        if (table[middle].first <= unit) low = middle;
        else beyond = middle;
    }
    return table[low];
}

DEVICE int lane() { return (int)(threadIdx.x % 32); }

// Stored values, exactly; and rounded to the nearest, ties to even.
DEVICE double widen(double x) { return x; }
DEVICE float widen(float x) { return x; }
DEVICE float widen(bf16 x) { return __uint_as_float((u32)x.bits << 16); }
DEVICE void store(double* to, double x) { *to = x; }
DEVICE void store(float* to, float x) { *to = x; }
DEVICE void store(bf16* to, float x) {
#ifdef EMULATED
    u32 bits = __float_as_uint(x);
    u32 nearest = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    to->bits = (unsigned short)(x != x ? 0x7fff : nearest);
#else
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to->bits) : "f"(x));
#endif
}
// What is left of a number once it is stored.
DEVICE R kept(R x) {
    S stored;
    store(&stored, x);
    return widen(stored);
}
DEVICE S zero() {
    S stored;
    store(&stored, (R)0);
    return stored;
}

DEVICE double fused(double a, double b, double c) { return fma(a, b, c); }
DEVICE float fused(float a, float b, float c) { return fmaf(a, b, c); }
DEVICE double root(double x) { return sqrt(x); }
DEVICE float root(float x) { return sqrtf(x); }
DEVICE double infinity(double) { return __longlong_as_double(0x7ff0000000000000ll); }
DEVICE float infinity(float) { return __uint_as_float(0x7f800000u); }
#define INFINITE (infinity((R)0))
// The first, if either is no number.
DEVICE R larger(R a, R b) { return b > a ? b : a; }

// e^x. In 32 bits that of the processor's kernels, operation by operation: the reduction x = n ln 2 + r and Cephes'
// polynomial in r.
DEVICE double exponential(double x) { return exp(x); }
DEVICE float exponential(float x) {
    float clamped = x > 88.37626f ? 88.37626f : x;
    // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits of the sum.
    float shifted = fmaf(clamped, 1.44269504088896341f, 12582912.0f);
    float n = shifted - 12582912.0f;
    float r = fmaf(n, 2.1219444e-4f, fmaf(n, -0.6933594f, clamped));
    float p = fmaf(1.9875691e-4f, r, 1.3982e-3f);
    p = fmaf(p, r, 8.333452e-3f);
    p = fmaf(p, r, 4.1665796e-2f);
    p = fmaf(p, r, 1.6666665e-1f);
    p = fmaf(p, r, 5e-1f);
    float fraction = fmaf(p, r * r, r) + 1.0f;
    float power = __uint_as_float((__float_as_uint(shifted) + 127u) << 23);
    return x < -87.33654f ? 0.0f : fraction * power;
}

// Sums and maxima over the lanes of a warp, which all take part and get the result: the order in which the processor's
// kernels fold their 32 accumulators.
template <class T>
DEVICE T warp_sum(T x) {
    for (int width = 16; width > 0; width /= 2) x = x + __shfl_down_sync(ALL, x, width);
    return __shfl_sync(ALL, x, 0);
}
DEVICE R warp_largest(R x) {
    for (int width = 16; width > 0; width /= 2) x = larger(x, __shfl_down_sync(ALL, x, width));
    return __shfl_sync(ALL, x, 0);
}
// A bit for each lane of the warp, which all take part; and how many are set.
DEVICE u32 ballot(bool own) {
#ifdef EMULATED
    u32 bits = own ? 1u << lane() : 0;
    for (int width = 16; width > 0; width /= 2) bits |= __shfl_xor_sync(ALL, bits, width);
    return bits;
#else
    return __ballot_sync(ALL, own);
#endif
}
DEVICE int ones(u32 bits) {
#ifdef EMULATED
    return __builtin_popcount(bits);
#else
    return __popc(bits);
#endif
}
