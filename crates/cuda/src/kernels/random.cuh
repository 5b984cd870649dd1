// Counter-based random numbers: Philox 4x32-10 (Salmon et al., SC 2011), and what they decide.
#pragma once
#include "prelude.cuh"

struct Words {
    u32 word[4];
};

// The four words at a counter; the key's first word is its low half.
DEVICE Words philox(u64 key, u64 counter) {
    u32 a = (u32)counter, b = (u32)(counter >> 32), c = 0, d = 0, first = (u32)key, second = (u32)(key >> 32);
    for (int round = 0; round < 10; round++) {
        u32 low = a * 0xd2511f53u, low_high = __umulhi(a, 0xd2511f53u);
        u32 high = c * 0xcd9e8d57u, high_high = __umulhi(c, 0xcd9e8d57u);
        a = high_high ^ b ^ first, b = high, c = low_high ^ d ^ second, d = low;
        first += 0x9e3779b9u, second += 0xbb67ae85u;
    }
    return {{a, b, c, d}};
}

// A dropout: an element stays if its word is at least `threshold`, and is then multiplied by `scale`. One whose threshold
// is 0 keeps all as they are.
struct Draw {
    u64 key;
    i64 threshold;
    double scale;
};
DEVICE bool keeps(Draw draw, i64 index) {
    Words words = philox(draw.key, (u64)index / 4);
    u32 at = (u32)index % 4, word = at == 0 ? words.word[0] : at == 1 ? words.word[1] : at == 2 ? words.word[2] : words.word[3];
    return draw.threshold == 0 || word >= draw.threshold;
}
// The factor of the element.
DEVICE R factor(Draw draw, i64 index) {
    return draw.threshold == 0 ? (R)1 : keeps(draw, index) ? (R)draw.scale : (R)0;
}
