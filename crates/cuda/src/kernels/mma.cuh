// Tensor cores, and what feeds them: products of 16-bit values by a warp, whose lanes all take part, and copies to
// shared memory that go on beside the arithmetic.
#pragma once
#include "prelude.cuh"

// Two values rounded to 16 bits, the first in the low half.
DEVICE u32 packed(float first, float second) {
#ifdef EMULATED
    bf16 low, high;
    store(&low, first), store(&high, second);
    return low.bits | (u32)high.bits << 16;
#else
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    return both;
#endif
}

// c += a b, of 16 x 16 and 16 x 8 values. Of c a lane has rows lane / 4 and that + 8, of each two columns from
// lane % 4 * 2 on; of a the same rows and columns, then those 8 columns further; of b column lane / 4, rows from
// lane % 4 * 2 on, then those 8 rows further.
DEVICE void mma(float (&c)[4], const u32 (&a)[4], u32 b_first, u32 b_second) {
#ifdef EMULATED
    const emulated::Given* given =
        emulated::exchange({{a[0] | (u64)a[1] << 32, a[2] | (u64)a[3] << 32, b_first | (u64)b_second << 32}});
    for (int i = 0; i < 4; i++) {
        int row = lane() / 4 + i / 2 * 8, col = lane() % 4 * 2 + i % 2;
        float sum = 0;
        for (int k = 0; k < 16; k++) {
            u32 of_a = (u32)(given[row % 8 * 4 + k % 8 / 2].words[k / 8] >> row / 8 * 32);
            u32 of_b = (u32)(given[col * 4 + k % 8 / 2].words[2] >> k / 8 * 32);
            bf16 x = {(unsigned short)(of_a >> k % 2 * 16)}, y = {(unsigned short)(of_b >> k % 2 * 16)};
            sum = fused(widen(x), widen(y), sum);
        }
        c[i] = c[i] + sum;
    }
#else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_first), "r"(b_second));
#endif
}

// Where memory that is shared lies, as instructions count.
DEVICE u32 shared_address(const void* at) {
#ifdef EMULATED
    return (u32)emulated::shared_address(at);
#else
    return (u32)__cvta_generic_to_shared(at);
#endif
}

// Four matrices of 8 x 8 values in shared memory: lane 8 i + r says where row r of matrix i begins. A lane gets of each
// matrix two values of row lane / 4, from column lane % 4 * 2 on; of transposed ones, of the column and rows instead.
template <bool transposed>
DEVICE void load_matrices(u32 (&to)[4], const bf16* row) {
#ifdef EMULATED
    const emulated::Given* given = emulated::exchange({{(u64)row, 0, 0}});
    int own = lane() / 4, pair = lane() % 4 * 2;
    for (int i = 0; i < 4; i++) {
        const emulated::Given* rows = given + 8 * i;
        bf16 first, second;
        if (transposed)
            first = ((const bf16*)rows[pair].words[0])[own], second = ((const bf16*)rows[pair + 1].words[0])[own];
        else
            first = ((const bf16*)rows[own].words[0])[pair], second = ((const bf16*)rows[own].words[0])[pair + 1];
        to[i] = first.bits | (u32)second.bits << 16;
    }
#else
    if (transposed)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(shared_address(row))
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(shared_address(row))
                     : "memory");
#endif
}

// Copies 16 or 4 bytes from global to shared memory, or sets them to zero. It is done once the thread has waited for
// its group, and others see it behind a barrier. Copies since the last `commit_copies` are a group.
template <int size>
DEVICE void copy_later(void* to, const void* from, bool there) {
#ifdef EMULATED
    emulated::copy_later(to, from, size, there ? size : 0);
#else
    if (size == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     ::"r"(shared_address(to)), "l"(from), "r"(there ? 16 : 0)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                     ::"r"(shared_address(to)), "l"(from), "r"(there ? 4 : 0)
                     : "memory");
#endif
}
DEVICE void commit_copies() {
#ifdef EMULATED
    emulated::commit_copies();
#else
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Of functions that tests leave out where a line calls them.
#ifdef EMULATED
#define PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define UNLESS_LEFT_OUT(call) \
    if (!emulated::is_left_out(file, line)) emulated::call
#else
#define PLACE
#define UNLESS_LEFT_OUT(call)
#endif

// Waits for all groups of the thread but the last so many.
template <int groups>
DEVICE void wait_for_copies(PLACE) {
#ifndef EMULATED
    asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
#endif
    UNLESS_LEFT_OUT(wait_for_copies(groups));
}

// 2^x and 1 / x, to within 2 units in the last place.
DEVICE float power_of_two(float x) {
#ifdef EMULATED
    return exp2f(x);
#else
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
#endif
}
DEVICE float reciprocal(float x) {
#ifdef EMULATED
    return 1.0f / x;
#else
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
    return inverse;
#endif
}
