//! Queries, keys and values of latent attention, put beside each other.

use quadrille_tensor::JoinShape;

use super::indices::fields;
use crate::array::Array;
use crate::driver::Driver;
use crate::queue::{Done, Queue};
use crate::words::{Argument, words};

fields! {
    JoinShape: rows heads head_dim value_dim shared;
}

/// Asserts lengths; returns the elements of `qkv`.
fn check(shape: JoinShape, queries: Array, pairs: Array, shared: Array, qkv: Array) -> usize {
    let JoinShape { rows, heads, head_dim: d, value_dim: v, shared: k } = shape;
    let sizes = [rows * heads * d, rows * heads * (d - k + v), rows * k, rows * heads * (2 * d + v)];
    assert_eq!([queries, pairs, shared, qkv].map(|array| (array.len, array.element)), sizes.map(|len| (len, qkv.element)));
    qkv.len
}

impl<D: Driver> Queue<'_, D> {
    /// See [`quadrille_tensor::join_heads`].
    pub fn join_heads(&self, shape: JoinShape, queries: Array, pairs: Array, shared: Array, qkv: Array) -> Done {
        let elements = check(shape, queries, pairs, shared, qkv);
        self.each("join_heads", qkv.element.format(), elements, &words![shape, queries, pairs, shared, qkv])
    }

    /// See [`quadrille_tensor::split_heads`].
    pub fn split_heads(&self, shape: JoinShape, dqkv: Array, dqueries: Array, dpairs: Array, dshared: Array) -> Done {
        let (format, elements) = (dqkv.element.format(), check(shape, dqueries, dpairs, dshared, dqkv));
        self.each("split_heads", format, elements, &words![shape, dqkv, dqueries, dpairs])?;
        self.each("split_shared", format, dshared.len, &words![shape, dqkv, dshared])
    }
}
