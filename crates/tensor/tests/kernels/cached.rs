use crate::support::{assert_close, on_any_threads, random};
use quadrille_tensor::*;

const WHOLE: ContextPart = ContextPart::WHOLE;

/// Sequences of unequal length come in passes of `tokens`; the whole sequences' attention is the training kernel's.
fn check<T: Element>(
    [heads, kv_heads, head_dim, value_dim]: [usize; 4],
    capacity: usize,
    tokens: usize,
    (window, cap): (Option<usize>, Option<f64>),
) {
    let scale = if cap.is_some() { 0.6 } else { 1.0 };
    let lengths = [capacity, capacity / 2 + 1, 1];
    let cols = heads * head_dim + kv_heads * (head_dim + value_dim);
    let width = heads * value_dim;
    let whole = random::<T>(1, lengths.len() * capacity * cols);
    let shape = AttentionShape {
        sequences: lengths.len(),
        seq_len: capacity,
        context: WHOLE,
        heads,
        kv_heads,
        head_dim,
        value_dim,
        causal: true,
        window,
        scale,
        cap,
    };
    let mut expected = vec![T::ZERO; shape.rows() * width];
    let mut lse = vec![T::ZERO; shape.rows() * heads];
    attention_forward(&Pool::new(1), shape, &whole, None, &mut expected, &mut lse, None);

    let sequences = lengths.len();
    let shape = CacheShape { sequences, tokens, capacity, heads, kv_heads, head_dim, value_dim, window, scale, cap };
    let run = |pool: &Pool| {
        // Whatever lies where nothing was stored must not be read.
        let mut cache = vec![T::from_f64(f64::NAN); shape.elements()];
        let mut gathered = vec![T::ZERO; lengths.len() * capacity * width];
        for pass in 0..capacity.div_ceil(tokens) {
            let starts = lengths.map(|length| (pass * tokens).min(length));
            // Rows beyond a sequence's end are padding.
            let mut qkv = vec![T::from_f64(7.0); lengths.len() * tokens * cols];
            let mut rows = Vec::new();
            for (sequence, length) in lengths.iter().enumerate() {
                for token in 0..tokens.min(length - starts[sequence]) {
                    let from = sequence * capacity + starts[sequence] + token;
                    let to = sequence * tokens + token;
                    qkv[to * cols..(to + 1) * cols].copy_from_slice(&whole[from * cols..(from + 1) * cols]);
                    rows.push((from, to));
                }
            }
            let mut out = vec![T::from_f64(f64::NAN); lengths.len() * tokens * width];
            store_keys_values(pool, shape, &starts, &qkv, &mut cache);
            cached_attention(pool, shape, &starts, &qkv, &cache, &mut out);
            for (to, from) in rows {
                gathered[to * width..(to + 1) * width].copy_from_slice(&out[from * width..(from + 1) * width]);
            }
        }
        gathered
    };
    let found = on_any_threads(run);
    for (sequence, length) in lengths.iter().enumerate() {
        let rows = sequence * capacity * width..(sequence * capacity + length) * width;
        let exact: Vec<f64> = expected[rows.clone()].iter().map(|x| x.to_f64()).collect();
        let what = format!("sequence {sequence} of {shape:?}");
        assert_close(&what, &found[rows], &exact);
    }
}

#[test]
fn cached_attention_is_attention() {
    for sizes in [[1, 1, 1, 1], [2, 2, 5, 5], [6, 2, 8, 8], [4, 1, 16, 16], [3, 3, 64, 64], [4, 2, 6, 3], [2, 2, 3, 7]]
    {
        for (capacity, tokens) in
            [(1, 1), (7, 1), (7, 3), (31, 1), (32, 5), (33, 1), (64, 16), (70, 1), (70, 70), (97, 40)]
        {
            check::<f64>(sizes, capacity, tokens, (None, None));
            check::<f32>(sizes, capacity, tokens, (None, None));
            check::<f64>(sizes, capacity, tokens, (Some(1 + capacity / 3), Some(1.5)));
        }
    }
}

#[test]
fn every_position_in_the_cache_matters() {
    let shape = CacheShape {
        sequences: 1,
        tokens: 1,
        capacity: 40,
        heads: 2,
        kv_heads: 1,
        head_dim: 4,
        value_dim: 4,
        window: None,
        scale: 1.0,
        cap: None,
    };
    let pool = Pool::new(1);
    let cols = 16;
    let filled = |skipped: Option<usize>| {
        let mut cache = vec![0.0; shape.elements()];
        for position in (0..39).filter(|position| Some(*position) != skipped) {
            store_keys_values(&pool, shape, &[position], &random::<f64>(position as u64, cols), &mut cache);
        }
        let query = random::<f64>(99, cols);
        let mut out = vec![0.0; 8];
        store_keys_values(&pool, shape, &[39], &query, &mut cache);
        cached_attention(&pool, shape, &[39], &query, &cache, &mut out);
        out
    };
    let whole = filled(None);
    for position in 0..39 {
        let without = filled(Some(position));
        let gap = whole.iter().zip(&without).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(gap > 1e-6, "position {position}: {gap}");
    }
}
