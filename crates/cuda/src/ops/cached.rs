//! Attention to keys and values of earlier passes, for generation.

use quadrille_tensor::{AttentionShape, CacheShape, ContextPart};

use crate::array::{Array, Element};
use crate::queue::{Done, Queue};
use crate::words::words;

/// Bytes of scratch that a pass needs.
pub fn cached_scratch(shape: CacheShape, element: Element) -> usize {
    let rows = shape.sequences * shape.tokens * shape.heads;
    rows * shape.capacity.max(1) * element.real().bytes()
}

/// Checks what both kernels share; returns the words of their `Cache`.
fn describe(shape: CacheShape, starts: Array, qkv: Array, cache: Array) -> Vec<u64> {
    let CacheShape { sequences, tokens, capacity, heads, kv_heads, head_dim: d, value_dim: v, .. } = shape;
    assert!(heads.is_multiple_of(kv_heads), "groups of {shape:?}");
    assert_eq!((starts.len, starts.element), (sequences, Element::U32), "starts of {shape:?}");
    assert_eq!(qkv.len, sequences * tokens * (heads * d + kv_heads * (d + v)), "qkv of {shape:?}");
    assert_eq!((cache.len, cache.element), (shape.elements(), qkv.element), "cache of {shape:?}");
    let window = shape.window.unwrap_or(0);
    let cap = shape.cap.unwrap_or(0.0);
    let scale = shape.scale / (d as f64).sqrt();
    words![sequences, tokens, capacity, heads, kv_heads, d, v, window, scale, cap]
}

impl Queue<'_> {
    /// See [`quadrille_tensor::store_keys_values`]; `starts` are `u32`.
    pub fn store_keys_values(&self, shape: CacheShape, starts: Array, qkv: Array, cache: Array) -> Done {
        let words = [describe(shape, starts, qkv, cache), words![starts, qkv, cache]].concat();
        let pair = shape.head_dim + shape.value_dim;
        let elements = shape.sequences * shape.tokens * shape.kv_heads * pair;
        self.each("store_keys_values", qkv.element.format(), elements, &words)
    }

    /// See [`quadrille_tensor::cached_attention`]; `starts` are `u32`, and `first` says that all of them are 0: then several
    /// tokens attend to each other, not to the cache.
    pub fn cached_attention(
        &self,
        shape: CacheShape,
        starts: Array,
        first: bool,
        qkv: Array,
        cache: Array,
        out: Array,
    ) -> Done {
        let described = describe(shape, starts, qkv, cache);
        let rows = shape.sequences * shape.tokens * shape.heads;
        assert_eq!((out.len, out.element), (rows * shape.value_dim, qkv.element), "output of {shape:?}");
        if first && shape.tokens > 1 {
            let log_sum_exp = self.scratch(rows, qkv.element.real());
            return self.attention_forward(of_first(shape), qkv, None, out, log_sum_exp, None);
        }
        let scores = self.scratch(rows * shape.capacity, qkv.element.real());
        let words = [described, words![starts, qkv, cache, scores, out]].concat();
        self.each_by_warp("cached_attention", qkv.element.format(), rows, &words)
    }

    /// See [`quadrille_tensor::newest_rows`]; `newest` are `u32`.
    pub fn newest_rows(&self, cols: usize, tokens: usize, newest: Array, x: Array, y: Array) -> Done {
        let sequences = newest.len;
        assert_eq!((x.len, y.len), (sequences * tokens * cols, sequences * cols));
        assert_eq!((x.element, newest.element), (y.element, Element::U32));
        self.each("newest_rows", y.element.format(), y.len, &words![newest, x, y, sequences, tokens, cols])
    }
}

/// A first pass: attention among its tokens, as in training.
fn of_first(shape: CacheShape) -> AttentionShape {
    let CacheShape { sequences, tokens, heads, kv_heads, head_dim, value_dim, window, scale, cap, .. } = shape;
    let seq_len = tokens;
    let context = ContextPart::WHOLE;
    let causal = true;
    AttentionShape { sequences, seq_len, context, heads, kv_heads, head_dim, value_dim, causal, window, scale, cap }
}
