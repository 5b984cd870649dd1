//! Attention, in training and from a cache.

use quadrille_cuda::{AttentionMask, Draw, Saved};
use quadrille_tensor::{
    AttentionDropout, AttentionShape, CacheShape, ContextPart, Element, Stored, attention_backward, attention_forward,
    cached_attention, newest_rows, store_keys_values,
};

use crate::random::keeps;
use crate::support::{Value, alike, equal, in_each_format, in_every_seed, numbers, pool};

/// Grouped heads, whose values have another width than their keys, over more than one tile.
const WHOLE: AttentionShape = AttentionShape {
    sequences: 2,
    seq_len: 70,
    context: ContextPart::WHOLE,
    heads: 4,
    kv_heads: 2,
    head_dim: 6,
    value_dim: 5,
    causal: true,
    window: None,
    scale: 0.7,
    cap: None,
};
const PART: AttentionShape = AttentionShape { seq_len: 72, context: ContextPart { part: 1, parts: 3 }, ..WHOLE };
/// More columns than a warp has lanes.
const WIDE: AttentionShape =
    AttentionShape { sequences: 1, seq_len: 9, heads: 1, kv_heads: 1, head_dim: 40, value_dim: 70, ..WHOLE };

const MASK: AttentionMask = AttentionMask {
    draw: Draw { key: [3, 5], threshold: 1 << 30, scale: 4.0 / 3.0 },
    first_sequence: 3,
    first_head: 2,
    heads: 9,
    seq_len: 72,
};

fn keep(sequence: usize, head: usize, query: usize, key: usize) -> bool {
    let row = ((MASK.first_sequence + sequence) * MASK.heads + MASK.first_head + head) * MASK.seq_len + query;
    keeps(MASK.draw, row * MASK.seq_len + key)
}

/// Both directions, bit for bit those of the processor.
fn check<S: Value>(shape: AttentionShape, with_mask: bool) {
    let AttentionShape { sequences, seq_len, heads, kv_heads, head_dim: d, value_dim: v, .. } = shape;
    let rows = shape.rows();
    let pair = kv_heads * (d + v);
    let gathered = shape.context.parts > 1;
    let qkv = numbers::<S>(1, rows * (heads * d + pair));
    let dout = numbers::<S>(2, rows * heads * v);
    let kv = numbers::<S>(3, sequences * seq_len * pair);
    let dropout = || -> Option<AttentionDropout<'_, S::Wide>> {
        with_mask.then_some((S::Wide::from_f64(MASK.draw.scale), &keep))
    };
    let mut out = dout.clone();
    let mut lse = vec![S::Wide::ZERO; rows * heads];
    // Columns of dqkv that are not written stay.
    let mut dqkv = qkv.clone();
    let mut dkv = kv.clone();
    attention_forward(&pool(), shape, &qkv, gathered.then_some(&kv[..]), &mut out, &mut lse, dropout());
    let keys_values = gathered.then_some((&kv[..], &mut dkv[..]));
    attention_backward(&pool(), shape, &qkv, keys_values, &out, &lse, &dout, &mut dqkv, dropout());
    let mask = with_mask.then_some(&MASK);
    let got = in_every_seed(|device| {
        let queue = device.queue();
        let dqkv = device.up(&qkv);
        let qkv = device.up(&qkv);
        let dout = device.up(&dout);
        let keys_values = gathered.then(|| device.up(&kv));
        let dkv = gathered.then(|| device.poison::<S>(kv.len()));
        let out = device.poison::<S>(dout.len);
        let log_sum_exp = device.poison::<S::Wide>(rows * heads);
        queue.attention_forward(shape, qkv, keys_values, out, log_sum_exp, mask).unwrap();
        let saved = Saved { qkv, keys_values, out, log_sum_exp, dout };
        queue.attention_backward(shape, saved, dqkv, dkv, mask).unwrap();
        let dkv = dkv.map_or_else(|| kv.clone(), |dkv| device.down(dkv));
        ([device.down::<S>(out), device.down(dqkv), dkv], device.down::<S::Wide>(log_sum_exp))
    });
    alike(&got.1, &lse);
    [&out, &dqkv, &dkv].iter().zip(&got.0).for_each(|(expected, got)| alike(got, expected));
}

fn whole_sequences<S: Value>() {
    check::<S>(WHOLE, false);
    check::<S>(AttentionShape { causal: false, ..WHOLE }, true);
}

fn windows_and_caps<S: Value>() {
    check::<S>(AttentionShape { window: Some(13), ..WHOLE }, false);
    check::<S>(AttentionShape { window: Some(66), cap: Some(1.5), ..WHOLE }, true);
}

fn parts_of_sequences<S: Value>() {
    check::<S>(PART, true);
    check::<S>(AttentionShape { context: ContextPart { part: 0, parts: 3 }, window: Some(20), ..PART }, false);
    check::<S>(AttentionShape { causal: false, ..PART }, false);
}

fn wide_heads<S: Value>() {
    check::<S>(WIDE, false);
    check::<S>(AttentionShape { head_dim: 256, value_dim: 1, ..WIDE }, false);
}

/// A first pass of several tokens, one of a single token, and one of several, some beyond the cache.
fn generation<S: Value>() {
    for (window, cap) in [(None, None), (Some(7), Some(2.0))] {
        let shape = CacheShape {
            sequences: 2,
            tokens: 5,
            capacity: 37,
            heads: 4,
            kv_heads: 2,
            head_dim: 6,
            value_dim: 5,
            window,
            scale: 1.3,
            cap,
        };
        let cols = shape.heads * 6 + shape.kv_heads * 11;
        let passes = [(5, [0, 0]), (1, [5, 3]), (5, [30, 34])];
        let qkv = passes.map(|(tokens, _)| numbers::<S>(tokens as u64, 2 * tokens * cols));
        let mut cache = vec![S::ZERO; shape.elements()];
        let mut expected = Vec::new();
        for ((tokens, starts), qkv) in passes.into_iter().zip(&qkv) {
            let shape = CacheShape { tokens, ..shape };
            let mut out = vec![S::ZERO; 2 * tokens * 20];
            store_keys_values(&pool(), shape, &starts, qkv, &mut cache);
            cached_attention(&pool(), shape, &starts, qkv, &cache, &mut out);
            expected.push(out);
        }
        let got = in_every_seed(|device| {
            let queue = device.queue();
            let cache = device.up(&vec![S::ZERO; shape.elements()]);
            let pass = |((tokens, starts), qkv): ((usize, [usize; 2]), &Vec<S>)| {
                let shape = CacheShape { tokens, ..shape };
                let out = device.poison::<S>(2 * tokens * 20);
                let on_device = device.up(&starts.map(|start| start as u32));
                let qkv = device.up(qkv);
                queue.store_keys_values(shape, on_device, qkv, cache).unwrap();
                queue.cached_attention(shape, on_device, starts == [0, 0], qkv, cache, out).unwrap();
                device.down::<S>(out)
            };
            (passes.into_iter().zip(&qkv).map(pass).collect::<Vec<_>>(), device.down::<S>(cache))
        });
        expected.iter().zip(&got.0).for_each(|(expected, got)| alike(got, expected));
        equal(&got.1, &cache);
    }
}

fn newest<S: Value>() {
    let x = numbers::<S>(1, 3 * 4 * 7);
    let rows = [2, 0, 3];
    let mut y = vec![S::ZERO; 3 * 7];
    newest_rows(7, 4, &rows, &x, &mut y);
    let got = in_every_seed(|device| {
        let y = device.poison::<S>(3 * 7);
        device.queue().newest_rows(7, 4, device.up(&rows.map(|row| row as u32)), device.up(&x), y).unwrap();
        device.down::<S>(y)
    });
    equal(&got, &y);
}

in_each_format!(whole_sequences windows_and_caps parts_of_sequences wide_heads generation newest);
