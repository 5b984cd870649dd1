//! Attention.

use quadrille_tensor::AttentionShape;

use super::attention_tiles::{Tiles, check_alignment};
use super::indices::AttentionMask;
use crate::array::{Array, Element};
use crate::queue::{Done, Queue};
use crate::words::words;

/// The most columns of a query, a key or a value (`MOST_COLUMNS` of `attention.cuh`).
const MOST_COLUMNS: usize = 256;

/// Bytes of scratch that the backward pass needs.
pub fn attention_scratch(shape: AttentionShape, element: Element) -> usize {
    shape.rows() * shape.heads * element.real().bytes()
}

/// Checks what both directions share; returns the words of the kernels' `Attention`.
fn describe(shape: AttentionShape, qkv: Array, kv: Option<Array>, out: Array, log_sum_exp: Array) -> Vec<u64> {
    let AttentionShape { sequences, seq_len, context, heads, kv_heads, head_dim: d, value_dim: v, .. } = shape;
    assert!(d <= MOST_COLUMNS && v <= MOST_COLUMNS, "{shape:?}: heads have at most {MOST_COLUMNS} columns");
    assert!(shape.window.is_none_or(|window| shape.causal && window > 0), "window of {shape:?}");
    assert!(heads.is_multiple_of(kv_heads), "groups of {shape:?}");
    let chunks = if context.parts == 1 { 1 } else { 2 * context.parts };
    assert!(context.part < context.parts && seq_len.is_multiple_of(chunks), "{seq_len} tokens in {chunks} chunks");
    assert!(kv.is_some() || context.parts == 1, "a part attends to gathered keys and values");
    let rows = shape.rows();
    let real = qkv.element.real();
    assert_eq!(qkv.len, rows * (heads * d + kv_heads * (d + v)), "qkv of {shape:?}");
    assert_eq!((out.len, out.element), (rows * heads * v, qkv.element), "output of {shape:?}");
    assert_eq!((log_sum_exp.len, log_sum_exp.element), (rows * heads, real), "log_sum_exp of {shape:?}");
    let of_kv = kv.map(|kv| (kv.len, kv.element));
    assert!(of_kv.is_none_or(|of| of == (sequences * seq_len * kv_heads * (d + v), qkv.element)), "kv of {shape:?}");
    // As it is computed with: rounded where the processor's kernel rounds.
    let scale = match real {
        Element::F32 => f64::from(shape.scale as f32 / (d as f32).sqrt()),
        _ => shape.scale / (d as f64).sqrt(),
    };
    let window = shape.window.unwrap_or(0);
    let cap = shape.cap.unwrap_or(0.0);
    let of_shape = words![sequences, seq_len, context, heads, kv_heads, d, v, shape.causal, window, scale, cap];
    [of_shape, words![kv.is_some(), context.tokens(seq_len), seq_len / chunks, heads / kv_heads]].concat()
}

/// The operands of the backward pass that it shares with the forward pass, and the gradient of the result.
#[derive(Debug, Clone, Copy)]
pub struct Saved {
    /// Queries, keys and values.
    pub qkv: Array,
    /// Keys and values of all parts, in place of those of `qkv`.
    pub keys_values: Option<Array>,
    /// The result.
    pub out: Array,
    /// The logarithms of the softmax' denominators.
    pub log_sum_exp: Array,
    /// The gradient of `out`.
    pub dout: Array,
}

impl Queue<'_> {
    /// See [`quadrille_tensor::attention_forward`].
    pub fn attention_forward(
        &self,
        shape: AttentionShape,
        qkv: Array,
        keys_values: Option<Array>,
        out: Array,
        log_sum_exp: Array,
        mask: Option<&AttentionMask>,
    ) -> Done {
        let described = describe(shape, qkv, keys_values, out, log_sum_exp);
        let mask = mask.copied().unwrap_or(AttentionMask::NONE);
        let words = [described, words![mask, qkv, keys_values.unwrap_or(qkv), out, log_sum_exp]].concat();
        match Tiles::of(shape, qkv.element, self.wgmma()) {
            Some(tiles) => {
                check_alignment(&[qkv, keys_values.unwrap_or(qkv), out]);
                tiles.forward(self, shape, &words)
            }
            None => self.each_by_warp("attention_forward", qkv.element.format(), log_sum_exp.len, &words),
        }
    }

    /// See [`quadrille_tensor::attention_backward`]; `dkv` is there if there are `keys_values`.
    pub fn attention_backward(
        &self,
        shape: AttentionShape,
        saved: Saved,
        dqkv: Array,
        dkv: Option<Array>,
        mask: Option<&AttentionMask>,
    ) -> Done {
        let Saved { qkv, keys_values, out, log_sum_exp, dout } = saved;
        let described = describe(shape, qkv, keys_values, out, log_sum_exp);
        let kind = |array: Array| (array.len, array.element);
        assert_eq!([kind(dqkv), kind(dout)], [kind(qkv), kind(out)]);
        assert_eq!(dkv.map(kind), keys_values.map(kind));
        let mask = mask.copied().unwrap_or(AttentionMask::NONE);
        let format = qkv.element.format();
        let dots = self.scratch(log_sum_exp.len, log_sum_exp.element);
        let saved = words![qkv, keys_values.unwrap_or(qkv), dout, log_sum_exp, dots];
        let words = |to: Array| [described.clone(), words![mask], saved.clone(), words![to]].concat();
        let of_dots = [described.clone(), words![out, dout, dots]].concat();
        self.each_by_warp("attention_row_dots", format, dots.len, &of_dots)?;
        if let Some(tiles) = Tiles::of(shape, qkv.element, self.wgmma()) {
            check_alignment(&[qkv, keys_values.unwrap_or(qkv), dout, dqkv, dkv.unwrap_or(dqkv)]);
            tiles.backward_queries(self, shape, &words(dqkv))?;
            return tiles.backward_keys(self, shape, &words(dkv.unwrap_or(dqkv)));
        }
        self.each_by_warp("attention_backward_queries", format, dots.len, &words(dqkv))?;
        let keys = shape.sequences * shape.kv_heads * shape.seq_len;
        self.each_by_warp("attention_backward_keys", format, keys, &words(dkv.unwrap_or(dqkv)))
    }
}
