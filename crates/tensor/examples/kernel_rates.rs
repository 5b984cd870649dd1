//! Prints the rate of every kernel at the shapes of GPT-2 124M: `kernel_rates [repetitions [section]]`.
//!
//! Matrix products beside the library's own threads, element-wise kernels beside a plain copy.

use quadrille_tensor::*;
use std::time::Instant;

const HIDDEN: usize = 768;
const VOCABULARY: usize = 50257;
const HEADS: usize = 12;

fn main() {
    let repetitions = std::env::args().nth(1).map_or(5, |n| n.parse().expect("a number of repetitions"));
    let only = std::env::args().nth(2);
    let bench = Bench { repetitions };
    for threads in [1, 2] {
        println!("\n{threads} threads");
        let pool = Pool::new(threads);
        let sections: [(&str, &dyn Fn()); 6] = [
            ("launch", &|| bench.launch(&pool)),
            ("products", &|| bench.products(&pool)),
            ("attention", &|| bench.attention(&pool)),
            ("rows", &|| bench.rows(&pool, 1024)),
            ("vocabulary", &|| bench.vocabulary(&pool, 1024)),
            ("optimizer", &|| bench.optimizer(&pool)),
        ];
        let wanted = |name: &str| only.as_ref().is_none_or(|only| only == name);
        sections.iter().filter(|(name, _)| wanted(name)).for_each(|(_, run)| run());
    }
}

struct Bench {
    repetitions: usize,
}

fn random(len: usize) -> Buffer<f32> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    Buffer::from_fn(len, |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    })
}

impl Bench {
    /// The fastest of the repetitions, in seconds.
    fn seconds(&self, mut work: impl FnMut()) -> f64 {
        work();
        let time = |_| {
            let start = Instant::now();
            work();
            start.elapsed().as_secs_f64()
        };
        (0..self.repetitions).map(time).fold(f64::INFINITY, f64::min)
    }

    /// Prints the rate of a kernel that moves `passes` arrays of `len` `f32`.
    fn rate(&self, name: &str, len: usize, passes: usize, work: impl FnMut()) {
        let seconds = self.seconds(work);
        let bytes = (len * passes * size_of::<f32>()) as f64;
        println!("  {name:<34} {:9.3} ms {:7.1} GB/s", seconds * 1e3, bytes / seconds / 1e9);
    }

    fn launch(&self, pool: &Pool) {
        let launches = 1000;
        let seconds = self.seconds(|| {
            for _ in 0..launches {
                pool.each(0..2 * pool.threads(), |i| {
                    std::hint::black_box(i);
                });
            }
        });
        println!("  an empty kernel {:.2} us", seconds / launches as f64 * 1e6);
    }

    fn products(&self, pool: &Pool) {
        println!("  products, GFLOP/s: ours, library");
        for rows in [1024, 256] {
            let block = [(HIDDEN, 3 * HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, 4 * HIDDEN), (4 * HIDDEN, HIDDEN)];
            for (from, to) in block {
                self.product(pool, "forward", Transpose::Nn, rows, to, from);
                self.product(pool, "input gradient", Transpose::Nt, rows, from, to);
                self.product(pool, "weight gradient", Transpose::Tn, from, to, rows);
            }
            self.product(pool, "head forward", Transpose::Nt, rows, VOCABULARY, HIDDEN);
            self.product(pool, "head input gradient", Transpose::Nn, rows, HIDDEN, VOCABULARY);
            self.product(pool, "head weight gradient", Transpose::Tn, VOCABULARY, HIDDEN, rows);
        }
    }

    fn product(&self, pool: &Pool, name: &str, layout: Transpose, m: usize, n: usize, k: usize) {
        let a = random(m * k);
        let b = random(k * n);
        let mut c = Buffer::new(m * n);
        let flops = 2.0 * (m * n * k) as f64;
        let ours = self.seconds(|| matmul(pool, ProductShape { stored: layout, m, n, k }, &a, &b, &mut c, false));
        let library = self.seconds(|| {
            library_matmul(pool.threads(), ProductShape { stored: layout, m, n, k }, &a, &b, &mut c, false)
        });
        let ours = flops / ours / 1e9;
        let library = flops / library / 1e9;
        println!("  {name:<22} {layout:?} {m:>6} {n:>6} {k:>6} {ours:7.1} {library:7.1}");
    }

    fn attention(&self, pool: &Pool) {
        for (seq_len, kv_heads) in [(256, HEADS), (64, HEADS), (256, HEADS / 4)] {
            let context = ContextPart::WHOLE;
            let heads = HEADS;
            let head_dim = 64;
            let shape = AttentionShape {
                sequences: 4,
                seq_len,
                context,
                heads,
                kv_heads,
                head_dim,
                value_dim: head_dim,
                causal: true,
                window: None,
                scale: 1.0,
                cap: None,
            };
            let rows = shape.rows();
            let qkv = random(rows * (HIDDEN + 2 * kv_heads * head_dim));
            let dout = random(rows * HIDDEN);
            let mut out = Buffer::new(rows * HIDDEN);
            let mut lse = Buffer::new(rows * HEADS);
            let mut dqkv = Buffer::new(qkv.len());
            // Without a causal discount, as attention is counted everywhere.
            let flops = (4 * rows * seq_len * HIDDEN) as f64;
            let forward = self.seconds(|| attention_forward(pool, shape, &qkv, None, &mut out, &mut lse, None));
            let backward =
                self.seconds(|| attention_backward(pool, shape, &qkv, None, &out, &lse, &dout, &mut dqkv, None));
            println!(
                "  attention 4 x {seq_len}, {kv_heads} keys: forward {:.3} ms {:.0} GFLOP/s, backward {:.3} ms {:.0} GFLOP/s",
                forward * 1e3,
                flops / forward / 1e9,
                backward * 1e3,
                2.0 * flops / backward / 1e9
            );
        }
    }

    fn rows(&self, pool: &Pool, rows: usize) {
        let cols = HIDDEN;
        let wide = 4 * HIDDEN;
        let len = rows * cols;
        let wide_len = rows * wide;
        let x = random(len);
        let r = random(len);
        let mut y = random(len);
        let mut z = random(len);
        let gamma = random(cols);
        let beta = random(cols);
        let bias = random(wide);
        let mut sums = random(rows);
        let mut squares = random(rows);
        let mut pairs = random(2 * rows);
        let mut dgamma = random(cols);
        let mut dbeta = random(cols);
        let mut dbias = random(wide);
        // Where GELU's slope is 1, so that repeating its gradient in place keeps its size.
        let mut pre = Buffer::from_fn(wide_len, |_| 10.0);
        let mut wide_y = random(wide_len);
        let shape = Shape { rows, cols };
        let norm = NormShape { rows, cols, width: cols, eps: 1e-5 };
        let whole = Shape { rows, cols: wide };
        let half = Shape { rows, cols: wide / 2 };
        self.rate("copy", len, 2, || copy(pool, &mut y, &x));
        self.rate("add_assign", len, 3, || add_assign(pool, &mut y, &x));
        self.rate("norm_row_sums", len, 1, || norm_row_sums(pool, shape, &x, &mut sums));
        self.rate("norm_centered_squares", len, 1, || norm_centered_squares(pool, norm, &x, &sums, &mut squares));
        self.rate("norm_forward", len, 2, || norm_forward(pool, norm, &x, &sums, &squares, &gamma, &beta, &mut y));
        self.rate("norm_backward_sums", len, 2, || {
            norm_backward_sums(pool, norm, &x, &sums, &squares, &gamma, &r, &mut pairs, &mut dgamma, &mut dbeta, true)
        });
        self.rate("norm_backward", len, 4, || {
            norm_backward(pool, norm, &x, &sums, &squares, &gamma, &r, &pairs, &mut z, true)
        });
        self.rate("rms_norm_squares", len, 1, || rms_norm_squares(pool, shape, &x, &mut squares));
        self.rate("rms_norm_forward", len, 2, || rms_norm_forward(pool, norm, &x, &squares, &gamma, &mut y));
        self.rate("rms_norm_backward_sums", len, 2, || {
            let reduced = &mut sums;
            let dgamma = &mut dgamma;
            rms_norm_backward_sums(pool, norm, &x, &squares, &gamma, &r, reduced, dgamma, true)
        });
        self.rate("rms_norm_backward", len, 4, || {
            rms_norm_backward(pool, norm, &x, &squares, &gamma, &r, &sums, &mut z, true)
        });
        let rotary = Rotary::new(64, &(0..32).map(|i| 1e4_f64.powf(-f64::from(i) / 32.0)).collect::<Vec<_>>(), 0..256);
        let turned = 2 * wide_len / 3;
        self.rate("rotate", turned, 2, || {
            rotate(
                pool,
                GroupShape { rows, groups: wide / 192, heads: 1, head_dim: 64, value_dim: 64 },
                &rotary,
                |row| row % 256,
                &mut pre,
                false,
            );
        });
        let mut narrow = random(wide_len / 2);
        self.rate("bias_swiglu_forward", wide_len / 2, 5, || {
            bias_gated_forward(pool, Curve::Silu, half, &mut pre, Some(&bias), &mut narrow)
        });
        self.rate("bias_swiglu_backward", wide_len / 2, 5, || {
            bias_gated_backward(pool, Curve::Silu, half, &mut pre, &narrow, Some(&mut dbias), true)
        });
        pre.fill(10.0);
        self.rate("residual_forward", len, 3, || residual_forward(pool, shape, &mut y, Some(&beta), &x, None));
        self.rate("bias_forward", wide_len, 2, || bias_forward(pool, whole, &mut pre, &bias));
        self.rate("bias_backward", wide_len, 1, || bias_backward(pool, whole, &pre, &mut dbias, true));
        self.rate("bias_gelu_forward", wide_len, 3, || {
            bias_curve_forward(pool, Curve::Gelu, whole, &mut pre, Some(&bias), &mut wide_y)
        });
        self.rate("bias_gelu_backward", wide_len, 3, || {
            bias_curve_backward(pool, Curve::Gelu, whole, &pre, &mut wide_y, Some(&mut dbias), true)
        });
        self.rate("pack_columns", wide_len, 2, || pack_columns(pool, whole, 2, &pre, &mut wide_y));
        self.rate("unpack_columns", wide_len, 2, || unpack_columns(pool, whole, 2, &pre, &mut wide_y));
        self.rate("dropout", len, 2, || dropout(pool, shape, &mut y, 1.25, |row, col| (row ^ col) % 5 != 0));
    }

    fn vocabulary(&self, pool: &Pool, rows: usize) {
        let cols = VOCABULARY;
        let len = rows * VOCABULARY;
        let mut logits = random(len);
        let mut max = random(rows);
        let mut sums = random(2 * rows);
        let tokens: Vec<u32> = (0..rows as u32).map(|i| i * 7919 % cols as u32).collect();
        let shape = LogitsShape { rows, cols, valid: cols, start: 0 };
        self.rate("cross_entropy_max", len, 1, || cross_entropy_max(pool, shape, &logits, &mut max));
        self.rate("cross_entropy_sums", len, 1, || cross_entropy_sums(pool, shape, &logits, &max, &tokens, &mut sums));
        self.rate("cross_entropy_gradient", len, 2, || {
            cross_entropy_gradient(pool, shape, &mut logits, &max, &sums, &tokens, 1.0, None);
        });
        let mut table = random(cols * HIDDEN);
        let mut y = random(rows * HIDDEN);
        let len = y.len();
        let table_len = table.len();
        let embedding = TableShape { rows, cols: HIDDEN, start: 0 };
        let hidden = Shape { rows, cols: HIDDEN };
        self.rate("embed_forward", len, 2, || embed_forward(pool, embedding, &tokens, &table, &mut y));
        self.rate("embed_backward, accumulating", len, 3, || {
            embed_backward(pool, embedding, &tokens, &y, &mut table, true)
        });
        self.rate("embed_backward", table_len, 1, || embed_backward(pool, embedding, &tokens, &y, &mut table, false));
        let positions = random(1024 * HIDDEN);
        let mut dpositions = random(256 * HIDDEN);
        self.rate("add_positions", len, 3, || add_positions(pool, hidden, &mut y, &positions, |row| row % 256));
        self.rate("positions_backward", len, 1, || {
            positions_backward(pool, hidden, &y, &mut dpositions, |row| row % 256, false)
        });
    }

    fn optimizer(&self, pool: &Pool) {
        let len = 124_439_808;
        let mut p = random(len);
        let g = random(len);
        let mut m = Buffer::new(len);
        let mut v = Buffer::new(len);
        self.rate("copy, 498 MB", len, 2, || copy(pool, &mut p, &g));
        self.rate("add_assign, 498 MB", len, 3, || add_assign(pool, &mut p, &g));
        self.rate("sum_of_squares, 498 MB", len, 1, || {
            sum_of_squares(pool, &g);
        });
        let constants = AdamW {
            learning_rate: 1e-3,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.1,
            correction1: 0.1,
            correction2: 1e-3,
        };
        self.rate("adamw, 124 M parameters", len, 7, || adamw(pool, &constants, 1.0, &mut p, &g, &mut m, &mut v));
    }
}
