//! Keys and values apart from the queries: what the parts of a sequence exchange.

use crate::element::Element;
use crate::pool::Pool;

/// kv [rows, heads * 2 * d] = each head's key and value columns of qkv [rows, heads * 3 * d].
pub fn pack_keys_values<T: Element>(pool: &Pool, rows: usize, heads: usize, head_dim: usize, qkv: &[T], kv: &mut [T]) {
    check(rows, heads, head_dim, qkv.len(), kv.len());
    if head_dim == 0 {
        return;
    }
    let units = pool.rows_per_piece(rows * heads, 2 * head_dim);
    let pieces = kv.chunks_mut(units * 2 * head_dim).zip(qkv.chunks(units * 3 * head_dim));
    pool.each(pieces, |(kv, qkv)| {
        for (kv, qkv) in kv.chunks_exact_mut(2 * head_dim).zip(qkv.chunks_exact(3 * head_dim)) {
            kv.copy_from_slice(&qkv[head_dim..]);
        }
    });
}

/// Each head's key and value columns of qkv [rows, heads * 3 * d] = kv [rows, heads * 2 * d], the
/// inverse of [`pack_keys_values`]; its query columns stay.
pub fn unpack_keys_values<T: Element>(
    pool: &Pool,
    rows: usize,
    heads: usize,
    head_dim: usize,
    kv: &[T],
    qkv: &mut [T],
) {
    check(rows, heads, head_dim, qkv.len(), kv.len());
    if head_dim == 0 {
        return;
    }
    let units = pool.rows_per_piece(rows * heads, 2 * head_dim);
    let pieces = qkv.chunks_mut(units * 3 * head_dim).zip(kv.chunks(units * 2 * head_dim));
    pool.each(pieces, |(qkv, kv)| {
        for (qkv, kv) in qkv.chunks_exact_mut(3 * head_dim).zip(kv.chunks_exact(2 * head_dim)) {
            qkv[head_dim..].copy_from_slice(kv);
        }
    });
}

fn check(rows: usize, heads: usize, head_dim: usize, qkv: usize, kv: usize) {
    let len = rows * heads * head_dim;
    assert_eq!((qkv, kv), (3 * len, 2 * len), "keys and values of {rows} rows, {heads} heads of {head_dim}");
}
