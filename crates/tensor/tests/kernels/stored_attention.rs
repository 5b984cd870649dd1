//! Attention on values stored in 16 bits.

use crate::stored::{check, kernel};
use quadrille_tensor::*;

/// Up to 150 tokens of heads of up to 96 columns.
fn shape(rows: usize, cols: usize, parts: usize) -> AttentionShape {
    let seq_len = rows % 150 / (2 * parts) * (2 * parts);
    let context = ContextPart { part: parts - 1, parts };
    let causal = !cols.is_multiple_of(3);
    AttentionShape {
        sequences: 2,
        seq_len,
        context,
        heads: 4,
        kv_heads: 2,
        head_dim: (cols % 97).max(1),
        value_dim: (cols % 53).max(1),
        causal,
        window: (causal && rows.is_multiple_of(3)).then_some(20),
        scale: 0.7,
        cap: cols.is_multiple_of(2).then_some(3.0),
    }
}

/// Elements of `qkv`, of the output and of a number for each head.
fn sizes(shape: &AttentionShape) -> [usize; 3] {
    let AttentionShape { heads, kv_heads, head_dim, value_dim, .. } = *shape;
    let qkv_cols = heads * head_dim + kv_heads * (head_dim + value_dim);
    [qkv_cols, heads * value_dim, heads].map(|cols| shape.rows() * cols)
}

fn keep(sequence: usize, head: usize, query: usize, key: usize) -> bool {
    (sequence + head * 3 + query * 7 + key * 13) % 5 != 2
}

kernel! { Whole(pool, rows, cols) stored [
    qkv: sizes(&shape(rows, cols, 1))[0], made: sizes(&shape(rows, cols, 1))[1], out: sizes(&shape(rows, cols, 1))[1],
    dout: sizes(&shape(rows, cols, 1))[1], dqkv: sizes(&shape(rows, cols, 1))[0]
] real [made_lse: sizes(&shape(rows, cols, 1))[2], lse: sizes(&shape(rows, cols, 1))[2]] {
    let shape = shape(rows, cols, 1);
    let dropout = || rows.is_multiple_of(2).then_some((1.25, &keep as _));
    attention_forward(pool, shape, qkv, None, made, made_lse, dropout());
    attention_backward(pool, shape, qkv, None, out, lse, dout, dqkv, dropout());
} }

/// Elements of the keys and values of all parts.
fn kv(shape: &AttentionShape) -> usize {
    shape.sequences * shape.seq_len * shape.kv_heads * (shape.head_dim + shape.value_dim)
}

kernel! { Parts(pool, rows, cols) stored [
    qkv: sizes(&shape(rows, cols, 2))[0], kv: kv(&shape(rows, cols, 2)), made: sizes(&shape(rows, cols, 2))[1],
    out: sizes(&shape(rows, cols, 2))[1], dout: sizes(&shape(rows, cols, 2))[1], dqkv: sizes(&shape(rows, cols, 2))[0],
    dkv: kv(&shape(rows, cols, 2)), packed: kv(&shape(rows, cols, 2)) / 2,
    queries: 4 * keys(&shape(rows, cols, 2)), keys: 2 * keys(&shape(rows, cols, 2))
] real [made_lse: sizes(&shape(rows, cols, 2))[2], lse: sizes(&shape(rows, cols, 2))[2]] {
    let shape = shape(rows, cols, 2);
    attention_forward(pool, shape, qkv, Some(kv), made, made_lse, None);
    attention_backward(pool, shape, qkv, Some((kv, dkv)), out, lse, dout, dqkv, None);
    let AttentionShape { head_dim, value_dim, .. } = shape;
    let groups = GroupShape { rows: shape.rows(), groups: 2, heads: 2, head_dim, value_dim };
    pack_keys_values(pool, groups, qkv, packed);
    unpack_keys_values(pool, groups, packed, dqkv);
    split_heads(pool, groups, dqkv, queries, keys);
    join_heads(pool, groups, queries, keys, Some(qkv), dqkv);
} }

/// Elements of a head's keys or queries.
fn keys(shape: &AttentionShape) -> usize {
    shape.rows() * shape.head_dim
}

/// Up to 49.
fn head_dim(cols: usize) -> usize {
    (cols % 50).max(1)
}

/// A cache of up to 70 positions.
fn cache(rows: usize, cols: usize, tokens: usize) -> CacheShape {
    let window = rows.is_multiple_of(2).then_some(20);
    let cap = cols.is_multiple_of(2).then_some(3.0);
    CacheShape {
        sequences: 2,
        tokens,
        capacity: rows % 70,
        heads: 4,
        kv_heads: 2,
        head_dim: head_dim(cols),
        value_dim: head_dim(cols),
        window,
        scale: 1.2,
        cap,
    }
}

kernel! { Cached(pool, rows, cols) stored [
    first: 2 * 3 * 8 * head_dim(cols), later: 2 * 8 * head_dim(cols), cached: cache(rows, cols, 1).elements(),
    out: 2 * 3 * 4 * head_dim(cols), next: 2 * 4 * head_dim(cols), newest: 2 * 4 * head_dim(cols)
] real [] {
    let shape = cache(rows, cols, 3);
    store_keys_values(pool, shape, &[0, 0], first, cached);
    cached_attention(pool, shape, &[0, 0], first, cached, out);
    newest_rows(4 * shape.head_dim, 3, &[2, 1], out, newest);
    let starts = [3, shape.capacity / 2];
    let shape = cache(rows, cols, 1);
    store_keys_values(pool, shape, &starts, later, cached);
    cached_attention(pool, shape, &starts, later, cached, next);
} }

kernel! { FewRows(pool, rows, cols) stored [a: 5 * (rows % 40), b: rows % 40 * cols, c: 5 * cols] real [wide: 5 * cols] {
    for stored in [Transpose::Nn, Transpose::Nt] {
        let shape = ProductShape { stored, m: 5, n: cols, k: rows % 40 };
        matmul_few_rows(pool, shape, a, b, c);
        matmul_few_rows(pool, shape, a, b, wide);
    }
} }

#[test]
fn attention_is_rounded_once() {
    check(Whole);
}

#[test]
fn attention_of_parts_is_rounded_once() {
    check(Parts);
}

#[test]
fn attention_to_a_cache_is_rounded_once() {
    check(Cached);
}

#[test]
fn products_of_few_rows_are_rounded_once() {
    check(FewRows);
}
