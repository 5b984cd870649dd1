//! The products of a step beside the matrix library's own threads, which are the yardstick.
//!
//! Letters: a product gives [m, n], contracted over k.

use quadrille_engine::transpose;
use quadrille_step::{ChunkProgram, Operation, Product, StageProgram, StepProgram, kind, predict_rank};
use quadrille_tensor::{Buffer, Pool, ProductShape, library_matmul, matmul};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::timing::{median, seconds};
use crate::{OnProgress, Progress};

/// Pairs of runs, ours and the library's in turn, after one that warms up; the medians count.
const RUNS: usize = 7;

/// The products of a step.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct StepProducts {
    /// The distinct ones, in the order of their first run.
    pub products: Vec<MeasuredProduct>,
    /// Of all products of a step, one after the other.
    #[serde(flatten)]
    pub rates: Rates,
}

/// A product with its rates.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct MeasuredProduct {
    /// The result of its first run, without the block's number.
    pub name: String,
    /// Its sizes, and how the operands are stored.
    #[serde(flatten)]
    pub product: Product,
    /// Runs in a step.
    pub calls: usize,
    /// Of all its runs, in all FLOPs of the rank's step, attention included.
    pub flops_share: f64,
    /// Of one run, the median.
    #[serde(flatten)]
    pub rates: Rates,
}

/// A rate beside the library's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rates {
    /// Billions of FLOPs a second.
    pub gflops: f64,
    /// The same of the matrix library by its own threads.
    pub library_gflops: f64,
    /// `gflops / library_gflops`.
    pub ratio: f64,
}

impl Rates {
    /// From FLOPs and the seconds of ours and of the library.
    fn new(flops: f64, [ours, library]: [f64; 2]) -> Self {
        Self { gflops: flops / ours / 1e9, library_gflops: flops / library / 1e9, ratio: library / ours }
    }
}

/// Runs every distinct product of a step of the first rank on a pool of so many threads, and the library's beside it; tells before
/// each which comes next.
pub fn measure(program: &StepProgram, threads: usize, told: OnProgress) -> StepProducts {
    let step_flops = predict_rank(program, 0).flops.total() as f64;
    let pool = Pool::new(threads);
    let mut flops = 0.0;
    let mut times = [0.0; 2];
    let products = products(program.of_rank(0));
    let of = products.len();
    let measure = |(done, (name, product, calls)): (usize, (String, Product, usize))| {
        told(Progress { done, of, next: Some(&name) });
        let once = 2.0 * product.m as f64 * product.n as f64 * product.k as f64;
        let seconds = time(&pool, &product);
        let all = once * calls as f64;
        flops += all;
        times = [0, 1].map(|which| times[which] + calls as f64 * seconds[which]);
        MeasuredProduct { name, product, calls, flops_share: all / step_flops, rates: Rates::new(once, seconds) }
    };
    let products = products.into_iter().enumerate().map(measure).collect();
    StepProducts { products, rates: Rates::new(flops, times) }
}

/// Name, shape and calls of a stage's distinct products, in the order of their first run.
fn products(program: &StageProgram) -> Vec<(String, Product, usize)> {
    let mut products: Vec<(String, Product, usize)> = Vec::new();
    for op in program.chunks.iter().flat_map(ChunkProgram::sections).flat_map(|section| &section.ops) {
        let calls = op.times(program.layout.microbatches());
        let (Operation::Gemm(kind::Gemm { output, .. }), Some(product)) =
            (&op.operation, op.operation.product(program))
        else {
            continue;
        };
        match products.iter_mut().find(|(_, other, _)| *other == product) {
            Some((_, _, times)) => *times += calls,
            None => products.push((any_block(&program.value(*output).name), product, calls)),
        }
    }
    products
}

/// `d block.11.up.weight` as `d up.weight`.
fn any_block(name: &str) -> String {
    let Some((before, after)) = name.split_once("block.") else { return name.to_owned() };
    before.to_owned() + after.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start_matches('.')
}

/// Median seconds of ours and of the library's own threads.
fn time(pool: &Pool, product: &Product) -> [f64; 2] {
    let Product { storage, m, n, k } = *product;
    let shape = ProductShape { stored: transpose(storage), m, n, k };
    let a = Buffer::<f32>::without_pattern(m * k);
    let b = Buffer::<f32>::without_pattern(k * n);
    let mut c = Buffer::<f32>::new(m * n);
    let mut pair = || {
        let ours = seconds(|| matmul(pool, shape, &a, &b, &mut c, false));
        [ours, seconds(|| library_matmul(pool.threads(), shape, &a, &b, &mut c, false))]
    };
    pair();
    let pairs: Vec<[f64; 2]> = (0..RUNS).map(|_| pair()).collect();
    [0, 1].map(|which| median(pairs.iter().map(|pair| pair[which]).collect()))
}

#[cfg(test)]
mod tests {
    use super::any_block;

    #[test]
    fn names_lose_their_block() {
        assert_eq!(any_block("d block.11.up.weight"), "d up.weight");
        assert_eq!(any_block("logits"), "logits");
    }
}
