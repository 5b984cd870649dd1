//! The queries of all heads apart from their keys and values, and the keys: what is normed together.

use std::ops::Range;

use crate::pool::Pool;
use crate::shape::GroupShape;
use crate::stored::Stored;

/// queries [rows, groups * heads * d] and keys [rows, groups * d] = those columns of qkv
/// [rows, groups * ((heads + 1) * d + v)], where `heads` heads share a key.
pub fn split_heads<S: Stored>(pool: &Pool, shape: GroupShape, qkv: &[S], queries: &mut [S], keys: &mut [S]) {
    let Some(columns) = Columns::of(shape, [qkv.len(), queries.len(), keys.len()]) else { return };
    let [wide, of_queries, d] = columns.pieces(pool, shape);
    let pieces = qkv.chunks(wide).zip(queries.chunks_mut(of_queries)).zip(keys.chunks_mut(d));
    pool.each(pieces, |((qkv, queries), keys)| {
        let groups = queries.chunks_exact_mut(columns.queries.len()).zip(keys.chunks_exact_mut(columns.keys.len()));
        for (qkv, (queries, keys)) in qkv.chunks_exact(columns.all).zip(groups) {
            queries.copy_from_slice(&qkv[columns.queries.clone()]);
            keys.copy_from_slice(&qkv[columns.keys.clone()]);
        }
    });
}

/// Those columns of qkv = queries and keys, the inverse of [`split_heads`]; the value columns become those of `beside`, or
/// stay.
pub fn join_heads<S: Stored>(
    pool: &Pool,
    shape: GroupShape,
    queries: &[S],
    keys: &[S],
    beside: Option<&[S]>,
    qkv: &mut [S],
) {
    let Some(columns) = Columns::of(shape, [qkv.len(), queries.len(), keys.len()]) else { return };
    assert_eq!(beside.map_or(qkv.len(), <[S]>::len), qkv.len(), "what the values of {shape:?} are taken from");
    let [wide, of_queries, d] = columns.pieces(pool, shape);
    let pieces = qkv.chunks_mut(wide).zip(queries.chunks(of_queries)).zip(keys.chunks(d)).enumerate();
    pool.each(pieces, |(piece, ((qkv, queries), keys))| {
        let beside = beside.map(|beside| &beside[piece * wide..][..qkv.len()]);
        let groups = queries.chunks_exact(columns.queries.len()).zip(keys.chunks_exact(columns.keys.len()));
        for (group, (qkv, (queries, keys))) in qkv.chunks_exact_mut(columns.all).zip(groups).enumerate() {
            qkv[columns.queries.clone()].copy_from_slice(queries);
            qkv[columns.keys.clone()].copy_from_slice(keys);
            if let Some(beside) = beside {
                let values = columns.keys.end..columns.all;
                qkv[values.clone()].copy_from_slice(&beside[group * columns.all..][values]);
            }
        }
    });
}

/// Columns of a group.
struct Columns {
    all: usize,
    queries: Range<usize>,
    keys: Range<usize>,
}

impl Columns {
    /// Of what has so many elements: queries, keys and values, queries, and keys. None if there are none.
    fn of(shape: GroupShape, elements: [usize; 3]) -> Option<Self> {
        let GroupShape { rows, groups, heads, head_dim: d, .. } = shape;
        let columns = Self { all: shape.group(), queries: 0..heads * d, keys: heads * d..(heads + 1) * d };
        let expected = [columns.all, columns.queries.len(), d].map(|each| rows * groups * each);
        assert_eq!(elements, expected, "queries, keys and values of {shape:?}");
        (d > 0 && heads > 0).then_some(columns)
    }

    /// Elements of queries, keys and values, of queries and of keys in a piece of work.
    fn pieces(&self, pool: &Pool, shape: GroupShape) -> [usize; 3] {
        let groups = pool.rows_per_piece(shape.rows * shape.groups, self.all);
        [self.all, self.queries.len(), self.keys.len()].map(|each| groups * each)
    }
}
