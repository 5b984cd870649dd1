// Kept elements of a pruned weight: out of its dense tile, and back.
#include "prelude.cuh"

// y[i] = (or +=) x[indices[i]]; elements beyond the indices become zero, or stay.
KERNEL(compress)(const S* x, const u32* indices, S* y, i64 kept, i64 n, i64 accumulate) {
    for (EACH(i, n)) {
        if (i >= kept) {
            if (!accumulate) y[i] = zero();
        } else if (accumulate) {
            store(&y[i], widen(y[i]) + widen(x[indices[i]]));
        } else {
            y[i] = x[indices[i]];
        }
    }
}

// y[indices[i]] = x[i]; other elements stay.
KERNEL(expand)(const S* x, const u32* indices, S* y, i64 kept) {
    for (EACH(i, kept)) y[indices[i]] = x[i];
}
