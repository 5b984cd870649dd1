//! What searches of tests are about: a small cluster, models whose sizes have few common factors.

use quadrille_cost::native::Framework;
use quadrille_draws::Description;
use quadrille_plan::native::{Cancel, Found, Search, Setting, Space};
use quadrille_spec::{Activation, Cluster, Imbalance, Model, Norm, Positions};

/// Nodes of four small devices: 16 MB, so that memory counts for models of a few hundred thousand parameters.
const CLUSTER: &str = r#"
name = "small"
source = "made up"
[device]
name = "toy"
source = "made up"
memory = 16_000_000
memory_bandwidth = 1e10
memory_efficiency = 0.8
peak = { half = 1e11, single = 5e10, double = 1e10 }
vector_rate = 1e10
launch_seconds = 1e-6
products = { kind = "curve", ceiling = 0.8, half_m = 16, half_n = 16, half_k = 16 }
attention = { kind = "constant", fraction = 0.5 }
[[tiers]]
name = "inner"
devices = 4
bandwidth = 4e9
efficiency = 0.8
latency = 1e-6
[[tiers]]
name = "outer"
links = 4
bandwidth = 5e8
efficiency = 0.7
latency = 4e-6
"#;

/// Without the context that drivers keep on a device: it is larger than these devices.
pub const FRAMEWORK: Framework = Framework { reserved_bytes: 0, ..Framework::MEGATRON };

pub fn cluster() -> Cluster {
    Cluster::from_toml(CLUSTER).unwrap()
}

pub fn search<'a>(model: &'a Model, cluster: &'a Cluster, devices: usize, global_batch: usize) -> Search<'a> {
    Search {
        setting: Setting {
            model,
            cluster,
            framework: FRAMEWORK,
            imbalance: &Imbalance::EQUAL,
            global_batch,
            seq_len: model.seq_len,
            most_of_node: None,
            per_node: None,
            reserve: None,
            capacity: cluster.device_memory,
            learned: None,
        },
        devices,
        space: Space::default(),
        top: 5,
        distinct: false,
        front: true,
        tolerance: None,
        safe_capacity: None,
        deadline: None,
        brief: false,
        limit: None,
        watch: Cancel::default(),
        prune: true,
    }
}

/// The same for this program's engine, too.
pub fn by_both(search: Search<'_>) -> [Search<'_>; 2] {
    let framework = Framework { reserved_bytes: 0, ..Framework::QUADRILLE };
    [search.clone(), Search { setting: Setting { framework, ..search.setting }, ..search }]
}

pub fn found(search: &Search) -> Found {
    search.run().unwrap()
}

/// A model whose sizes have few common factors.
pub fn model(layers: usize, heads: usize) -> Model {
    Model::gpt(layers, 24 * heads, heads, 101, 24)
}

/// The same with grouped keys, gates and rotary positions, as Llama has them, or reading patches.
fn family(number: usize, layers: usize, heads: usize) -> Model {
    let kv_heads = (1..=heads).find(|keys| heads.is_multiple_of(*keys) && *keys * 2 >= heads).unwrap_or(heads);
    let gpt = model(layers, heads);
    match number {
        0 => gpt,
        1 => gpt.reshaped(|m| {
            m.kv_heads = kv_heads;
            m.ffn = 36 * heads;
            m.activation = Activation::Swiglu;
            m.norm = Norm::Rms;
            m.positions = Positions::Rotary;
            m.tied_head = false;
            m.biases = false;
        }),
        2 => gpt.reshaped(|m| m.kv_heads = 1),
        _ => gpt.reshaped(|m| {
            m.vocab = 0;
            m.patch_values = Some(7);
            m.tied_head = false;
            m.causal = false;
        }),
    }
}

/// The families, or blocks as a description says, which may differ.
pub fn any_model(number: usize, layers: usize, heads: usize, description: &Description) -> Model {
    if number < FAMILIES { family(number, layers, heads) } else { description.of(&family(0, layers, heads), 1) }
}

/// How many families there are.
pub const FAMILIES: usize = 4;

pub fn on_threads<T: Send>(threads: usize, act: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(act)
}
