// Products of a warpgroup, which a thread begins and waits for: what they add is seen when they are waited for, and is no
// number if what they read, or the sums, have changed meanwhile.
typedef long long i64;
typedef unsigned int u32;
typedef unsigned long long u64;

#include "emulator.hpp"

#include <stdlib.h>

namespace emulated {

struct Begun {
    float *sums, product[MOST_SUMS];
    unsigned count, group;
    Product* of;
    alignas(8) char factors[MOST_FACTORS];
    // Where the left operand is, if it came in registers, and what it was.
    const u32* left;
    u32 was[LEFT];
};
constexpr unsigned MOST_PRODUCTS = 64;
// What sums will be, while products of them are not done.
struct Sums {
    float *at, numbers[MOST_SUMS];
    unsigned products;
    bool spoiled;
};
constexpr unsigned MOST_ARRAYS = 8;

// A thread's: those that are not done, groups of them so far, and whether more may begin.
struct Products {
    unsigned count, group;
    bool may_begin;
    // What follows from all operands so far; and, of the first thread of a group, what did for the one that ended first.
    u64 named, of_group;
    bool group_ends;
    Begun begun[MOST_PRODUCTS];
    Sums sums[MOST_ARRAYS];
};

// Of a host thread's fibres, by number.
static __thread Products* all;
static Products& own() { return all[here.thread.x]; }

// The sums of an array of which products are not done; or one that is free, for none.
static Sums& sums_of(const float* at) {
    for (Sums& sums : own().sums)
        if (sums.at == at) return sums;
    if (!at) abort();
    return sums_of(nullptr);
}

void begin_products() { own().may_begin = true; }

void begin_product(
    float* at, unsigned count, bool add, const void* factors, size_t bytes, Product* product, const u32* left) {
    Products& products = own();
    if (products.count == MOST_PRODUCTS || count > MOST_SUMS || bytes > MOST_FACTORS) abort();
    if (!products.may_begin) refuse("a product begins without `begin_products`");
    Begun& begun = products.begun[products.count++];
    begun.sums = at, begun.count = count, begun.group = products.group, begun.of = product;
    memcpy(begun.factors, factors, bytes);
    if ((begun.left = left)) memcpy(begun.was, left, sizeof(begun.was));
    product(factors, begun.product);
    Sums& sums = sums_of(at);
    bool first = !sums.at;
    if (first) sums.at = at, sums.products = 0, sums.spoiled = false;
    for (unsigned i = 0; i < count; i++)
        sums.numbers[i] = (add ? first ? at[i] : sums.numbers[i] : 0) + begun.product[i];
    sums.products++;
    memset(at, 0xff, count * sizeof(float));
}

void compare_operands(u64 a, u64 b) {
    // FNV's hash, of words in place of bytes.
    constexpr u64 PRIME = 0x100000001b3;
    u64& named = own().named;
    named = ((named ^ a) * PRIME ^ b) * PRIME;
}

void commit_products() {
    Products& products = own();
    products.group++, products.may_begin = false;
}

static void finish(const Begun& begun) {
    float again[MOST_SUMS];
    begun.of(begun.factors, again);
    Sums& sums = sums_of(begun.sums);
    if (memcmp(again, begun.product, begun.count * sizeof(float)) != 0) sums.spoiled = true;
    if (begun.left && memcmp(begun.left, begun.was, sizeof(begun.was)) != 0) sums.spoiled = true;
    for (unsigned i = 0; i < begun.count * sizeof(float); i++)
        if (((const char*)begun.sums)[i] != (char)0xff) sums.spoiled = true;
    if (--sums.products > 0) return;
    if (!sums.spoiled) memcpy(begun.sums, sums.numbers, begun.count * sizeof(float));
    else memset(begun.sums, 0xff, begun.count * sizeof(float));
    sums.at = nullptr;
}

void wait_for_products(unsigned groups) {
    Products& products = own();
    unsigned done = 0;
    while (done < products.count && products.begun[done].group + groups < products.group) finish(products.begun[done++]);
    products.count -= done, products.may_begin = false;
    memmove(products.begun, products.begun + done, products.count * sizeof(Begun));
}

void forget_products(unsigned thread) {
    if (!all) all = (Products*)calloc(MOST_THREADS, sizeof(Products));
    if (!all) abort();
    Products& products = all[thread];
    products.count = products.group = 0, products.may_begin = products.group_ends = false, products.named = 0;
    for (Sums& sums : products.sums) sums.at = nullptr;
}

void end_products() {
    if (own().count > 0) refuse("products are never waited for");
    Products& group = all[here.thread.x / OF_GROUP * OF_GROUP];
    if (group.group_ends && group.of_group != own().named) refuse("warps of a group name different operands");
    group.group_ends = true, group.of_group = own().named;
}

}  // namespace emulated
