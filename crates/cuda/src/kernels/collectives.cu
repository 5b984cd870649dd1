// What collectives do with the buffers of a group's members.
#include "prelude.cuh"

// The most members of a group, as MOST_MEMBERS of the host says.
#define MOST_MEMBERS 64

struct Members {
    i64 count;
    S* at[MOST_MEMBERS];
};

// The larger; what is no number stays none, on either side.
DEVICE R largest_of(R a, R b) { return b > a || b != b ? b : a; }

// Every element of `to` = those of `from` combined in the order of members, rounded once.
KERNEL(reduce)(Members from, Members to, i64 maximum, i64 n) {
    for (EACH(i, n)) {
        R result = widen(from.at[0][i]);
        for (i64 member = 1; member < from.count; member++) {
            R next = widen(from.at[member][i]);
            result = maximum ? largest_of(result, next) : result + next;
        }
        for (i64 member = 0; member < to.count; member++) store(&to.at[member][i], result);
    }
}
