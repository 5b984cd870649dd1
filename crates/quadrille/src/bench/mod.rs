//! `quadrille bench`: speeds beside yardsticks, measured in the same run wherever they can be.

pub mod arguments;
pub mod collectives;
mod gemm;
mod optimizer;
mod pipeline;
mod plan;
mod simulation;
mod step;

use quadrille_run::LayoutDefaults;
use quadrille_spec::{Axis, ElementType, Field, Layout, Model};

use self::arguments::{Bench, BenchArguments};
use crate::failure::Failure;
use crate::launch::Launch;
use crate::layout_arguments::LayoutArguments;
use crate::settings;

/// The model, batch and sequence length that are measured unless others are asked for.
const MODEL: &str = "gpt2-124m";
const GLOBAL_BATCH: usize = 4;
const SEQ_LEN: usize = 256;

/// Measures and reports.
pub fn run(arguments: &BenchArguments, launch: &Launch) -> Result<(), Failure> {
    match &arguments.bench {
        Bench::Step(arguments) => step::run(arguments),
        Bench::Gemm(arguments) => gemm::run(arguments),
        Bench::Optimizer(arguments) => optimizer::run(arguments),
        Bench::Collectives(arguments) => collectives::run(arguments, launch),
        Bench::Pipeline(arguments) => pipeline::run(arguments),
        Bench::Simulation(arguments) => simulation::run(arguments),
        Bench::Plan(arguments) => plan::run(arguments),
    }
}

/// The layout that was asked for: one rank without `--grid` and `--ranks`.
fn layout(arguments: &LayoutArguments, model: &Model, dtype: Option<ElementType>) -> Result<Layout, Failure> {
    let mut typed = settings::typed(arguments, dtype, &LayoutDefaults { ranks: 1, ..LayoutDefaults::USUAL })?;
    let request = &mut typed.request;
    // What scattered activations need; a grid that is still to be chosen does with less.
    let cut: usize = [Axis::Y, Axis::Z, Axis::Data].map(|axis| request.grid.size(axis)).iter().product();
    let cut = cut.saturating_mul(request.overlap_chunks).max(1);
    if typed.said.get(Field::GlobalBatch).is_none() {
        request.global_batch = GLOBAL_BATCH.checked_next_multiple_of(cut).unwrap_or(cut);
        typed.usual_batch = false;
    }
    request.seq_len = request.seq_len.or(Some(SEQ_LEN.min(model.seq_len)));
    Ok(typed.resolve(model)?)
}
