//! Which shapes of attention tensor cores compute, and how their kernels are started.

use quadrille_tensor::AttentionShape;

use crate::array::{Array, Element};
use crate::queue::{Done, Queue};

/// Rows of a block's tile (`OF_BLOCK` of `attention_tiles.cuh`).
const OF_BLOCK: usize = 128;
/// Keys of a tile that passes, and elements of a tile of queries that does.
const KEYS: usize = 64;
const OF_QUERIES: usize = 4096;

/// The kernels for heads of at most so many columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tiles {
    forward: &'static str,
    queries: &'static str,
    keys: &'static str,
    columns: usize,
}

/// By the columns, ascending.
const TILES: [Tiles; 2] = [
    Tiles {
        forward: "attention_forward_64",
        queries: "attention_backward_queries_64",
        keys: "attention_backward_keys_64",
        columns: 64,
    },
    Tiles {
        forward: "attention_forward_128",
        queries: "attention_backward_queries_128",
        keys: "attention_backward_keys_128",
        columns: 128,
    },
];

impl Tiles {
    /// The kernels for a shape, if there are any: those of values in 16 bits whose rows are copied 16 bytes at a time.
    /// Maxima are taken of products before they are scaled.
    pub(super) fn of(shape: AttentionShape, element: Element) -> Option<Self> {
        let AttentionShape { head_dim, value_dim, seq_len, scale, .. } = shape;
        let fit = [head_dim, value_dim].iter().all(|columns| columns.is_multiple_of(16));
        let fit = fit && element == Element::Bf16 && scale > 0.0 && seq_len < 1 << 30;
        TILES.into_iter().find(|tiles| fit && head_dim.max(value_dim) <= tiles.columns)
    }

    pub(super) fn forward(self, queue: &Queue<'_>, shape: AttentionShape, words: &[u64]) -> Done {
        let shared = 4 * KEYS * self.columns * Element::Bf16.bytes();
        queue.each_by_block(self.forward, Element::Bf16.format(), blocks_of_queries(shape), shared, words)
    }

    pub(super) fn backward_queries(self, queue: &Queue<'_>, shape: AttentionShape, words: &[u64]) -> Done {
        let shared = 6 * KEYS * self.columns * Element::Bf16.bytes();
        queue.each_by_block(self.queries, Element::Bf16.format(), blocks_of_queries(shape), shared, words)
    }

    pub(super) fn backward_keys(self, queue: &Queue<'_>, shape: AttentionShape, words: &[u64]) -> Done {
        let blocks = shape.sequences * shape.kv_heads * shape.seq_len.div_ceil(OF_BLOCK);
        // Keys and values of the block; twice a tile of queries and gradients, with two sums of each query.
        let queries = 2 * OF_QUERIES * Element::Bf16.bytes() + 2 * OF_QUERIES / self.columns * Element::F32.bytes();
        let shared = 2 * OF_BLOCK * self.columns * Element::Bf16.bytes() + 2 * queries;
        queue.each_by_block(self.keys, Element::Bf16.format(), blocks, shared, words)
    }
}

fn blocks_of_queries(shape: AttentionShape) -> usize {
    shape.sequences * shape.heads * shape.context.tokens(shape.seq_len).div_ceil(OF_BLOCK)
}

/// Asserts that rows of arrays can be copied 16 bytes at a time.
///
/// # Panics
/// If an array begins between.
pub(super) fn check_alignment(arrays: &[Array]) {
    assert!(
        arrays.iter().all(|array| array.at.0.is_multiple_of(16)),
        "arrays begin at multiples of 16 bytes: {arrays:?}"
    );
}
