//! The best layouts of a model of 175 billion parameters on 1,024 GPUs of Selene in Megatron-LM, and what they take.
//!
//! `cargo run --release --example plan_1024`

use quadrille_cost::native::Framework;
use quadrille_plan::native::{Search, Setting, Space};
use quadrille_spec::{Cluster, Model};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (model, cluster) = (Model::preset("gpt3-175b")?, Cluster::preset("selene")?);
    let setting = Setting {
        model: &model,
        cluster: &cluster,
        framework: Framework::MEGATRON,
        global_batch: 1536,
        seq_len: model.seq_len,
        per_node: None,
        capacity: cluster.device_memory,
    };
    let mut space = Space::default();
    space.keep_to(&setting.framework);
    let search = Search { setting, devices: 1024, space, top: 5, one_per_grid: true, front: false, prune: true };
    let found = search.run(&|| false)?;
    println!("{} of {} grids are legal; the fastest:", found.counts.legal_grids, found.counts.grids);
    for ranked in &found.ranked {
        let layout = setting.layout(&ranked.candidate)?;
        let (seconds, bytes) = (ranked.price.seconds, ranked.price.memory.total());
        println!("{:<40} {seconds:.2} s per step, {:.1} GB", layout.grid.to_string(), bytes as f64 / 1e9);
    }
    Ok(())
}
