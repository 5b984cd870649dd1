//! Keys and values apart from the queries: what the parts of a sequence exchange.

use crate::pool::Pool;
use crate::shape::GroupShape;
use crate::stored::Stored;

/// kv [rows, groups * (d + v)] = each group's key and value columns of qkv
/// [rows, groups * ((heads + 1) * d + v)], where `heads` heads share a key.
pub fn pack_keys_values<S: Stored>(pool: &Pool, shape: GroupShape, qkv: &[S], kv: &mut [S]) {
    let units = units(pool, shape, qkv.len(), kv.len());
    if shape.pair() == 0 {
        return;
    }
    pool.each(kv.chunks_mut(units * shape.pair()).zip(qkv.chunks(units * shape.group())), |(kv, qkv)| {
        for (kv, qkv) in kv.chunks_exact_mut(shape.pair()).zip(qkv.chunks_exact(shape.group())) {
            kv.copy_from_slice(&qkv[shape.queries()..]);
        }
    });
}

/// Each group's key and value columns of qkv [rows, groups * ((heads + 1) * d + v)] = kv
/// [rows, groups * (d + v)], the inverse of [`pack_keys_values`]; its query columns stay.
pub fn unpack_keys_values<S: Stored>(pool: &Pool, shape: GroupShape, kv: &[S], qkv: &mut [S]) {
    let units = units(pool, shape, qkv.len(), kv.len());
    if shape.pair() == 0 {
        return;
    }
    pool.each(qkv.chunks_mut(units * shape.group()).zip(kv.chunks(units * shape.pair())), |(qkv, kv)| {
        for (qkv, kv) in qkv.chunks_exact_mut(shape.group()).zip(kv.chunks_exact(shape.pair())) {
            qkv[shape.queries()..].copy_from_slice(kv);
        }
    });
}

/// Groups of rows in a piece of work.
fn units(pool: &Pool, shape: GroupShape, qkv: usize, kv: usize) -> usize {
    let units = shape.rows * shape.groups;
    assert_eq!((qkv, kv), (units * shape.group(), units * shape.pair()), "keys and values of {shape:?}");
    pool.rows_per_piece(units, shape.pair())
}
