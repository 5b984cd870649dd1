//! Prints the rates of products for each of 8 experts, beside one product as large as all of them, at the shapes of
//! GPT-2 124M: `grouped_rates [repetitions]`.

use half::bf16;
use quadrille_tensor::*;
use std::time::Instant;

/// Experts.
const BLOCKS: usize = 8;
/// Rows of an expert.
const ROWS: usize = 256;

fn main() {
    let repetitions = std::env::args().nth(1).map_or(5, |n| n.parse().expect("a number of repetitions"));
    println!("threads stored layout      n      k segments  one product  grouped GFLOP/s  ratio");
    for threads in [1, 2] {
        let pool = Pool::new(threads);
        for (stored, n, k) in [
            (Transpose::Nn, 3072, 768),
            (Transpose::Nn, 768, 3072),
            (Transpose::Nt, 3072, 768),
            (Transpose::Nt, 768, 3072),
            (Transpose::Tn, 3072, 768),
            (Transpose::Tn, 768, 3072),
        ] {
            for segments in [1, 4] {
                let shape = GroupedShape { stored, n, k };
                row::<f32>(&pool, repetitions, shape, segments);
                row::<bf16>(&pool, repetitions, shape, segments);
            }
        }
    }
}

/// One line: both by turns, of each the fastest.
fn row<S: Stored<Real = f32>>(pool: &Pool, repetitions: usize, shape: GroupedShape, segments: usize) {
    let GroupedShape { stored, n, k } = shape;
    let runs = Segments::equal(BLOCKS, segments, ROWS / segments);
    let rows = BLOCKS * ROWS;
    let whole = match stored {
        Transpose::Tn => ProductShape { stored, m: k, n, k: rows },
        _ => ProductShape { stored, m: rows, n, k },
    };
    let blocks = if stored == Transpose::Tn { (rows * n, BLOCKS * k * n) } else { (BLOCKS * k * n, rows * n) };
    let a = random::<S>(rows * k);
    let b = random::<S>(blocks.0);
    let mut c = Buffer::<S>::new(blocks.1);
    let mut fastest = [f64::INFINITY; 2];
    for _ in 0..=repetitions {
        let product = &mut c[..whole.m * n];
        let seconds = [
            time(|| matmul(pool, whole, &a, &b[..whole.k * n], product, false)),
            time(|| grouped_matmul(pool, shape, &runs, &a, &b, &mut c, false)),
        ];
        fastest.iter_mut().zip(seconds).for_each(|(fastest, seconds)| *fastest = fastest.min(seconds));
    }
    let [one, grouped] = fastest.map(|seconds| 2.0 * (rows * n * k) as f64 / seconds / 1e9);
    let threads = pool.threads();
    let ratio = grouped / one;
    println!(
        "{threads:>7} {:>6} {stored:?} {n:>10} {k:>6} {segments:>8} {one:12.0} {grouped:16.0} {ratio:6.2}",
        S::NAME
    );
}

fn time(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

fn random<S: Stored<Real = f32>>(len: usize) -> Buffer<S> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    Buffer::from_fn(len, |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        S::rounded((state >> 40) as f32 / (1 << 23) as f32 - 1.0)
    })
}
