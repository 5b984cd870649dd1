//! Attention by tensor cores, against the processor's: sums are in another order, and probabilities rounded to 16 bits.

use half::bf16;
use quadrille_cuda::{AttentionMask, Draw, Saved};
use quadrille_tensor::{AttentionDropout, AttentionShape, ContextPart, attention_backward, attention_forward};

use crate::random::keeps;
use crate::support::{Device, in_every_seed, near_to, numbers, pool};

/// Grouped heads over more than a tile of queries and two of keys, none of them full.
const WHOLE: AttentionShape = AttentionShape {
    sequences: 2,
    seq_len: 150,
    context: ContextPart::WHOLE,
    heads: 4,
    kv_heads: 2,
    head_dim: 64,
    value_dim: 64,
    causal: true,
    window: None,
    scale: 0.7,
    cap: None,
};
const ONE: AttentionShape = AttentionShape { sequences: 1, heads: 1, kv_heads: 1, ..WHOLE };
/// A rank's tokens from both ends of longer sequences.
const PART: AttentionShape = AttentionShape { seq_len: 444, context: ContextPart { part: 1, parts: 3 }, ..ONE };
const WIDE_PART: AttentionShape = AttentionShape { head_dim: 128, value_dim: 96, heads: 2, ..PART };

const MASK: AttentionMask = AttentionMask {
    draw: Draw { key: [3, 5], threshold: 1 << 30, scale: 4.0 / 3.0 },
    first_sequence: 3,
    first_head: 2,
    heads: 9,
    seq_len: 151,
};

/// How far numbers may be off, of the largest.
const TOLERANCE: f64 = 1e-2;

/// What both directions give: out, dqkv, dkv (or what `kv` was), and the logarithms.
type Given = ([Vec<bf16>; 3], Vec<f32>);

struct Case {
    shape: AttentionShape,
    mask: Option<AttentionMask>,
    qkv: Vec<bf16>,
    kv: Option<Vec<bf16>>,
    dout: Vec<bf16>,
}

impl Case {
    fn new(shape: AttentionShape, mask: Option<AttentionMask>) -> Self {
        let AttentionShape { sequences, seq_len, heads, kv_heads, head_dim: d, value_dim: v, .. } = shape;
        let rows = shape.rows();
        let pair = kv_heads * (d + v);
        let kv = (shape.context.parts > 1).then(|| numbers(3, sequences * seq_len * pair));
        Self { shape, mask, qkv: numbers(1, rows * (heads * d + pair)), kv, dout: numbers(2, rows * heads * v) }
    }

    fn by_processor(&self) -> Given {
        let Self { shape, mask, qkv, kv, dout } = self;
        let keep = |sequence: usize, head: usize, query: usize, key: usize| {
            mask.is_none_or(|mask| {
                let first = (mask.first_sequence + sequence) * mask.heads + mask.first_head + head;
                keeps(mask.draw, (first * mask.seq_len + query) * mask.seq_len + key)
            })
        };
        let dropout = || -> Option<AttentionDropout<'_, f32>> { mask.map(|mask| (mask.draw.scale as f32, &keep as _)) };
        let mut out = dout.clone();
        let mut lse = vec![0.0; shape.rows() * shape.heads];
        let mut dqkv = qkv.clone();
        let mut dkv = kv.clone();
        attention_forward(&pool(), *shape, qkv, kv.as_deref(), &mut out, &mut lse, dropout());
        let keys_values = kv.as_deref().zip(dkv.as_deref_mut());
        attention_backward(&pool(), *shape, qkv, keys_values, &out, &lse, dout, &mut dqkv, dropout());
        ([out, dqkv, dkv.unwrap_or_default()], lse)
    }

    fn by(&self, device: &Device, wgmma: bool) -> Given {
        let queue = device.queue().with_wgmma(wgmma);
        let shape = self.shape;
        let mask = self.mask.as_ref();
        let qkv = device.up(&self.qkv);
        let dout = device.up(&self.dout);
        let dqkv = device.up(&self.qkv);
        let keys_values = self.kv.as_ref().map(|kv| device.up(kv));
        let dkv = keys_values.map(|kv| device.poison::<bf16>(kv.len));
        let out = device.poison::<bf16>(dout.len);
        let log_sum_exp = device.poison::<f32>(shape.rows() * shape.heads);
        queue.attention_forward(shape, qkv, keys_values, out, log_sum_exp, mask).unwrap();
        queue.attention_backward(shape, Saved { qkv, keys_values, out, log_sum_exp, dout }, dqkv, dkv, mask).unwrap();
        let dkv = dkv.map_or_else(Vec::new, |dkv| device.down(dkv));
        ([device.down(out), device.down(dqkv), dkv], device.down(log_sum_exp))
    }

    #[track_caller]
    fn check(&self, wgmma: bool) {
        if wgmma && !Device::new(1).driver.device().has_wgmma() {
            return eprintln!("skipped: the device has no tensor cores by warpgroups");
        }
        let expected = self.by_processor();
        let got = in_every_seed(|device| self.by(device, wgmma));
        near_to(&got.1, &expected.1, 1e-5);
        expected.0.iter().zip(&got.0).for_each(|(expected, got)| near_to(got, expected, TOLERANCE));
    }
}

#[track_caller]
fn check(wgmma: bool, shape: AttentionShape) {
    Case::new(shape, None).check(wgmma);
}

#[track_caller]
fn check_with_dropout(wgmma: bool, shape: AttentionShape) {
    Case::new(shape, Some(AttentionMask { seq_len: shape.seq_len, ..MASK })).check(wgmma);
}

fn whole_sequences(wgmma: bool) {
    check(wgmma, WHOLE);
    check(wgmma, AttentionShape { causal: false, ..ONE });
    check(wgmma, AttentionShape { seq_len: 256, ..ONE });
    check(wgmma, AttentionShape { seq_len: 400, head_dim: 128, value_dim: 96, ..ONE });
    check(wgmma, AttentionShape { seq_len: 1, ..ONE });
}

fn columns_that_fill_no_tile_and_wide_heads(wgmma: bool) {
    check(wgmma, AttentionShape { head_dim: 128, value_dim: 128, ..ONE });
    check(wgmma, AttentionShape { head_dim: 16, value_dim: 48, ..ONE });
    check(wgmma, WIDE_PART);
    check(wgmma, AttentionShape { head_dim: 96, value_dim: 64, heads: 2, ..ONE });
    check(wgmma, AttentionShape { head_dim: 32, value_dim: 112, causal: false, seq_len: 70, ..ONE });
}

fn windows_and_caps(wgmma: bool) {
    check(wgmma, AttentionShape { window: Some(13), seq_len: 300, ..ONE });
    check(wgmma, AttentionShape { window: Some(66), cap: Some(1.5), ..ONE });
    check(wgmma, AttentionShape { window: Some(1), head_dim: 128, value_dim: 128, ..ONE });
}

fn parts_of_sequences(wgmma: bool) {
    check(wgmma, PART);
    check(wgmma, AttentionShape { context: ContextPart { part: 0, parts: 3 }, window: Some(20), heads: 2, ..PART });
    check(wgmma, AttentionShape { context: ContextPart { part: 2, parts: 3 }, causal: false, seq_len: 72, ..PART });
}

fn dropout(wgmma: bool) {
    check_with_dropout(wgmma, WHOLE);
    check_with_dropout(wgmma, AttentionShape { seq_len: 66, head_dim: 128, value_dim: 128, causal: false, ..ONE });
    check_with_dropout(wgmma, AttentionShape { cap: Some(2.0), ..WIDE_PART });
    check_with_dropout(wgmma, AttentionShape { seq_len: 72, cap: Some(2.0), ..PART });
}

/// Tests of both kinds of kernels.
macro_rules! by_warps_and_by_groups {
    ($($test:ident)*) => {
        mod by_warps { $(#[test] fn $test() { super::$test(false); })* }
        mod by_groups { $(#[test] fn $test() { super::$test(true); })* }
    };
}
by_warps_and_by_groups!(whole_sequences columns_that_fill_no_tile_and_wide_heads windows_and_caps parts_of_sequences dropout);
