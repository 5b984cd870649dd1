//! How fast the native model prices layouts: cargo run --release -p quadrille-cost --example native_rates

use std::hint::black_box;
use std::time::Instant;

use quadrille_cost::native::{Candidate, Framework, Problem};
use quadrille_spec::{Cluster, Layout, LayoutRequest, Model};

const REPETITIONS: u32 = 200_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = Cluster::preset("selene")?;
    let model = Model::preset("gpt3-175b")?;
    let problem = Problem::new(&model, &cluster, Framework::MEGATRON, 1536, 2048)?;
    println!("{:<44} {:>10} {:>10} {:>12} {:>10}", "layout", "block", "price", "step", "memory");
    let grids =
        ["x=8,data=16,pipe=12", "x=4,y=2,z=4,data=4,pipe=12", "z=64,data=24", "x=8,z=8,context=2,data=2,pipe=6"];
    let more = [("full", "1f1b", "0"), ("selective", "zb-h1", "1"), ("none", "1f1b", "2")];
    for grid in grids {
        for (recompute, schedule, zero) in more {
            let request = LayoutRequest {
                recompute: recompute.parse()?,
                schedule: schedule.parse()?,
                zero: zero.parse()?,
                seq_len: Some(2048),
                ..LayoutRequest::new(grid.parse()?, 1536)
            };
            let candidate = Candidate::of(&Layout::new(&model, &request)?, &cluster);
            let block = problem.block(&candidate);
            let of_block = seconds(|| {
                black_box(problem.block(black_box(&candidate)));
            });
            let of_price = seconds(|| {
                black_box(problem.price(black_box(&candidate), black_box(&block)));
            });
            let price = problem.price(&candidate, &block);
            println!(
                "{grid:<32} {recompute:<9} {of_block:>8.0} ns {of_price:>8.0} ns {:>10.3} s {:>7.1} GB",
                price.seconds,
                price.memory.total() as f64 / 1e9
            );
        }
    }
    Ok(())
}

/// Nanoseconds of one call, the best of five rounds.
fn seconds(call: impl Fn()) -> f64 {
    let round = || {
        let begin = Instant::now();
        (0..REPETITIONS).for_each(|_| call());
        begin.elapsed().as_secs_f64() / f64::from(REPETITIONS) * 1e9
    };
    (0..5).map(|_| round()).fold(f64::INFINITY, f64::min)
}
