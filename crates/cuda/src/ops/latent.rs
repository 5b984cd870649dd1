//! Queries, keys and values of latent attention, put beside each other.

use quadrille_tensor::LatentShape;

use super::indices::fields;
use crate::array::Array;
use crate::queue::{Done, Queue};
use crate::words::{Argument, words};

fields! {
    LatentShape: rows heads head_dim value_dim shared;
}

/// Asserts lengths; returns the elements of `qkv`.
fn check(shape: LatentShape, queries: Array, pairs: Array, shared: Array, qkv: Array) -> usize {
    let LatentShape { rows, heads, head_dim: d, value_dim: v, shared: k } = shape;
    let sizes = [rows * heads * d, rows * heads * (d - k + v), rows * k, rows * heads * (2 * d + v)];
    assert_eq!(
        [queries, pairs, shared, qkv].map(|array| (array.len, array.element)),
        sizes.map(|len| (len, qkv.element))
    );
    qkv.len
}

impl Queue<'_> {
    /// See [`quadrille_tensor::join_latent`].
    pub fn join_latent(&self, shape: LatentShape, queries: Array, pairs: Array, shared: Array, qkv: Array) -> Done {
        let elements = check(shape, queries, pairs, shared, qkv);
        self.each("join_latent", qkv.element.format(), elements, &words![shape, queries, pairs, shared, qkv])
    }

    /// See [`quadrille_tensor::split_latent`].
    pub fn split_latent(
        &self,
        shape: LatentShape,
        dqkv: Array,
        dqueries: Array,
        dpairs: Array,
        dshared: Array,
    ) -> Done {
        let format = dqkv.element.format();
        let elements = check(shape, dqueries, dpairs, dshared, dqkv);
        self.each("split_latent", format, elements, &words![shape, dqkv, dqueries, dpairs])?;
        self.each("split_latent_shared", format, dshared.len, &words![shape, dqkv, dshared])
    }
}
