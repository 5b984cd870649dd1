//! `quadrille bench`: speeds beside yardsticks, measured in the same run wherever they can be.

pub mod arguments;
pub mod collectives;
mod gemm;
mod pipeline;
mod plan;
mod simulation;
mod step;

use std::time::Instant;

use quadrille_spec::{Axis, ElementType, Field, Layout, Model};
use quadrille_tensor::{Buffer, Element};

use crate::arguments::{Bench, BenchArguments};
use crate::failure::Failure;
use crate::launch::Launch;
use crate::layout_arguments::LayoutArguments;
use crate::settings::{self, Defaults};

/// The model, batch and sequence length that are measured unless others are asked for.
const MODEL: &str = "gpt2-124m";
const GLOBAL_BATCH: usize = 4;
const SEQ_LEN: usize = 256;

/// Measures and reports.
pub fn run(arguments: &BenchArguments, launch: &Launch) -> Result<(), Failure> {
    match &arguments.bench {
        Bench::Step(arguments) => step::run(arguments),
        Bench::Gemm(arguments) => gemm::run(arguments),
        Bench::Collectives(arguments) => collectives::run(arguments, launch),
        Bench::Pipeline(arguments) => pipeline::run(arguments),
        Bench::Simulation(arguments) => simulation::run(arguments),
        Bench::Plan(arguments) => plan::run(arguments),
    }
}

/// The layout that was asked for: one rank without `--grid` and `--ranks`.
fn layout(arguments: &LayoutArguments, model: &Model, dtype: Option<ElementType>) -> Result<Layout, Failure> {
    let mut typed = settings::typed(arguments, dtype, &Defaults { ranks: 1, ..Defaults::USUAL })?;
    let request = &mut typed.request;
    // What scattered activations need; a grid that is still to be chosen does with less.
    let cut: usize = [Axis::Y, Axis::Z, Axis::Data].map(|axis| request.grid.size(axis)).iter().product();
    let cut = cut.saturating_mul(request.overlap_chunks).max(1);
    if typed.said.get(Field::GlobalBatch).is_none() {
        request.global_batch = GLOBAL_BATCH.checked_next_multiple_of(cut).unwrap_or(cut);
        typed.usual_batch = false;
    }
    request.seq_len = request.seq_len.or(Some(SEQ_LEN.min(model.seq_len)));
    settings::resolve(&typed, model)
}

/// Seconds that `work` takes.
pub fn seconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

/// The middle of the values, the mean of the two middle ones of an even number; 0 of none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    quantile(&values, 0.5)
}

/// Between the two nearest of the ascending values, by their distance; 0 of none.
pub fn quantile(ascending: &[f64], part: f64) -> f64 {
    let Some(last) = ascending.len().checked_sub(1) else { return 0.0 };
    let place = part * last as f64;
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    ascending[below] + (place - below as f64) * (ascending[above] - ascending[below])
}

/// Numbers in [-1/2, 1/2) without a pattern that a product could profit from.
pub fn filled<T: Element>(len: usize) -> Buffer<T> {
    Buffer::from_fn(len, |at| {
        let bits = (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        T::from_f64(bits as f64 / (1u64 << 24) as f64 - 0.5)
    })
}

/// A rate beside a yardstick: `82%`.
pub fn percent(part: f64) -> String {
    format!("{:.1}%", 100.0 * part)
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(vec![]), 0.0);
    }
}
