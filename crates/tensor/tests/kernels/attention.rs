use crate::support::{assert_close, assert_gradient, dot, on_any_threads, random, wide};
use quadrille_tensor::*;

const WHOLE: ContextPart = ContextPart::WHOLE;

fn keep(sequence: usize, head: usize, query: usize, key: usize) -> bool {
    (sequence * 3 + head * 5 + query * 7 + key * 11) % 4 != 1
}

/// Columns of the queries that share a key, the key and the value.
fn group(shape: AttentionShape) -> usize {
    (shape.heads / shape.kv_heads + 1) * shape.head_dim + shape.value_dim
}

/// Where a row of `qkv` has of a head: part 0, its query; 1 and 2, the key and the value of its group.
fn place(shape: AttentionShape, row: usize, head: usize, part: usize) -> usize {
    let AttentionShape { heads, kv_heads, head_dim, .. } = shape;
    let shared = heads / kv_heads;
    let block = if part == 0 { head % shared } else { shared + part - 1 };
    (row * kv_heads + head / shared) * group(shape) + block * head_dim
}

/// The keys that a query sees.
fn seen(shape: AttentionShape, query: usize) -> std::ops::Range<usize> {
    let end = if shape.causal { query + 1 } else { shape.seq_len };
    end.saturating_sub(shape.window.unwrap_or(end))..end
}

/// A score under the soft cap, and the cap's derivative there.
fn capped(shape: AttentionShape, score: f64) -> (f64, f64) {
    let Some(cap) = shape.cap else { return (score, 1.0) };
    let tanh = (score / cap).tanh();
    (cap * tanh, 1.0 - tanh * tanh)
}

/// The gradient of `qkv` by loops over every score.
fn plain_gradient(shape: AttentionShape, qkv: &[f64], dout: &[f64], dropout: bool) -> Vec<f64> {
    let AttentionShape { sequences, seq_len, heads, head_dim: d, value_dim, .. } = shape;
    let mut gradient = vec![0.0; qkv.len()];
    let scale = shape.scale / (d as f64).sqrt();
    for (sequence, head) in (0..sequences).flat_map(|s| (0..heads).map(move |h| (s, h))) {
        for query in 0..seq_len {
            let row = sequence * seq_len + query;
            let q = place(shape, row, head, 0);
            let dout = &dout[(row * heads + head) * value_dim..][..value_dim];
            let keys: Vec<[usize; 2]> = seen(shape, query)
                .map(|key| [1, 2].map(|part| place(shape, sequence * seq_len + key, head, part)))
                .collect();
            let weights: Vec<f64> =
                keys.iter().map(|[k, _]| capped(shape, dot(&qkv[q..q + d], &qkv[*k..k + d]) * scale).0.exp()).collect();
            let sum: f64 = weights.iter().sum();
            let first = seen(shape, query).start;
            let factor = |key: usize| {
                if dropout { 4.0 / 3.0 * f64::from(keep(sequence, head, query, first + key)) } else { 1.0 }
            };
            let slopes: Vec<f64> =
                keys.iter().enumerate().map(|(key, [_, v])| factor(key) * dot(dout, &qkv[*v..v + value_dim])).collect();
            let mean = dot(&weights, &slopes) / sum;
            for (key, [k, v]) in keys.iter().enumerate() {
                let p = weights[key] / sum;
                let slope = capped(shape, dot(&qkv[q..q + d], &qkv[*k..k + d]) * scale).1;
                let score = p * (slopes[key] - mean) * scale * slope;
                for i in 0..d {
                    gradient[q + i] += score * qkv[k + i];
                    gradient[k + i] += score * qkv[q + i];
                }
                for i in 0..value_dim {
                    gradient[v + i] += p * factor(key) * dout[i];
                }
            }
        }
    }
    gradient
}

/// Attention by loops, storing every score: out and log_sum_exp.
fn plain(shape: AttentionShape, qkv: &[f64], dropout: bool) -> (Vec<f64>, Vec<f64>) {
    let AttentionShape { sequences, seq_len, heads, head_dim, value_dim, .. } = shape;
    let at = |row: usize, head: usize, part: usize, i: usize| qkv[place(shape, row, head, part) + i];
    let mut out = vec![0.0; shape.rows() * heads * value_dim];
    let mut lse = vec![0.0; shape.rows() * heads];
    for (sequence, head) in (0..sequences).flat_map(|s| (0..heads).map(move |h| (s, h))) {
        for query in 0..seq_len {
            let row = sequence * seq_len + query;
            let keys = seen(shape, query);
            let score = |key: usize| {
                let key = sequence * seq_len + key;
                let score = (0..head_dim).map(|i| at(row, head, 0, i) * at(key, head, 1, i)).sum::<f64>();
                capped(shape, shape.scale * score / (head_dim as f64).sqrt()).0
            };
            let sum: f64 = keys.clone().map(|key| score(key).exp()).sum();
            lse[row * heads + head] = sum.ln();
            for key in keys.filter(|key| !dropout || keep(sequence, head, query, *key)) {
                let p = score(key).exp() / sum * if dropout { 4.0 / 3.0 } else { 1.0 };
                for i in 0..value_dim {
                    out[(row * heads + head) * value_dim + i] += p * at(sequence * seq_len + key, head, 2, i);
                }
            }
        }
    }
    (out, lse)
}

fn check<T: Element>(shape: AttentionShape, dropout: bool) {
    let rows = shape.rows();
    let width = shape.heads * shape.value_dim;
    let three = T::from_f64(3.0);
    let qkv: Vec<T> = random::<T>(1, rows * shape.kv_heads * group(shape)).iter().map(|x| *x * three).collect();
    let dout = random::<T>(2, rows * width);
    let run = |pool: &Pool| {
        let dropout: Option<AttentionDropout<'_, T>> = dropout.then_some((T::from_f64(4.0 / 3.0), &keep));
        let mut out = vec![T::ZERO; rows * width];
        let mut lse = vec![T::ZERO; rows * shape.heads];
        let mut dqkv = vec![T::ZERO; qkv.len()];
        attention_forward(pool, shape, &qkv, None, &mut out, &mut lse, dropout);
        attention_backward(pool, shape, &qkv, None, &out, &lse, &dout, &mut dqkv, dropout);
        [out, lse, dqkv].concat()
    };
    let all = on_any_threads(run);
    let (out, rest) = all.split_at(rows * width);
    let (lse, dqkv) = rest.split_at(rows * shape.heads);
    let what = format!("{shape:?} dropout {dropout}");
    let exact = plain(shape, &wide(&qkv), dropout);
    assert_close(&format!("out of {what}"), out, &exact.0);
    assert_close(&format!("lse of {what}"), lse, &exact.1);
    if T::NAME == "f64" && dqkv.len() < 700 {
        let loss = |qkv: &[f64]| dot(&plain(shape, qkv, dropout).0, &wide(&dout));
        assert_gradient(&what, &wide(&qkv), &wide(dqkv), loss);
    }
    assert_close(&what, dqkv, &plain_gradient(shape, &wide(&qkv), &wide(&dout), dropout));
}

#[test]
fn attention_equals_loops_and_differences() {
    let sizes = [
        (1, 1, [1, 1], 1),
        (2, 3, [2, 2], 5),
        (1, 17, [2, 2], 3),
        (1, 70, [1, 1], 2),
        (2, 130, [3, 3], 16),
        (1, 64, [1, 1], 64),
        (3, 65, [2, 2], 20),
        // Around the padding to 16, the tiles of 64 and what registers hold of columns.
        (1, 15, [1, 1], 17),
        (2, 16, [1, 1], 15),
        (1, 63, [1, 1], 33),
        (1, 127, [1, 1], 65),
        (1, 128, [2, 2], 16),
        (1, 129, [1, 1], 80),
        // Several heads share a key.
        (1, 1, [2, 1], 1),
        (2, 5, [6, 2], 3),
        (1, 19, [4, 1], 4),
        (2, 130, [6, 3], 16),
    ];
    for (sequences, seq_len, [heads, kv_heads], head_dim) in sizes {
        for (causal, dropout) in [(true, false), (false, false), (true, true), (false, true)] {
            let shape = AttentionShape {
                sequences,
                seq_len,
                context: WHOLE,
                heads,
                kv_heads,
                head_dim,
                value_dim: head_dim,
                causal,
                window: None,
                scale: 1.0,
                cap: None,
            };
            // Values as wide as keys, narrower and wider.
            for value_dim in [head_dim, head_dim.div_ceil(2), head_dim + 5] {
                check::<f32>(AttentionShape { value_dim, ..shape }, dropout);
                check::<f64>(AttentionShape { value_dim, ..shape }, dropout);
            }
        }
    }
}

#[test]
fn windows_scales_and_caps_equal_loops_and_differences() {
    // Windows of one key, within a tile, of a tile and its neighbours, over tiles, and longer than the sequence.
    let windows = [(5, 1), (5, 3), (70, 1), (70, 7), (130, 63), (130, 64), (130, 65), (200, 100), (65, 66)];
    for (seq_len, window) in windows {
        for (cap, dropout) in [(None, false), (Some(1.5), false), (Some(0.5), true), (None, true)] {
            let context = WHOLE;
            let window = Some(window);
            let shape = AttentionShape {
                sequences: 2,
                seq_len,
                context,
                heads: 4,
                kv_heads: 2,
                head_dim: 3,
                value_dim: 4,
                causal: true,
                window,
                scale: if dropout { 1.0 } else { 1.7 },
                cap,
            };
            check::<f32>(shape, dropout);
            check::<f64>(shape, dropout);
        }
    }
    let context = WHOLE;
    let window = None;
    let cap = Some(2.0);
    let shape = AttentionShape {
        sequences: 1,
        seq_len: 9,
        context,
        heads: 2,
        kv_heads: 1,
        head_dim: 2,
        value_dim: 3,
        causal: false,
        window,
        scale: 0.6,
        cap,
    };
    check::<f64>(shape, false);
}

#[test]
fn scores_far_apart_do_not_overflow() {
    let shape = AttentionShape {
        sequences: 1,
        seq_len: 100,
        context: WHOLE,
        heads: 1,
        kv_heads: 1,
        head_dim: 1,
        value_dim: 1,
        causal: true,
        window: None,
        scale: 1.0,
        cap: None,
    };
    // Token t: query 100, key t, value t: each attends to itself almost alone.
    let qkv: Vec<f32> = (0..100).flat_map(|t| [100.0, t as f32, t as f32]).collect();
    let mut out = vec![0.0; 100];
    let mut lse = vec![0.0; 100];
    attention_forward(&Pool::new(1), shape, &qkv, None, &mut out, &mut lse, None);
    for t in 0..100 {
        assert!((out[t] - t as f32).abs() < 1e-4 && (lse[t] - 100.0 * t as f32).abs() < 1e-2, "{} at {t}", out[t]);
    }
}

#[test]
fn no_tokens_are_no_work() {
    let shape = AttentionShape {
        sequences: 2,
        seq_len: 0,
        context: WHOLE,
        heads: 1,
        kv_heads: 1,
        head_dim: 4,
        value_dim: 4,
        causal: true,
        window: None,
        scale: 1.0,
        cap: None,
    };
    attention_forward::<f32>(&Pool::new(2), shape, &[], None, &mut [], &mut [], None);
    attention_backward::<f32>(&Pool::new(2), shape, &[], None, &[], &[], &[], &mut [], None);
}
