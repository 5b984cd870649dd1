// Keys and values apart from the queries: what the parts of a sequence exchange.
#include "prelude.cuh"

// kv [units, pair] = the columns of qkv [units, queries + pair] behind the queries; and back.
KERNEL(pack_keys_values)(const S* qkv, S* kv, i64 units, i64 queries, i64 pair) {
    for (EACH(i, units * pair)) kv[i] = qkv[quotient(i, pair) * (queries + pair) + queries + rest(i, pair)];
}
KERNEL(unpack_keys_values)(const S* kv, S* qkv, i64 units, i64 queries, i64 pair) {
    for (EACH(i, units * pair)) qkv[quotient(i, pair) * (queries + pair) + queries + rest(i, pair)] = kv[i];
}
