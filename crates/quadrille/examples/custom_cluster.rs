//! The same model and budget on three machines: a preset, the preset with another network, and one of one's own.
//!
//! `cargo run --release -p quadrille --example custom_cluster`

use quadrille::prelude::*;
use quadrille::search::native::hardware;

/// Four devices in a node, joined by PCIe; nodes joined by Ethernet. Rates are those of a known device; a file may also give
/// rates of its own.
const OURS: &str = r#"
name = "ours"
source = "a quotation"
device = "a100-80"

[[tiers]]
name = "PCIe"
devices = 4
bandwidth = 32e9
efficiency = 0.8
latency = 5e-6

[[tiers]]
name = "100 Gb Ethernet"
links = 2
bandwidth = 12.5e9
efficiency = 0.8
latency = 20e-6
"#;

pub(crate) fn main() -> Result<(), Error> {
    let model = Model::preset("llama2-7b")?;
    let known = Cluster::preset("dgx-a100")?;
    let slower = hardware::with(&known, "tiers.1.bandwidth", 5e9)?;
    let ours = Cluster::from_toml(OURS)?;
    let mut seconds = Vec::new();
    for (what, cluster) in [("dgx-a100", &known), ("a fifth of its network", &slower), ("ours", &ours)] {
        let found = plan(&PlanRequest { top: Some(1), ..PlanRequest::new(&model, cluster, 64, 256) })?;
        let best = &found.plans[0];
        println!("{what:<24} {:.2} s a step by {}", best.time_s, best.notation);
        seconds.push(best.time_s);
    }
    assert!(seconds.is_sorted(), "slower networks make no step faster");
    Ok(())
}
