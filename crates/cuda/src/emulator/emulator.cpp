// Runs the blocks of a kernel one after another, and the threads of each as fibres, both in an order drawn from a seed.
typedef long long i64;
typedef unsigned int u32;
typedef unsigned long long u64;

#include "emulator.hpp"

#include <stdio.h>
#include <stdlib.h>

// Stores the registers that a function keeps on the stack, leaves its top in *from, and goes on where `to` was left so.
extern "C" void quadrille_switch(void** from, void* to);
#if defined(__x86_64__)
asm(R"(
.text
.globl quadrille_switch
.type quadrille_switch, @function
quadrille_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.section .note.GNU-stack,"",@progbits
.text
)");
#elif defined(__aarch64__)
asm(R"(
.text
.globl quadrille_switch
.type quadrille_switch, %function
quadrille_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x2, sp
    str x2, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
)");
#else
#error "fibres are switched on x86-64 and aarch64 only"
#endif

namespace emulated {

constexpr size_t STACK = 64 << 10;
constexpr size_t SHARED_BYTES = 4 << 20;

enum State : char { READY, IN_BLOCK, IN_WARP, DONE };

struct Fibre {
    void* top;
    State state;
    // Where it waits, and which of the two sets of exchanged values is next.
    int place;
    unsigned parity;
    // Copies that are not done, and groups of them so far.
    unsigned copies, group;
    // Those that are done and not shown.
    unsigned unshown;
};

struct Copy {
    void* to;
    const void* from;
    unsigned size, bytes, group;
};
constexpr unsigned MOST_COPIES = 128;

// What was written, and is to be shown.
struct Written {
    void* at;
    unsigned size;
};

// A host thread's fibres and shared memory, kept from launch to launch.
struct Machine {
    char* stacks;
    // Shared memory, and how products see it.
    char *memory, *shown;
    Fibre fibres[MOST_THREADS];
    Given given[2][MOST_THREADS];
    Copy copies[MOST_THREADS][MOST_COPIES];
    Written unshown[MOST_THREADS][MOST_COPIES];
    unsigned ready[MOST_THREADS];
    // By warp: how many of its threads wait for the others.
    unsigned in_warp[MOST_THREADS / 32];
    unsigned ready_count, current;
    void* scheduler;
    // By place where its memory begins, and the block for which it was last poisoned, 0 for none of this launch.
    size_t offset[MOST_PLACES];
    u64 poisoned[MOST_PLACES];
    size_t used;
    u64 block_number;
    size_t dynamic_bytes;
    // What a thread has done that it must not.
    const char* fault;
    const Kernel* kernel;
    const u64* words;
    u64 random;
    // A line without its barrier, in a file of this name; null for none.
    const char* without_file;
    u32 without_line;
};

__thread Here here;
static __thread Machine* machine;

static u64 draw(u64 below) {
    u64& x = machine->random;
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    return (x * 0x2545f4914f6cdd1dull >> 16) % below;
}

// As far as kernels may count on it, of what a program shares, and of what the launch gives.
constexpr size_t ALIGNED = 64, DYNAMIC_ALIGNED = 1024;

void* shared(int place, size_t bytes) {
    Machine& m = *machine;
    if (m.poisoned[place] == 0) {
        size_t aligned = place == OF_LAUNCH ? DYNAMIC_ALIGNED : ALIGNED;
        m.offset[place] = (m.used + aligned - 1) / aligned * aligned;
        m.used = m.offset[place] + bytes;
        if (m.used > SHARED_BYTES) abort();
    }
    if (m.poisoned[place] != m.block_number) {
        memset(m.memory + m.offset[place], 0xff, bytes);
        memset(m.shown + m.offset[place], 0xff, bytes);
        m.poisoned[place] = m.block_number;
    }
    return m.memory + m.offset[place];
}

void* dynamic(size_t bytes) {
    if (bytes != machine->dynamic_bytes) machine->fault = "the block shares other bytes than its launch says";
    return shared(OF_LAUNCH, bytes);
}

static void yield(State state) {
    Fibre& fibre = machine->fibres[machine->current];
    fibre.state = state;
    quadrille_switch(&fibre.top, machine->scheduler);
}

static void wait_at(Scope scope, int place) {
    machine->fibres[machine->current].place = place;
    yield(scope == BLOCK ? IN_BLOCK : IN_WARP);
}

bool is_left_out(const char* file, int line) {
    if (!machine->without_file || machine->without_line != (u32)line) return false;
    const char* name = strrchr(file, '/');
    return strcmp(name ? name + 1 : file, machine->without_file) == 0;
}

void wait(Scope scope, const char* file, int line) {
    if (!is_left_out(file, line)) wait_at(scope, line);
}

const Given* exchange(Given own) {
    unsigned self = machine->current, parity = machine->fibres[self].parity++ % 2;
    machine->given[parity][self] = own;
    wait_at(WARP, 0);
    return &machine->given[parity][self / 32 * 32];
}

u64 exchange(u64 bits, unsigned lane) {
    const Given* given = exchange(Given{{bits}});
    return lane < 32 ? given[lane].words[0] : bits;
}

void copy_later(void* to, const void* from, unsigned size, unsigned bytes) {
    Fibre& fibre = machine->fibres[machine->current];
    if (fibre.copies == MOST_COPIES) abort();
    if ((size_t)to % size || (bytes && (size_t)from % size)) machine->fault = "a copy is not aligned";
    memset(to, 0xff, size);
    memset(machine->shown + ((char*)to - machine->memory), 0xff, size);
    machine->copies[machine->current][fibre.copies++] = {to, from, size, bytes, fibre.group};
}

void commit_copies() { machine->fibres[machine->current].group++; }

void wait_for_copies(unsigned groups) {
    Fibre& fibre = machine->fibres[machine->current];
    Copy* copies = machine->copies[machine->current];
    unsigned left = 0;
    for (unsigned i = 0; i < fibre.copies; i++) {
        Copy copy = copies[i];
        if (copy.group + groups >= fibre.group) {
            copies[left++] = copy;
            continue;
        }
        memset(copy.to, 0, copy.size);
        if (copy.bytes) memcpy(copy.to, copy.from, copy.bytes);
        // Kernels without such products show nothing.
        if (fibre.unshown < MOST_COPIES) machine->unshown[machine->current][fibre.unshown++] = {copy.to, copy.size};
    }
    fibre.copies = left;
}

void refuse(const char* fault) {
    if (!machine->fault) machine->fault = fault;
}

void show_copies() {
    Fibre& fibre = machine->fibres[machine->current];
    for (unsigned i = 0; i < fibre.unshown; i++) {
        Written of = machine->unshown[machine->current][i];
        memcpy(machine->shown + ((char*)of.at - machine->memory), of.at, of.size);
    }
    fibre.unshown = 0;
}

u64 shared_address(const void* at) { return (u64)((const char*)at - machine->memory); }

const void* shown(u64 at, size_t bytes) {
    static const char none[16] = {};
    if (at + bytes <= machine->used && bytes <= sizeof(none)) return machine->shown + at;
    refuse("a product reads beyond the memory that is shared");
    return none;
}

static void fibre_main() {
    machine->kernel->run(machine->words);
    end_products();
    yield(DONE);
    abort();
}

static void start(unsigned thread) {
    Fibre& fibre = machine->fibres[thread];
    void** top = (void**)(machine->stacks + (thread + 1) * STACK);
#if defined(__x86_64__)
    // As a call leaves it: a return address above which the stack is aligned to 16.
    *--top = nullptr;
    *--top = (void*)fibre_main;
    top -= 6;
#else
    top -= 20;
    top[11] = (void*)fibre_main;
#endif
    fibre = {top, READY, 0, 0, 0, 0, 0};
    forget_products(thread);
}

// Makes the threads from `first` up to `end` ready if all that are not done wait for each other at one place.
static const char* release(unsigned first, unsigned end, State waiting) {
    int place = -1;
    for (unsigned i = first; i < end; i++) {
        Fibre& fibre = machine->fibres[i];
        if (fibre.state == DONE) {
            if (waiting == IN_WARP) return nullptr;
            continue;
        }
        if (fibre.state != waiting) return nullptr;
        if (place >= 0 && fibre.place != place) return "threads wait for each other at different barriers";
        place = fibre.place;
    }
    for (unsigned i = first; i < end && place >= 0; i++) {
        if (machine->fibres[i].state == DONE) continue;
        machine->fibres[i].state = READY;
        machine->ready[machine->ready_count++] = i;
    }
    return nullptr;
}

static const char* run_block(unsigned threads) {
    Machine& m = *machine;
    m.block_number++;
    m.ready_count = 0;
    memset(m.in_warp, 0, sizeof(m.in_warp));
    // In a quarter of the blocks one warp goes ahead of all others wherever it can.
    unsigned ahead = draw(4) == 0 ? (unsigned)draw(threads / 32) : threads;
    for (unsigned i = 0; i < threads; i++) start(i), m.ready[m.ready_count++] = i;
    for (;;) {
        while (m.ready_count > 0) {
            unsigned at = (unsigned)draw(m.ready_count);
            for (unsigned i = 0; ahead < threads && i < m.ready_count; i++)
                if (m.ready[i] / 32 == ahead) at = i, i = m.ready_count;
            unsigned thread = m.ready[at];
            m.ready[at] = m.ready[--m.ready_count];
            m.current = thread, here.thread.x = thread;
            quadrille_switch(&m.scheduler, m.fibres[thread].top);
            if (m.fibres[thread].state != IN_WARP || ++m.in_warp[thread / 32] < 32) continue;
            m.in_warp[thread / 32] = 0;
            if (const char* fault = release(thread / 32 * 32, thread / 32 * 32 + 32, IN_WARP)) return fault;
        }
        if (const char* fault = release(0, threads, IN_BLOCK)) return fault;
        if (m.ready_count > 0) continue;
        for (unsigned i = 0; i < threads; i++)
            if (m.fibres[i].state != DONE) return "threads wait for others that never come to the barrier";
        return nullptr;
    }
}

static Machine* new_machine() {
    Machine* m = (Machine*)calloc(1, sizeof(Machine));
    m->stacks = (char*)malloc(MOST_THREADS * STACK);
    m->memory = (char*)malloc(SHARED_BYTES);
    m->shown = (char*)malloc(SHARED_BYTES);
    if (!m->stacks || !m->memory || !m->shown) abort();
    return m;
}

}  // namespace emulated

// Runs a kernel, without the barrier of a line if a file is named; returns what is wrong with it, or null. `threads` is a
// multiple of 32 and at most 1024.
extern "C" const char* quadrille_emulate(
    const emulated::Kernel* kernel, const u64* words, u32 blocks, u32 threads, u32 shared, u64 seed,
    const char* without_file, u32 without_line) {
    using namespace emulated;
    if (!machine) machine = new_machine();
    machine->without_file = without_file, machine->without_line = without_line;
    machine->kernel = kernel, machine->words = words, machine->random = seed | 1;
    memset(machine->poisoned, 0, sizeof(machine->poisoned));
    machine->used = 0, machine->dynamic_bytes = shared, machine->fault = nullptr;
    here.blocks.x = blocks, here.threads.x = threads;
    // Every block once: the step has no factor in common with their number.
    u64 first = draw(blocks), step = draw(blocks);
    auto common = [](u64 a, u64 b) {
        while (b) {
            u64 rest = a % b;
            a = b, b = rest;
        }
        return a;
    };
    while (common(step, blocks) != 1) step++;
    for (u64 i = 0; i < blocks; i++) {
        here.block.x = (u32)((first + i * step) % blocks);
        if (const char* fault = run_block(threads)) return fault;
        if (machine->fault) return machine->fault;
    }
    return nullptr;
}
