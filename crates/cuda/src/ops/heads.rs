//! The queries of all heads apart from their keys and values, and the keys: what is normed together.

use quadrille_tensor::GroupShape;

use crate::array::Array;
use crate::queue::{Done, Queue};
use crate::words::words;

/// Checks lengths; returns the words of the kernels' `Heads`.
fn describe(shape: GroupShape, queries: Array, keys: Array, qkv: Array) -> Vec<u64> {
    let units = shape.rows * shape.groups;
    let d = shape.head_dim;
    let expected = [shape.queries(), d, shape.group()].map(|cols| (units * cols, qkv.element));
    assert_eq!([queries, keys, qkv].map(|array| (array.len, array.element)), expected, "{shape:?}");
    words![units, shape.queries(), d, shape.group()]
}

impl Queue<'_> {
    /// See [`quadrille_tensor::split_heads`].
    pub fn split_heads(&self, shape: GroupShape, qkv: Array, queries: Array, keys: Array) -> Done {
        let words = [describe(shape, queries, keys, qkv), words![qkv, queries, keys]].concat();
        self.each("split_heads", qkv.element.format(), queries.len + keys.len, &words)
    }

    /// See [`quadrille_tensor::join_heads`].
    pub fn join_heads(
        &self,
        shape: GroupShape,
        queries: Array,
        keys: Array,
        beside: Option<Array>,
        qkv: Array,
    ) -> Done {
        assert!(beside.is_none_or(|beside| (beside.len, beside.element) == (qkv.len, qkv.element)), "{beside:?}");
        let words = [describe(shape, queries, keys, qkv), words![queries, keys, beside, qkv]].concat();
        self.each("join_heads", qkv.element.format(), qkv.len, &words)
    }
}
