// Tensor cores by warpgroups, of compute capability 9.0 alone (sm_90a): products of 16-bit values by four warps, whose
// right operand, and the left one perhaps, the device reads from shared memory while the threads go on. Every lane of
// the four warps takes part.
//
// A tile of `rows` rows lies in panels of 64 columns, one after another; in a panel a row has 128 bytes, whose 16-byte
// pieces are swizzled by the row (`panel_piece`). Tiles begin at multiples of 1,024 bytes.
//
// Order: copies are waited for, `show_copies`, a barrier; `begin_products`, products, `commit_products`; then
// `wait_for_products`, before which nobody touches the sums, and nobody writes what is read.
#pragma once
#include "mma.cuh"

// Stops a kernel whose tiles' memory does not begin at such a multiple.
DEVICE void check_tiles(const bf16* memory) {
    u32 at = shared_address(memory);
#ifdef EMULATED
    if (at & 1023) emulated::refuse("tiles do not begin at a multiple of 1,024 bytes");
#else
    // The compiler is not to conclude from what it was told of the alignment.
    asm volatile("" : "+r"(at));
    if (at & 1023) __trap();
#endif
}

// Where 8 columns of a row lie.
template <int ROWS>
DEVICE bf16* panel_piece(bf16* tile, int row, int at) {
    return tile + (at / 8 * ROWS + row) * 64 + (at % 8 ^ (row & 7)) * 8;
}

// What says where an operand lies: its place; bytes between panels, which count where rows are what is summed over;
// 1,024 bytes between groups of 8 rows; and the swizzle, of 128 bytes.
constexpr u64 NOT_COUNTED = 16;
DEVICE u64 operand_at(const bf16* at, u64 between_panels) {
    return ((u64)shared_address(at) & 0x3ffff) >> 4 | between_panels >> 4 << 16 | 1024ull >> 4 << 32 | 1ull << 62;
}
// Of rows from `row` on, 16 columns: what a left operand has, or a right one that is transposed.
template <int ROWS>
DEVICE u64 columns_at(const bf16* tile, int row, int step) {
    return operand_at(tile + (step / 4 * ROWS + row) * 64 + step % 4 * 16, NOT_COUNTED);
}
// Of 16 rows, all columns: a right operand.
template <int ROWS>
DEVICE u64 rows_at(const bf16* tile, int step) {
    return operand_at(tile + 16 * step * 64, ROWS * 128);
}

#ifdef EMULATED
// What a thread's sums are of: its two rows of the left operand, if they came in registers, and both operands' places;
// whether what is summed over are rows.
struct Factors {
    float left[2][16];
    bool given, by_rows;
    u64 a, b;
    int warp_row, lane, columns;
};
// Elements of an operand: of `across` rows or columns, the 16 that are summed over.
DEVICE void elements_of(u64 operand, bool by_rows, int across, float* elements) {
    u64 start = (operand & 0x3fff) << 4, panels = (operand >> 16 & 0x3fff) << 4, eights = (operand >> 32 & 0x3fff) << 4;
    // Eight of a row lie beside each other.
    int piece = by_rows ? 1 : 8;
    for (int k = 0; k < 16; k += piece) {
        u64 at = start + (by_rows ? across / 64 * panels + across % 64 * 2 + k / 8 * eights + k % 8 * 128
                                  : across / 8 * eights + across % 8 * 128 + k * 2);
        // The pieces' swizzle is of the address.
        at ^= (at >> 7 & 7) << 4;
        const bf16* from = (const bf16*)emulated::shown(at, piece * sizeof(bf16));
        for (int i = 0; i < piece; i++) elements[k + i] = widen(from[i]);
    }
}
static void product_of(const void* factors, float* product) {
    const Factors& of = *(const Factors*)factors;
    float left[2][16], right[16];
    for (int half = 0; half < 2; half++) {
        if (of.given) memcpy(left[half], of.left[half], sizeof(right));
        else elements_of(of.a, of.by_rows, of.warp_row + of.lane / 4 + 8 * half, left[half]);
    }
    // Of eight columns a thread has two, and of each the sums of its two rows.
    for (int i = 0; i < of.columns / 4; i++) {
        elements_of(of.b, of.by_rows, i / 2 * 8 + of.lane % 4 * 2 + i % 2, right);
        for (int half = 0; half < 2; half++) {
            float sum = 0;
            for (int k = 0; k < 16; k++) sum = fused(left[half][k], right[k], sum);
            product[i / 2 * 4 + half * 2 + i % 2] = sum;
        }
    }
}
// Refuses what no operand in this layout has: another swizzle, or bits that are to be zero.
DEVICE void check_operand(u64 operand) {
    if (operand >> 46 != 1ull << 16 || operand & 0xc000c000ull) emulated::refuse("an operand is said to lie otherwise");
}
// `left` are the registers of the left operand, if it came so.
template <int N>
DEVICE void begin_product(float (&c)[N][4], Factors& of, bool add, const u32* left) {
    of.warp_row = (int)threadIdx.x / 32 % 4 * 16, of.lane = lane(), of.columns = 8 * N;
    emulated::begin_product(&c[0][0], 4 * N, add, &of, sizeof(of), product_of, left);
    emulated::compare_operands(of.a, of.b);
}
#endif

// Lists of registers of c and their places in the instruction.
#define SUMS_4(i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
#define SUMS_16(i) SUMS_4(i), SUMS_4(i + 1), SUMS_4(i + 2), SUMS_4(i + 3)
#define SUMS_32 SUMS_16(0), SUMS_16(4)
#define SUMS_64 SUMS_32, SUMS_16(8), SUMS_16(12)
#define PLACES_32                                                                                              \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22," \
    "%23, %24, %25, %26, %27, %28, %29, %30, %31"
#define PLACES_64                                                                                               \
    PLACES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50," \
              "%51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define PRODUCT(n, places, add, left, right, more)                                                            \
    "{.reg .pred add; setp.ne.b32 add, " add ", 0; wgmma.mma_async.sync.aligned.m64n" n "k16.f32.bf16.bf16 {" \
    places "}, " left ", " right ", add, 1, 1, " more ";}"

// c = a b, or c += a b: 64 rows and 16 columns by 16 rows and 8 N columns. Of c a warp has 16 rows, as of the products
// of a warp. Both operands lie in shared memory, the right one transposed.
template <int N>
DEVICE void multiply(float (&c)[N][4], u64 a, u64 b, bool add) {
    static_assert(N == 8 || N == 16, "64 or 128 columns");
    // Of both operands.
    constexpr int BY_ROWS = 0;
#ifdef EMULATED
    const emulated::Given* given = emulated::exchange({{a, b, 0}});
    for (int i = 0; i < 32; i++)
        if (given[i].words[0] != a || given[i].words[1] != b) emulated::refuse("lanes name different operands");
    check_operand(a), check_operand(b);
    Factors of = {{}, false, BY_ROWS, a, b, 0, 0, 0};
    begin_product(c, of, add, nullptr);
#else
    if constexpr (N == 8)
        asm volatile(PRODUCT("64", PLACES_32, "%34", "%32", "%33", "%35, %35")
                     : SUMS_32
                     : "l"(a), "l"(b), "r"((int)add), "n"(BY_ROWS));
    else
        asm volatile(PRODUCT("128", PLACES_64, "%66", "%64", "%65", "%67, %67")
                     : SUMS_64
                     : "l"(a), "l"(b), "r"((int)add), "n"(BY_ROWS));
#endif
}
// c += a b with a in registers, as of the products of a warp, and b row by row.
template <int N>
DEVICE void multiply(float (&c)[N][4], const u32 (&a)[4], u64 b) {
    static_assert(N == 8 || N == 16, "64 or 128 columns");
    // Of the right operand.
    constexpr int BY_ROWS = 1;
#ifdef EMULATED
    const emulated::Given* given = emulated::exchange({{a[0] | (u64)a[1] << 32, a[2] | (u64)a[3] << 32, b}});
    Factors of = {{}, true, BY_ROWS, 0, b, 0, 0, 0};
    check_operand(b);
    for (int i = 0; i < 32; i++)
        if (given[i].words[2] != b) emulated::refuse("lanes name different operands");
    for (int i = 0; i < 32; i++) {
        int half = i / 16, k = i % 16;
        u32 pair = (u32)(given[lane() / 4 * 4 + k % 8 / 2].words[k / 8] >> 32 * half);
        of.left[half][k] = widen(bf16{(unsigned short)(pair >> k % 2 * 16)});
    }
    begin_product(c, of, true, a);
#else
    if constexpr (N == 8)
        asm volatile(PRODUCT("64", PLACES_32, "1", "{%32, %33, %34, %35}", "%36", "%37")
                     : SUMS_32
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(BY_ROWS));
    else
        asm volatile(PRODUCT("128", PLACES_64, "1", "{%64, %65, %66, %67}", "%68", "%69")
                     : SUMS_64
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(BY_ROWS));
#endif
}

// What comes before products and after waiting for them: the compiler is not to move what uses sums beyond it.
template <int N>
DEVICE void settle(float (&c)[N][4]) {
#ifdef EMULATED
    (void)c;
#else
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) asm volatile("" : "+f"(c[i][j])::"memory");
#endif
}
template <int N>
DEVICE void settle(u32 (&a)[N][4]) {
#ifdef EMULATED
    (void)a;
#else
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) asm volatile("" : "+r"(a[i][j])::"memory");
#endif
}

// Lets products see what this thread's copies, which it has waited for, have brought to shared memory; others' see it
// behind a barrier.
DEVICE void show_copies(PLACE) {
#ifndef EMULATED
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
    UNLESS_LEFT_OUT(show_copies());
}
// Products of a group, which begin from now on, see registers as they are.
DEVICE void begin_products(PLACE) {
#ifndef EMULATED
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
    UNLESS_LEFT_OUT(begin_products());
}
// Products since the last call are a group.
DEVICE void commit_products(PLACE) {
#ifndef EMULATED
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
    UNLESS_LEFT_OUT(commit_products());
}
// Waits for all groups but the last so many.
template <int groups>
DEVICE void wait_for_products(PLACE) {
#ifndef EMULATED
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(groups) : "memory");
#endif
    UNLESS_LEFT_OUT(wait_for_products(groups));
}
