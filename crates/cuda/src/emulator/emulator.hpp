// The part of CUDA's language that kernels use, for the C++ compiler. A block's threads are fibres of one thread of the
// host, which switch where they wait for each other.
#pragma once
#include <math.h>
#include <string.h>

#define __device__
#define __global__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __restrict__ __restrict

namespace emulated {

struct Index {
    unsigned x;
};

// Of the fibre that runs, and of its block.
struct Here {
    Index thread, block, blocks, threads;
};
extern __thread Here here;

enum Scope { BLOCK, WARP };

// Whether this launch runs without the barrier of a line: a negative control.
bool is_left_out(const char* file, int line);
// Waits until all threads of the block or of the warp are at the same line.
void wait(Scope scope, const char* file, int line);
// The value that `lane` of the warp gives, once all its lanes have given theirs; one beyond the warp gives `bits` back.
u64 exchange(u64 bits, unsigned lane);
// What a lane gives to its warp; and what all its lanes give, once they have. It is there until the lane has exchanged
// again.
struct Given {
    u64 words[3];
};
const Given* exchange(Given own);
// Copies of the thread that are done when it waits for them: until then nobody knows what is there. Those since the
// last commit are a group; `wait_for_copies` leaves so many of the last groups undone. Bytes beyond `bytes` become zero.
void copy_later(void* to, const void* from, unsigned size, unsigned bytes);
void commit_copies();
void wait_for_copies(unsigned groups);
// Products of a warpgroup that the thread has begun: until it waits for their group nobody knows its sums. What they
// read must not change meanwhile, nor the registers of a left operand, if there are some, nor the sums: they are no
// numbers then. They see memory that is shared as it was shown: of copies alone, by the thread that has waited for
// them. `product` gets the factors, and gives what is added.
constexpr unsigned MOST_SUMS = 64, MOST_FACTORS = 192, LEFT = 4, OF_GROUP = 128;
typedef void Product(const void* factors, float* product);
void begin_product(
    float* sums, unsigned count, bool add, const void* factors, size_t bytes, Product* product, const u32* left);
// Of a product that has begun: at the end all threads of a group must have named the same, one after another.
void compare_operands(u64 a, u64 b);
void begin_products();
void commit_products();
void wait_for_products(unsigned groups);
// At the start of a thread, and at its end.
void forget_products(unsigned thread);
void end_products();
void show_copies();
// Where shared memory lies as products count, and what they see at such a place.
u64 shared_address(const void* at);
const void* shown(u64 at, size_t bytes);
// Ends the launch with a fault, the first of them.
void refuse(const char* fault);
// The memory that the launch gives a block beside that of places, which must be so many bytes.
void* dynamic(size_t bytes);
// The memory that a place of a program shares with the block: poison when the block reaches it first.
void* shared(int place, size_t bytes);
// The last place is of the memory that the launch gives.
constexpr int MOST_PLACES = 1024, OF_LAUNCH = MOST_PLACES - 1;
constexpr unsigned MOST_THREADS = 1024;

template <class T>
T exchanged(T x, unsigned lane) {
    u64 bits = 0;
    memcpy(&bits, &x, sizeof(T));
    bits = exchange(bits, lane);
    memcpy(&x, &bits, sizeof(T));
    return x;
}

// A kernel by name, with the words that it takes.
struct Kernel {
    const char* name;
    u64 words;
    void (*run)(const u64* words);
};

// The next argument of a kernel.
template <class A>
A taken(const u64*& words) {
    static_assert(sizeof(A) % sizeof(u64) == 0, "arguments are words");
    A argument;
    memcpy(&argument, words, sizeof(A));
    words += sizeof(A) / sizeof(u64);
    return argument;
}
template <class... A>
constexpr u64 words_of(void (*)(A...)) {
    return (sizeof(A) + ... + 0) / sizeof(u64);
}
template <class... A>
void call(void (*kernel)(A...), const u64* words) {
    // Braces: arguments are taken from left to right.
    struct Call {
        Call(void (*kernel)(A...), A... arguments) { kernel(arguments...); }
    };
    Call{kernel, taken<A>(words)...};
}
template <auto kernel>
void run(const u64* words) {
    call(kernel, words);
}
}  // namespace emulated

#define threadIdx emulated::here.thread
#define blockIdx emulated::here.block
#define gridDim emulated::here.blocks
#define blockDim emulated::here.threads

#define __syncthreads() emulated::wait(emulated::BLOCK, __FILE__, __LINE__)
#define __syncwarp() emulated::wait(emulated::WARP, __FILE__, __LINE__)
// No templates around it: their instances would share one memory.
#define SHARED(type, name, count)                          \
    constexpr int name##_place = __COUNTER__;              \
    static_assert(name##_place < emulated::OF_LAUNCH, "");     \
    type* name = (type*)emulated::shared(name##_place, sizeof(type) * (count))

template <class T>
T __shfl_sync(unsigned, T x, int lane) {
    return emulated::exchanged(x, (unsigned)lane % 32);
}
template <class T>
T __shfl_down_sync(unsigned, T x, unsigned distance) {
    return emulated::exchanged(x, threadIdx.x % 32 + distance);
}
template <class T>
T __shfl_xor_sync(unsigned, T x, int mask) {
    return emulated::exchanged(x, (threadIdx.x % 32) ^ (unsigned)mask);
}

#define DYNAMIC(type, name, count) type* name = (type*)emulated::dynamic(sizeof(type) * (count))

template <class To, class From>
__forceinline__ To emulated_bits(From from) {
    To to;
    static_assert(sizeof(To) == sizeof(From), "bits of one size");
    memcpy(&to, &from, sizeof(To));
    return to;
}
__forceinline__ float __uint_as_float(unsigned x) { return emulated_bits<float>(x); }
__forceinline__ unsigned __float_as_uint(float x) { return emulated_bits<unsigned>(x); }
inline double __longlong_as_double(i64 x) { return emulated_bits<double>(x); }
inline i64 __double_as_longlong(double x) { return emulated_bits<i64>(x); }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((u64)a * b >> 32); }
