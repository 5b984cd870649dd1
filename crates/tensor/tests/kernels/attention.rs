use crate::support::{assert_close, assert_gradient, dot, on_any_threads, random, wide};
use quadrille_tensor::*;

const WHOLE: ContextPart = ContextPart::WHOLE;

fn keep(sequence: usize, head: usize, query: usize, key: usize) -> bool {
    (sequence * 3 + head * 5 + query * 7 + key * 11) % 4 != 1
}

/// Attention by loops, storing every score: out and log_sum_exp.
fn plain(shape: AttentionShape, qkv: &[f64], dropout: bool) -> (Vec<f64>, Vec<f64>) {
    let AttentionShape { sequences, seq_len, heads, kv_heads, head_dim, causal, .. } = shape;
    let shared = heads / kv_heads;
    // Part 0: the head's query; 1 and 2: the key and the value of its group.
    let at = |row: usize, head: usize, part: usize, i: usize| {
        let block = if part == 0 { head % shared } else { shared + part - 1 };
        qkv[(row * (heads + 2 * kv_heads) + head / shared * (shared + 2) + block) * head_dim + i]
    };
    let mut out = vec![0.0; shape.rows() * heads * head_dim];
    let mut lse = vec![0.0; shape.rows() * heads];
    for (sequence, head) in (0..sequences).flat_map(|s| (0..heads).map(move |h| (s, h))) {
        for query in 0..seq_len {
            let row = sequence * seq_len + query;
            let keys = if causal { query + 1 } else { seq_len };
            let score = |key: usize| {
                let key = sequence * seq_len + key;
                (0..head_dim).map(|i| at(row, head, 0, i) * at(key, head, 1, i)).sum::<f64>() / (head_dim as f64).sqrt()
            };
            let sum: f64 = (0..keys).map(|key| score(key).exp()).sum();
            lse[row * heads + head] = sum.ln();
            for key in (0..keys).filter(|key| !dropout || keep(sequence, head, query, *key)) {
                let p = score(key).exp() / sum * if dropout { 4.0 / 3.0 } else { 1.0 };
                for i in 0..head_dim {
                    out[(row * heads + head) * head_dim + i] += p * at(sequence * seq_len + key, head, 2, i);
                }
            }
        }
    }
    (out, lse)
}

fn check<T: Element>(shape: AttentionShape, dropout: bool) {
    let (rows, width) = (shape.rows(), shape.heads * shape.head_dim);
    let three = T::from_f64(3.0);
    let qkv: Vec<T> =
        random::<T>(1, rows * (shape.heads + 2 * shape.kv_heads) * shape.head_dim).iter().map(|x| *x * three).collect();
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
    if T::NAME == "f32" {
        assert_close(&what, dqkv, &exact_gradient(shape, &wide(&qkv), &wide(&dout), dropout));
    }
}

/// The f64 kernel's gradient, which small shapes hold against differences.
fn exact_gradient(shape: AttentionShape, qkv: &[f64], dout: &[f64], dropout: bool) -> Vec<f64> {
    let dropout: Option<AttentionDropout<'_, f64>> = dropout.then_some((4.0 / 3.0, &keep));
    let (pool, (out, lse)) = (Pool::new(1), plain(shape, qkv, dropout.is_some()));
    let mut dqkv = vec![0.0; qkv.len()];
    attention_backward(&pool, shape, qkv, None, &out, &lse, dout, &mut dqkv, dropout);
    dqkv
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
        // Several heads share a key.
        (1, 1, [2, 1], 1),
        (2, 5, [6, 2], 3),
        (1, 19, [4, 1], 4),
        (2, 130, [6, 3], 16),
    ];
    for (sequences, seq_len, [heads, kv_heads], head_dim) in sizes {
        for (causal, dropout) in [(true, false), (false, false), (true, true), (false, true)] {
            let shape = AttentionShape { sequences, seq_len, context: WHOLE, heads, kv_heads, head_dim, causal };
            check::<f32>(shape, dropout);
            check::<f64>(shape, dropout);
        }
    }
}

#[test]
fn scores_far_apart_do_not_overflow() {
    let shape =
        AttentionShape { sequences: 1, seq_len: 100, context: WHOLE, heads: 1, kv_heads: 1, head_dim: 1, causal: true };
    // Token t: query 100, key t, value t: each attends to itself almost alone.
    let qkv: Vec<f32> = (0..100).flat_map(|t| [100.0, t as f32, t as f32]).collect();
    let (mut out, mut lse) = (vec![0.0; 100], vec![0.0; 100]);
    attention_forward(&Pool::new(1), shape, &qkv, None, &mut out, &mut lse, None);
    for t in 0..100 {
        assert!((out[t] - t as f32).abs() < 1e-4 && (lse[t] - 100.0 * t as f32).abs() < 1e-2, "{} at {t}", out[t]);
    }
}

#[test]
fn no_tokens_are_no_work() {
    let shape =
        AttentionShape { sequences: 2, seq_len: 0, context: WHOLE, heads: 1, kv_heads: 1, head_dim: 4, causal: true };
    attention_forward::<f32>(&Pool::new(2), shape, &[], None, &mut [], &mut [], None);
    attention_backward::<f32>(&Pool::new(2), shape, &[], None, &[], &[], &[], &mut [], None);
}
