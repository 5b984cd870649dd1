//! The best layouts of a model of 175 billion parameters on 1,024 GPUs of Selene in Megatron-LM, and what they take.
//!
//! `cargo run --release --example plan_1024`

use quadrille::prelude::*;

pub(crate) fn main() -> Result<(), Error> {
    let model = Model::preset("gpt3-175b")?;
    let cluster = Cluster::preset("selene")?;
    let found = plan(&PlanRequest { top: Some(5), ..PlanRequest::new(&model, &cluster, 1024, 1536) })?;
    println!("{} of {} grids are legal; the fastest layouts:", found.counts.legal_grids, found.counts.grids);
    for PlannedLayout { layout, seconds, bytes, .. } in &found.layouts {
        let Layout { grid, schedule, chunks, microbatch, .. } = layout;
        let gigabytes = *bytes as f64 / 1e9;
        println!("{grid}, {schedule} x{chunks}, microbatch {microbatch}: {seconds:.2} s a step, {gigabytes:.1} GB");
    }
    assert!(found.layouts.is_sorted_by(|a, b| a.seconds <= b.seconds));
    println!("\nThe first as a file for `--layout`:\n{}", found.layouts[0].to_toml()?);
    Ok(())
}
