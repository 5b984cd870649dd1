//! `quadrille bench gemm`: the products of a step beside the matrix library's own threads.
//!
//! Letters: a product gives [m, n], contracted over k.

use quadrille_engine::{Hyper, transpose};
use quadrille_spec::{ElementType, Model};
use quadrille_step::{ChunkProgram, GemmStorage, Operation, Product, StageProgram, StepProgram, kind, predict_rank};
use quadrille_tensor::{Buffer, Pool, ProductShape, library_matmul, matmul};
use serde::Serialize;
use serde_json::Value;

use crate::arguments::BenchGemmArguments;
use crate::bench::{filled, layout, median, percent, seconds};
use crate::describe::{layout_json, summary};
use crate::failure::Failure;
use crate::output::{print_json, print_text, table};
use crate::settings;

/// Pairs of runs, ours and the library's in turn, after one that warms up; the medians count.
const RUNS: usize = 7;

#[derive(Serialize)]
struct Document {
    model: Model,
    layout: Value,
    threads: usize,
    products: Vec<Measured>,
    /// All products of a step, one after the other.
    #[serde(flatten)]
    rates: Rates,
}

#[derive(Serialize)]
struct Measured {
    /// The result of its first run, without the block's number.
    name: String,
    #[serde(flatten)]
    product: Product,
    /// Runs in a step.
    calls: usize,
    /// Of all its runs, in all FLOPs of the rank's step, attention included.
    flops_share: f64,
    #[serde(flatten)]
    rates: Rates,
}

#[derive(Serialize)]
struct Rates {
    gflops: f64,
    library_gflops: f64,
    /// `gflops / library_gflops`.
    ratio: f64,
}

impl Rates {
    /// From FLOPs and the seconds of ours and of the library.
    fn new(flops: f64, [ours, library]: [f64; 2]) -> Self {
        Self { gflops: flops / ours / 1e9, library_gflops: flops / library / 1e9, ratio: library / ours }
    }
}

/// Measures and reports.
pub fn run(arguments: &BenchGemmArguments) -> Result<(), Failure> {
    let model = settings::settings(&arguments.model, super::MODEL, Hyper::default())?.model;
    let layout = layout(&arguments.layout, &model, Some(ElementType::F32))?;
    let program = StepProgram::new(&model, &layout)?;
    let threads = arguments.threads.map_or_else(settings::cores, usize::from);
    let step_flops = predict_rank(&program, 0).flops.total() as f64;
    let pool = Pool::new(threads);
    let (mut flops, mut times) = (0.0, [0.0; 2]);
    let measure = |(name, product, calls): (String, Product, usize)| {
        let once = 2.0 * product.m as f64 * product.n as f64 * product.k as f64;
        let seconds = time(&pool, &product);
        let all = once * calls as f64;
        flops += all;
        times = [0, 1].map(|which| times[which] + calls as f64 * seconds[which]);
        Measured { name, product, calls, flops_share: all / step_flops, rates: Rates::new(once, seconds) }
    };
    let products = products(program.of_rank(0)).into_iter().map(measure).collect();
    let rates = Rates::new(flops, times);
    let document = Document { model, layout: layout_json(&layout), threads, products, rates };
    if arguments.json { print_json(&document) } else { print_text(&(summary(&program) + &text(&document))) }
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
    let (a, b, mut c) = (filled::<f32>(m * k), filled::<f32>(k * n), Buffer::<f32>::new(m * n));
    let mut pair = || {
        let ours = seconds(|| matmul(pool, shape, &a, &b, &mut c, false));
        [ours, seconds(|| library_matmul(pool.threads(), shape, &a, &b, &mut c, false))]
    };
    pair();
    let pairs: Vec<[f64; 2]> = (0..RUNS).map(|_| pair()).collect();
    [0, 1].map(|which| median(pairs.iter().map(|pair| pair[which]).collect()))
}

fn storage_text(storage: GemmStorage) -> &'static str {
    match storage {
        GemmStorage::Nn => "nn",
        GemmStorage::Nt => "nt",
        GemmStorage::Tn => "tn",
    }
}

fn text(document: &Document) -> String {
    let rates =
        |rates: &Rates| [format!("{:.1}", rates.gflops), format!("{:.1}", rates.library_gflops), percent(rates.ratio)];
    let row = |Measured { name, product, calls, flops_share, rates: measured }: &Measured| {
        let Product { storage, m, n, k } = product;
        let sizes = [m, n, k, calls].map(usize::to_string);
        let (storage, share) = (storage_text(*storage).to_owned(), percent(*flops_share));
        [name.clone(), storage].into_iter().chain(sizes).chain([share]).chain(rates(measured)).collect()
    };
    let mut rows: Vec<Vec<String>> = document.products.iter().map(row).collect();
    let share: f64 = document.products.iter().map(|product| product.flops_share).sum();
    let empty = [(); 5].map(|()| String::new());
    rows.push(
        ["all".to_owned()].into_iter().chain(empty).chain([percent(share)]).chain(rates(&document.rates)).collect(),
    );
    let header = ["gives", "storage", "m", "n", "k", "calls", "of FLOPs", "GFLOP/s", "library", "ratio"];
    format!("threads {}\n\n", document.threads) + &table(&header, &rows)
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
