//! The best layouts of a model of 175 billion parameters on 1,024 GPUs of Selene in Megatron-LM, and what they take.
//!
//! `cargo run --release -p quadrille --example plan_1024`

use quadrille::prelude::*;

pub(crate) fn main() -> Result<(), Error> {
    let report = plan(&PlanRequest { top: Some(5), ..PlanRequest::new("gpt3-175b", "selene", 1024, 1536) })?;
    println!("{} of {} grids are legal; the fastest layouts:", report.counts.legal_grids, report.counts.grids);
    for PricedLayout { notation, time_s, memory_bytes, mfu, .. } in &report.plans {
        let gigabytes = *memory_bytes as f64 / 1e9;
        println!("{notation}: {time_s:.2} s a step, {:.1}% MFU, {gigabytes:.1} GB", 100.0 * mfu);
    }
    assert!(report.plans.is_sorted_by(|a, b| a.time_s <= b.time_s));
    println!("\nThe first as a file for `--layout`:\n{}", report.layout_file(&report.plans[0])?);
    Ok(())
}
