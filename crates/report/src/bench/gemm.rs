//! The products of a step beside the matrix library's own threads.
//!
//! Letters: a product gives [m, n], contracted over k.

use quadrille_measure::gemm::{MeasuredProduct, Rates, StepProducts};
use quadrille_run::shown_layout;
use quadrille_run::units::percent;
use quadrille_spec::{LayoutFile, Model};
use quadrille_step::{GemmStorage, Product, StepProgram};
use serde::Serialize;

use crate::summary::summary;
use crate::{ReportVersion, Text, table};

/// What was measured of a program's products.
pub struct GemmReport<'a> {
    /// The program.
    pub program: &'a StepProgram,
    /// Threads of either side.
    pub threads: usize,
    /// Its products.
    pub measured: &'a StepProducts,
}

#[derive(Serialize)]
struct Document<'a> {
    version: ReportVersion,
    model: &'a Model,
    layout: LayoutFile,
    threads: usize,
    #[serde(flatten)]
    measured: &'a StepProducts,
}

impl GemmReport<'_> {
    /// All of it, as `bench gemm --json` prints it.
    pub fn document(&self) -> impl Serialize {
        let Self { program, threads, measured } = *self;
        Document {
            version: ReportVersion::CURRENT,
            model: &program.model,
            layout: shown_layout(&program.layout),
            threads,
            measured,
        }
    }

    /// Model and layout, then a table for people.
    pub fn text(&self) -> Text {
        let StepProducts { products, rates: all } = self.measured;
        let mut rows: Vec<Vec<String>> = products.iter().map(row).collect();
        let share: f64 = products.iter().map(|product| product.flops_share).sum();
        let empty = [(); 5].map(|()| String::new());
        rows.push(["all".to_owned()].into_iter().chain(empty).chain([percent(share)]).chain(rates(all)).collect());
        let header = ["gives", "storage", "m", "n", "k", "calls", "of FLOPs", "GFLOP/s", "library", "ratio"];
        let table = table(&header, &rows).spare(&["storage", "calls"]);
        Text::from(summary(self.program)) + format!("threads {}\n\n", self.threads) + table
    }
}

fn row(MeasuredProduct { name, product, calls, flops_share, rates: measured }: &MeasuredProduct) -> Vec<String> {
    let Product { storage, m, n, k } = product;
    let sizes = [m, n, k, calls].map(usize::to_string);
    let storage = storage_text(*storage).to_owned();
    let share = percent(*flops_share);
    [name.clone(), storage].into_iter().chain(sizes).chain([share]).chain(rates(measured)).collect()
}

fn rates(rates: &Rates) -> [String; 3] {
    [format!("{:.1}", rates.gflops), format!("{:.1}", rates.library_gflops), percent(rates.ratio)]
}

fn storage_text(storage: GemmStorage) -> &'static str {
    match storage {
        GemmStorage::Nn => "nn",
        GemmStorage::Nt => "nt",
        GemmStorage::Tn => "tn",
    }
}
