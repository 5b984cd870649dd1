//! Which shapes of attention tensor cores compute, and how their kernels are started.

use quadrille_tensor::AttentionShape;

use crate::array::{Array, Element};
use crate::queue::{Done, Queue};

/// Rows of a block's tile (`OF_BLOCK` of `attention_tiles.cuh`).
const OF_BLOCK: usize = 128;
/// Keys of a tile that passes, and elements of a tile of queries that does.
const KEYS: usize = 64;
const OF_QUERIES: usize = 4096;

/// A kernel, and bytes that its block shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kernel {
    name: &'static str,
    shared: usize,
}

/// The kernels for heads of at most so many columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tiles {
    forward: Kernel,
    queries: Kernel,
    keys: Kernel,
    columns: usize,
}

/// By warps, by the columns, ascending.
const BY_WARPS: [Tiles; 2] = [
    by_warps(64, ["attention_forward_64", "attention_backward_queries_64", "attention_backward_keys_64"]),
    by_warps(128, ["attention_forward_128", "attention_backward_queries_128", "attention_backward_keys_128"]),
];
/// By warpgroups, likewise.
const BY_GROUPS: [Tiles; 2] = [
    by_groups(
        64,
        ["attention_forward_64_wgmma", "attention_backward_queries_64_wgmma", "attention_backward_keys_64_wgmma"],
    ),
    by_groups(
        128,
        ["attention_forward_128_wgmma", "attention_backward_queries_128_wgmma", "attention_backward_keys_128_wgmma"],
    ),
];

/// Bytes of so many rows of 16 bits.
const fn bytes(rows: usize, columns: usize) -> usize {
    rows * columns * Element::Bf16.bytes()
}

const fn by_warps(columns: usize, [forward, queries, keys]: [&'static str; 3]) -> Tiles {
    // Twice a tile of queries and gradients, with two sums of each query.
    let rows = OF_QUERIES / columns;
    let passing = bytes(4 * rows, columns) + 4 * rows * Element::F32.bytes();
    Tiles {
        forward: Kernel { name: forward, shared: bytes(4 * KEYS, columns) },
        queries: Kernel { name: queries, shared: bytes(6 * KEYS, columns) },
        keys: Kernel { name: keys, shared: bytes(2 * OF_BLOCK, columns) + passing },
        columns,
    }
}

/// As many keys as columns pass at a time, forward; backward it is 64 keys or queries.
const fn by_groups(columns: usize, [forward, queries, keys]: [&'static str; 3]) -> Tiles {
    let backward = bytes(2 * OF_BLOCK + 4 * KEYS, columns);
    Tiles {
        forward: Kernel { name: forward, shared: bytes(OF_BLOCK + 4 * columns, columns) },
        queries: Kernel { name: queries, shared: backward },
        keys: Kernel { name: keys, shared: backward + 4 * KEYS * Element::F32.bytes() },
        columns,
    }
}

impl Tiles {
    /// The kernels for a shape, if there are any: those of values in 16 bits whose rows are copied 16 bytes at a time.
    /// Maxima are taken of products before they are scaled.
    pub(super) fn of(shape: AttentionShape, element: Element, wgmma: bool) -> Option<Self> {
        let AttentionShape { head_dim, value_dim, seq_len, scale, .. } = shape;
        let fit = [head_dim, value_dim].iter().all(|columns| columns.is_multiple_of(16));
        let fit = fit && element == Element::Bf16 && scale > 0.0 && seq_len < 1 << 30;
        (if wgmma { BY_GROUPS } else { BY_WARPS })
            .into_iter()
            .find(|tiles| fit && head_dim.max(value_dim) <= tiles.columns)
    }

    pub(super) fn forward(self, queue: &Queue<'_>, shape: AttentionShape, words: &[u64]) -> Done {
        self.forward.run(queue, blocks_of_queries(shape), words)
    }

    pub(super) fn backward_queries(self, queue: &Queue<'_>, shape: AttentionShape, words: &[u64]) -> Done {
        self.queries.run(queue, blocks_of_queries(shape), words)
    }

    pub(super) fn backward_keys(self, queue: &Queue<'_>, shape: AttentionShape, words: &[u64]) -> Done {
        self.keys.run(queue, shape.sequences * shape.kv_heads * shape.seq_len.div_ceil(OF_BLOCK), words)
    }
}

impl Kernel {
    fn run(self, queue: &Queue<'_>, blocks: usize, words: &[u64]) -> Done {
        queue.each_by_block(self.name, Element::Bf16.format(), blocks, self.shared, words)
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
