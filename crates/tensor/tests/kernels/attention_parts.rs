//! Attention of the parts of a sequence against attention of the whole.

use crate::support::{on_any_threads, random, wide};
use quadrille_tensor::*;

fn keep(sequence: usize, head: usize, query: usize, key: usize) -> bool {
    (sequence * 3 + head * 5 + query * 7 + key * 11) % 4 != 1
}

fn factor<T: Element>(dropout: bool) -> Option<AttentionDropout<'static, T>> {
    dropout.then_some((T::from_f64(4.0 / 3.0), &keep))
}

/// Inputs and results of one rank: of the whole, or of a part.
#[derive(Clone)]
struct Tensors<T> {
    qkv: Vec<T>,
    dout: Vec<T>,
    out: Vec<T>,
    log_sum_exp: Vec<T>,
    dqkv: Vec<T>,
}

/// The rows of a part of x [sequences * s, cols].
fn rows_of<T: Copy>(shape: AttentionShape, x: &[T]) -> Vec<T> {
    let s = shape.seq_len;
    let tokens = shape.context.tokens(shape.seq_len);
    let cols = x.len() / (shape.sequences * s);
    let row = |row: usize| row / tokens * s + shape.context.position(row % tokens, s);
    (0..shape.rows()).flat_map(|local| x[row(local) * cols..][..cols].to_vec()).collect()
}

fn groups(shape: AttentionShape) -> GroupShape {
    let AttentionShape { kv_heads: groups, heads, head_dim, value_dim, .. } = shape;
    GroupShape { rows: shape.rows(), groups, heads: heads / groups, head_dim, value_dim }
}

fn whole<T: Element>(shape: AttentionShape, dropout: bool) -> Tensors<T> {
    let rows = shape.rows();
    let width = shape.heads * shape.value_dim;
    let qkv: Vec<T> =
        random::<T>(1, rows * shape.kv_heads * groups(shape).group()).iter().map(|x| *x * T::from_f64(3.0)).collect();
    let dout = random::<T>(2, rows * width);
    let mut out = vec![T::ZERO; rows * width];
    let mut log_sum_exp = vec![T::ZERO; rows * shape.heads];
    let mut dqkv = vec![T::ZERO; qkv.len()];
    let pool = Pool::new(2);
    let dropout = factor(dropout);
    attention_forward(&pool, shape, &qkv, None, &mut out, &mut log_sum_exp, dropout);
    attention_backward(&pool, shape, &qkv, None, &out, &log_sum_exp, &dout, &mut dqkv, dropout);
    Tensors { qkv, dout, out, log_sum_exp, dqkv }
}

fn packed<T: Element>(shape: AttentionShape, qkv: &[T]) -> Vec<T> {
    let mut kv = vec![T::ONE; shape.rows() * shape.kv_heads * groups(shape).pair()];
    pack_keys_values(&Pool::new(1), groups(shape), qkv, &mut kv);
    kv
}

/// What a part computes from its rows of the whole's inputs and the gathered keys and values: its
/// tensors and dkv. Outputs start with ones, which must be overwritten where they are written.
fn part<T: Element>(shape: AttentionShape, whole: &Tensors<T>, kv: &[T], dropout: bool) -> (Tensors<T>, Vec<T>) {
    let qkv = rows_of(shape, &whole.qkv);
    let dout = rows_of(shape, &whole.dout);
    let width = shape.heads * shape.value_dim;
    let dropout = factor(dropout);
    let lengths = [shape.rows() * width, shape.rows() * shape.heads, qkv.len()];
    let all = on_any_threads(|pool| {
        let [mut out, mut lse, mut dqkv] = lengths.map(|len| vec![T::ONE; len]);
        let mut dkv = vec![T::ONE; kv.len()];
        attention_forward(pool, shape, &qkv, Some(kv), &mut out, &mut lse, dropout);
        attention_backward(pool, shape, &qkv, Some((kv, &mut dkv)), &out, &lse, &dout, &mut dqkv, dropout);
        [out, lse, dqkv, dkv].concat()
    });
    let (out, rest) = all.split_at(lengths[0]);
    let (lse, rest) = rest.split_at(lengths[1]);
    let (dqkv, dkv) = rest.split_at(lengths[2]);
    let part = Tensors { qkv, dout, out: out.to_vec(), log_sum_exp: lse.to_vec(), dqkv: dqkv.to_vec() };
    (part, dkv.to_vec())
}

#[track_caller]
fn assert_same<T: Element>(what: &str, x: &[T], expected: &[T]) {
    assert_eq!(x.len(), expected.len(), "{what}");
    let limit = if T::NAME == "f32" { 1e-5 } else { 1e-13 };
    let scale = expected.iter().fold(0.0, |max: f64, x| max.max(x.to_f64().abs()));
    for (i, (x, expected)) in wide(x).iter().zip(wide(expected)).enumerate() {
        assert!((x - expected).abs() <= limit * scale, "{} {what}[{i}] is {x}, not {expected}", T::NAME);
    }
}

fn check<T: Element>(whole_shape: AttentionShape, parts: usize, dropout: bool) {
    let whole = whole::<T>(whole_shape, dropout);
    let shape = |part| AttentionShape { context: ContextPart { part, parts }, ..whole_shape };
    let pieces = |x: &[T]| (0..parts).map(|part| rows_of(shape(part), x)).collect::<Vec<_>>();
    let kv: Vec<T> = (0..parts).flat_map(|i| packed(shape(i), &pieces(&whole.qkv)[i])).collect();
    let mut dkv_sum = vec![T::ZERO; kv.len()];
    for i in 0..parts {
        let what = |name: &str| format!("{name} of {:?}, dropout {dropout}", shape(i));
        let (mut part, dkv) = part(shape(i), &whole, &kv, dropout);
        assert_same(&what("out"), &part.out, &rows_of(shape(i), &whole.out));
        assert_same(&what("lse"), &part.log_sum_exp, &rows_of(shape(i), &whole.log_sum_exp));
        let keys_values = packed(shape(i), &part.dqkv);
        assert!(keys_values.iter().all(|x| *x == T::ONE), "{}", what("untouched dk, dv"));
        let expected = rows_of(shape(i), &whole.dqkv);
        unpack_keys_values(&Pool::new(2), groups(shape(i)), &packed(shape(i), &expected), &mut part.dqkv);
        assert_same(&what("dq"), &part.dqkv, &expected);
        dkv_sum.iter_mut().zip(dkv).for_each(|(sum, x)| *sum += x);
    }
    let expected: Vec<T> = (0..parts).flat_map(|i| packed(shape(i), &pieces(&whole.dqkv)[i])).collect();
    assert_same(&format!("dkv of {parts} parts of {whole_shape:?}"), &dkv_sum, &expected);
}

#[test]
fn the_parts_of_a_sequence_together_equal_the_whole() {
    // (sequences, chunk, heads and those of keys, head_dim): chunks below, at and above a tile, and odd ones.
    let sizes = [
        (1, 1, [1, 1], 1),
        (2, 3, [2, 2], 5),
        (3, 16, [3, 3], 7),
        (1, 33, [2, 2], 16),
        (2, 64, [1, 1], 64),
        (1, 71, [2, 2], 3),
        // Several heads share a key.
        (2, 3, [6, 2], 5),
        (1, 33, [3, 1], 4),
    ];
    for parts in 1..=4 {
        for (sequences, chunk, [heads, kv_heads], head_dim) in sizes {
            let seq_len = if parts == 1 { chunk } else { 2 * parts * chunk };
            for (causal, dropout) in [(true, false), (false, false), (true, true), (false, true)] {
                let context = ContextPart::WHOLE;
                let shape = AttentionShape {
                    sequences,
                    seq_len,
                    context,
                    heads,
                    kv_heads,
                    head_dim,
                    value_dim: head_dim,
                    causal,
                    window: None,
                    scale: 1.0,
                    cap: None,
                };
                check::<f64>(shape, parts, dropout);
                check::<f32>(shape, parts, dropout);
                if causal {
                    // Windows that end in other parts' tokens.
                    let window = Some(1 + seq_len * 2 / 3);
                    check::<f64>(AttentionShape { window, cap: Some(2.0), ..shape }, parts, dropout);
                }
                for value_dim in [head_dim.div_ceil(2), head_dim + 5] {
                    check::<f64>(AttentionShape { value_dim, ..shape }, parts, dropout);
                }
            }
        }
    }
}

#[test]
fn keys_that_no_query_of_a_part_sees_get_zero_gradients() {
    let context = ContextPart { part: 1, parts: 2 };
    let shape = AttentionShape {
        sequences: 1,
        seq_len: 8,
        context,
        heads: 1,
        kv_heads: 1,
        head_dim: 2,
        value_dim: 2,
        causal: true,
        window: None,
        scale: 1.0,
        cap: None,
    };
    let whole = whole::<f64>(AttentionShape { context: ContextPart::WHOLE, ..shape }, false);
    let kv: Vec<f64> = (0..2)
        .map(|part| AttentionShape { context: ContextPart { part, parts: 2 }, ..shape })
        .flat_map(|shape| packed(shape, &rows_of(shape, &whole.qkv)))
        .collect();
    let (_, dkv) = part(shape, &whole, &kv, false);
    // Positions 6 and 7, after the part's last query at 5, are the last two tokens of part 0.
    let rows: Vec<_> = dkv.chunks(4).collect();
    assert!(rows[2..4].iter().all(|row| *row == [0.0; 4]), "{dkv:?}");
    assert!(rows[..2].iter().chain(&rows[4..]).all(|row| row.iter().all(|x| *x != 0.0 && *x != 1.0)), "{dkv:?}");
}

#[test]
fn queries_and_keys_are_taken_out_and_put_back() {
    for (rows, groups, heads, d, value_dim) in
        [(0, 2, 1, 3, 3), (1, 1, 1, 1, 1), (5, 3, 1, 7, 7), (5, 2, 4, 3, 2), (9, 2, 2, 3, 8), (301, 4, 1, 64, 64)]
    {
        let shape = GroupShape { rows, groups, heads, head_dim: d, value_dim };
        let group = (heads + 1) * d + value_dim;
        let qkv = random::<f32>(1, rows * groups * group);
        let split = on_any_threads(|pool| {
            let mut queries = vec![0.0; rows * groups * heads * d];
            let mut keys = vec![0.0; rows * groups * d];
            split_heads(pool, shape, &qkv, &mut queries, &mut keys);
            [queries, keys].concat()
        });
        let (queries, keys) = split.split_at(rows * groups * heads * d);
        let joined = |beside: Option<&[f32]>| {
            on_any_threads(|pool| {
                let mut joined = vec![9.0; qkv.len()];
                join_heads(pool, shape, queries, keys, beside, &mut joined);
                joined
            })
        };
        assert_eq!(joined(Some(&qkv)), qkv);
        for (i, joined) in joined(None).into_iter().enumerate() {
            let unit = i / group;
            let col = i % group;
            let expected = match col / d {
                head if head < heads => queries[unit * heads * d + col],
                head if head == heads => keys[unit * d + col % d],
                _ => 9.0,
            };
            assert_eq!(joined, expected);
            assert!(joined == 9.0 || joined == qkv[i]);
        }
    }
}

#[test]
fn keys_and_values_are_packed_beside_each_other_and_put_back() {
    let sizes =
        [(0, 2, 1, 3, 3), (1, 1, 1, 1, 1), (5, 3, 1, 7, 7), (5, 2, 4, 3, 2), (301, 4, 1, 64, 64), (301, 2, 1, 6, 9)];
    for (rows, groups, heads, head_dim, value_dim) in sizes {
        let shape = GroupShape { rows, groups, heads, head_dim, value_dim };
        let group = (heads + 1) * head_dim + value_dim;
        let pair = head_dim + value_dim;
        let qkv = random::<f32>(1, rows * groups * group);
        let kv = on_any_threads(|pool| {
            let mut kv = vec![0.0; rows * groups * pair];
            pack_keys_values(pool, shape, &qkv, &mut kv);
            kv
        });
        let back = on_any_threads(|pool| {
            let mut back = vec![9.0; qkv.len()];
            unpack_keys_values(pool, shape, &kv, &mut back);
            back
        });
        for i in 0..qkv.len() {
            let unit = i / group;
            let col = i % group;
            let packed = col.checked_sub(heads * head_dim).map(|col| kv[unit * pair + col]);
            assert_eq!(packed.unwrap_or(qkv[i]), qkv[i]);
            assert_eq!(back[i], packed.unwrap_or(9.0));
        }
    }
}

#[test]
#[should_panic(expected = "a part attends to gathered keys and values")]
fn a_part_without_gathered_keys_is_refused() {
    let context = ContextPart { part: 0, parts: 2 };
    let shape = AttentionShape {
        sequences: 1,
        seq_len: 4,
        context,
        heads: 1,
        kv_heads: 1,
        head_dim: 1,
        value_dim: 1,
        causal: true,
        window: None,
        scale: 1.0,
        cap: None,
    };
    attention_forward::<f64>(&Pool::new(1), shape, &[0.0; 6], None, &mut [0.0; 2], &mut [0.0; 2], None);
}
