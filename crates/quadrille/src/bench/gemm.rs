//! `quadrille bench gemm`: the products of a step beside the matrix library's own threads.
//!
//! Letters: a product gives [m, n], contracted over k.

use quadrille_engine::Hyper;
use quadrille_measure::gemm::{self, MeasuredProduct, Rates, StepProducts};
use quadrille_report::summary::summary;
use quadrille_run::layout_json;
use quadrille_run::units::percent;
use quadrille_spec::{ElementType, Model};
use quadrille_step::{GemmStorage, Product, StepProgram};
use serde::Serialize;
use serde_json::Value;

use crate::arguments::BenchGemmArguments;
use crate::bench::layout;
use crate::failure::Failure;
use crate::output::{print_json, print_text, table};
use crate::settings;

#[derive(Serialize)]
struct Document {
    model: Model,
    layout: Value,
    threads: usize,
    #[serde(flatten)]
    measured: StepProducts,
}

/// Measures and reports.
pub fn run(arguments: &BenchGemmArguments) -> Result<(), Failure> {
    let model = settings::settings(&arguments.model, super::MODEL, Hyper::default())?.model;
    let layout = layout(&arguments.layout, &model, Some(ElementType::F32))?;
    let program = StepProgram::new(&model, &layout)?;
    let threads = arguments.threads.map_or_else(settings::cores, usize::from);
    let measured = gemm::measure(&program, threads);
    let document = Document { model, layout: layout_json(&layout), threads, measured };
    if arguments.json { print_json(&document) } else { print_text(&(summary(&program) + &text(&document))) }
}

fn storage_text(storage: GemmStorage) -> &'static str {
    match storage {
        GemmStorage::Nn => "nn",
        GemmStorage::Nt => "nt",
        GemmStorage::Tn => "tn",
    }
}

fn text(document: &Document) -> String {
    let StepProducts { products, rates: all } = &document.measured;
    let rates =
        |rates: &Rates| [format!("{:.1}", rates.gflops), format!("{:.1}", rates.library_gflops), percent(rates.ratio)];
    let row = |MeasuredProduct { name, product, calls, flops_share, rates: measured }: &MeasuredProduct| {
        let Product { storage, m, n, k } = product;
        let sizes = [m, n, k, calls].map(usize::to_string);
        let (storage, share) = (storage_text(*storage).to_owned(), percent(*flops_share));
        [name.clone(), storage].into_iter().chain(sizes).chain([share]).chain(rates(measured)).collect()
    };
    let mut rows: Vec<Vec<String>> = products.iter().map(row).collect();
    let share: f64 = products.iter().map(|product| product.flops_share).sum();
    let empty = [(); 5].map(|()| String::new());
    rows.push(["all".to_owned()].into_iter().chain(empty).chain([percent(share)]).chain(rates(all)).collect());
    let header = ["gives", "storage", "m", "n", "k", "calls", "of FLOPs", "GFLOP/s", "library", "ratio"];
    format!("threads {}\n\n", document.threads) + &table(&header, &rows)
}
