//! Prints the rates of products in f32 and bf16 at the shapes of GPT-2 124M: `products [repetitions]`.

use quadrille_tensor::*;
use std::time::Instant;

fn main() {
    let repetitions = std::env::args().nth(1).map_or(5, |n| n.parse().expect("a number of repetitions"));
    println!("threads layout      m      n      k      f32     bf16 GFLOP/s  ratio  to bf16");
    for threads in [1, 2] {
        let pool = Pool::new(threads);
        for m in [1024, 256] {
            row(&pool, repetitions, ProductShape { stored: Transpose::Nn, m, n: 3072, k: 768 });
            row(&pool, repetitions, ProductShape { stored: Transpose::Nn, m, n: 768, k: 3072 });
            row(&pool, repetitions, ProductShape { stored: Transpose::Nt, m, n: 768, k: 3072 });
            row(&pool, repetitions, ProductShape { stored: Transpose::Tn, m: 768, n: 3072, k: m });
            row(&pool, repetitions, ProductShape { stored: Transpose::Nt, m, n: 50257, k: 768 });
            row(&pool, repetitions, ProductShape { stored: Transpose::Nn, m, n: 768, k: 50304 });
            row(&pool, repetitions, ProductShape { stored: Transpose::Tn, m: 50304, n: 768, k: m });
        }
    }
}

/// One product in f32, and in bf16 with a result in f32 and in bf16.
fn row(pool: &Pool, repetitions: usize, shape: ProductShape) {
    let ProductShape { stored, m, n, k } = shape;
    let a = random(m * k);
    let b = random(k * n);
    let mut c = Buffer::<f32>::new(m * n);
    let narrow = |x: &Buffer<f32>| Buffer::from_fn(x.len(), |i| half::bf16::from_f32(x[i]));
    let narrow_a = narrow(&a);
    let narrow_b = narrow(&b);
    let mut narrow_c = Buffer::<half::bf16>::new(m * n);
    let rate = |work: &mut dyn FnMut()| 2.0 * (m * n * k) as f64 / seconds(repetitions, work) / 1e9;
    let single = rate(&mut || matmul(pool, shape, &a, &b, &mut c, false));
    let brain = rate(&mut || matmul(pool, shape, &narrow_a, &narrow_b, &mut c, false));
    let rounded = rate(&mut || matmul(pool, shape, &narrow_a, &narrow_b, &mut narrow_c, false));
    println!(
        "{:>7} {stored:?} {m:>10} {n:>6} {k:>6} {single:8.0} {brain:8.0} {:14.2} {rounded:8.0}",
        pool.threads(),
        brain / single
    );
}

/// The fastest of the repetitions.
fn seconds(repetitions: usize, work: &mut dyn FnMut()) -> f64 {
    work();
    let time = |_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    (0..repetitions).map(time).fold(f64::INFINITY, f64::min)
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
