//! The best grids for a model of 40 billion parameters on 1,024 GPUs of Perlmutter, by AxoNN's communication model.
//!
//! `cargo run --release --example plan_1024`

use quadrille_plan::plan;
use quadrille_spec::{Cluster, Grid, LayoutRequest, Model};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = Model::preset("gpt-40b")?;
    let cluster = Cluster::preset("perlmutter")?;
    let template = LayoutRequest::new(Grid::new(1, 1, 1, 1)?, 8192);
    let bf16_bytes = 2;
    let found = plan(&model, &cluster, 1024, &template, bf16_bytes, 5)?;
    println!("{} of {} grids are legal; the best by communication time:", found.feasible, found.grids);
    for candidate in &found.ranked {
        println!("{:<24} {:.3} s per step", candidate.layout.grid.to_string(), candidate.price.seconds());
    }
    Ok(())
}
