//! How long a price takes: `cargo run --release -p quadrille-cost --example price_rates`.

use std::time::Instant;

use quadrille_cost::native::{Bounds, Framework, NativeMachine, Problem};
use quadrille_cost::simulation::simulate_times;
use quadrille_spec::{Cluster, Layout, LayoutRequest, Model, Schedule, Zero};

const REPETITIONS: usize = 9;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = Cluster::preset("selene")?;
    let model = Model::preset("gpt3-175b")?;
    println!(
        "{:<10} {:<24} {:>12} {:>12} {:>12} {:>12} {:>12}",
        "framework", "grid", "program", "folded", "memory", "events", "bounds"
    );
    for (grid, chunks) in [("x=4,data=32,pipe=8", 12), ("x=8,data=8,pipe=16", 6), ("x=8,z=8,data=16", 1)] {
        for framework in [Framework::QUADRILLE, Framework::MEGATRON] {
            let problem = Problem::new(&model, &cluster, framework, 1536, 2048)?;
            let request = LayoutRequest {
                schedule: if chunks > 1 { Schedule::Interleaved } else { Schedule::OneForwardOneBackward },
                chunks,
                zero: Zero::Optimizer,
                dtype: "f32".parse()?,
                per_node: Some(8),
                ..LayoutRequest::new(grid.parse()?, 1536)
            };
            let layout = Layout::new(&model, &request)?;
            let mut program = problem.folded(&layout)?;
            let machine = NativeMachine::new(&problem, &layout);
            let candidate = problem.candidate(&layout);
            let mut bounds = Bounds::new(&problem);
            let whole = least(|| problem.program(&layout).map(drop).is_ok());
            let built = least(|| problem.folded(&layout).map(drop).is_ok());
            let memory = least(|| problem.memories(&mut program).iter().all(|memory| memory.total() > 0));
            let events = least(|| simulate_times(&program, &machine, &|| false).is_ok());
            let bounded = least(|| bounds.pieces(&candidate).is_ok());
            let times = [whole, built, memory, events, bounded].map(|seconds| format!("{:.3} ms", 1e3 * seconds));
            let [whole, built, memory, events, bounded] = times;
            println!(
                "{:<10} {grid:<24} {whole:>12} {built:>12} {memory:>12} {events:>12} {bounded:>12}",
                framework.name
            );
        }
    }
    Ok(())
}

/// Seconds of one call: the least of several, as others may use the machine.
fn least(mut call: impl FnMut() -> bool) -> f64 {
    let mut seconds: Vec<f64> = (0..REPETITIONS)
        .map(|_| {
            let begin = Instant::now();
            std::hint::black_box(call());
            begin.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    seconds[0]
}
