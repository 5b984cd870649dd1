//! Keys and values apart from the queries: what the parts of a sequence exchange.

use crate::pool::Pool;
use crate::shape::GroupShape;
use crate::stored::Stored;

/// kv [rows, groups * 2 * d] = each group's key and value columns of qkv
/// [rows, groups * (heads + 2) * d], where `heads` heads share a key.
pub fn pack_keys_values<S: Stored>(pool: &Pool, shape: GroupShape, qkv: &[S], kv: &mut [S]) {
    let GroupShape { rows, groups, heads, head_dim } = shape;
    let [wide, narrow, units] = sizes(pool, rows, groups, heads, head_dim, qkv.len(), kv.len());
    if head_dim == 0 {
        return;
    }
    pool.each(kv.chunks_mut(units * narrow).zip(qkv.chunks(units * wide)), |(kv, qkv)| {
        for (kv, qkv) in kv.chunks_exact_mut(narrow).zip(qkv.chunks_exact(wide)) {
            kv.copy_from_slice(&qkv[heads * head_dim..]);
        }
    });
}

/// Each group's key and value columns of qkv [rows, groups * (heads + 2) * d] = kv
/// [rows, groups * 2 * d], the inverse of [`pack_keys_values`]; its query columns stay.
pub fn unpack_keys_values<S: Stored>(pool: &Pool, shape: GroupShape, kv: &[S], qkv: &mut [S]) {
    let GroupShape { rows, groups, heads, head_dim } = shape;
    let [wide, narrow, units] = sizes(pool, rows, groups, heads, head_dim, qkv.len(), kv.len());
    if head_dim == 0 {
        return;
    }
    pool.each(qkv.chunks_mut(units * wide).zip(kv.chunks(units * narrow)), |(qkv, kv)| {
        for (qkv, kv) in qkv.chunks_exact_mut(wide).zip(kv.chunks_exact(narrow)) {
            qkv[heads * head_dim..].copy_from_slice(kv);
        }
    });
}

/// Columns of a group in qkv and in kv, and groups of rows in a piece of work.
fn sizes(pool: &Pool, rows: usize, groups: usize, heads: usize, head_dim: usize, qkv: usize, kv: usize) -> [usize; 3] {
    let (wide, narrow, units) = ((heads + 2) * head_dim, 2 * head_dim, rows * groups);
    let what = || format!("keys and values of {rows} rows, {groups} groups of {heads} heads of {head_dim}");
    assert_eq!((qkv, kv), (units * wide, units * narrow), "{}", what());
    [wide, narrow, pool.rows_per_piece(units, narrow)]
}
