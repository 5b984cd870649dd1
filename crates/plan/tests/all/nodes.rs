//! Nodes of clusters: how many devices they have, what planned layouts put on them, and the order of ranks.

use quadrille_cost::native::{Candidate, Framework as Trainer, Numbers};
use quadrille_plan::export::{Framework, Precision, Target, export};
use quadrille_plan::native::{PlanRequest, Question, Reserve, Setting, devices_of_nodes};
use quadrille_spec::{Axis, Cluster, Grid, Imbalance, Layout, LayoutRequest, Model};

use crate::found::found;

/// Devices of a node, by the makers and the sites.
const NODES: [(&str, usize); 14] = [
    ("perlmutter", 4),
    ("frontier", 8),
    ("alps", 4),
    ("selene", 8),
    ("summit", 6),
    ("dgx-a100", 8),
    ("dgx-h100", 8),
    ("dgx-h200", 8),
    ("dgx-b200", 8),
    ("gb200-nvl72", 4),
    ("dgx-b300", 8),
    ("gb300-nvl72", 4),
    ("pcie-4x-rtx3090", 4),
    ("pcie-8x-l40s", 8),
];

fn setting<'a>(model: &'a Model, cluster: &'a Cluster, framework: Trainer, per_node: Option<usize>) -> Setting<'a> {
    Setting {
        model,
        cluster,
        framework,
        imbalance: &Imbalance::EQUAL,
        global_batch: 1024,
        seq_len: 64,
        most_of_node: per_node,
        per_node,
        reserve: None,
        capacity: None,
        learned: None,
    }
}

#[test]
fn nodes_are_hosts_whatever_tiers_join() {
    assert_eq!(NODES.len() + 1, Cluster::preset_names().count(), "all but this machine");
    for (name, devices) in NODES {
        let cluster = Cluster::preset(name).unwrap();
        assert_eq!(devices_of_nodes(&cluster, None, 4), Ok(4 * devices), "{name}");
        assert_eq!(devices_of_nodes(&cluster, Some(2), 3), Ok(6), "{name}");
        assert_eq!((cluster.ranks_of_node(32 * devices), cluster.ranks_of_node(2)), (devices, 2), "{name}");
    }
}

/// Of several tiers with a size any may be a node's, where the file does not say it.
#[test]
fn nodes_of_several_tiers_are_said_by_the_file() {
    let text = Cluster::preset_text("frontier").unwrap();
    let bare = |text: &str| {
        text.lines()
            .filter(|line| !["devices_per_node", "inter_node_bandwidth"].iter().any(|key| line.starts_with(key)))
            .map(|line| format!("{line}\n"))
            .collect::<String>()
    };
    let refused = devices_of_nodes(&Cluster::from_toml(&bare(text)).unwrap(), None, 4).unwrap_err().to_string();
    assert!(refused.contains("tiers of frontier join 2 and 8 devices"), "{refused}");
    assert!(refused.contains("devices_per_node"), "{refused}");
    let of_two = Cluster::from_toml(&bare(Cluster::preset_text("dgx-a100").unwrap())).unwrap();
    assert_eq!((of_two.devices_per_node, devices_of_nodes(&of_two, None, 4)), (None, Ok(32)));
}

#[test]
fn planned_layouts_fill_nodes_and_exports_start_as_many_processes() {
    let model = Model::gpt(16, 64, 16, 64, 64);
    for (name, devices) in NODES {
        let cluster = Cluster::preset(name).unwrap();
        let setting = setting(&model, &cluster, Trainer::MEGATRON, None);
        for nodes in [2, 8, 16] {
            let x = if devices == 6 { 2 } else { 4 };
            let ranks = nodes * devices;
            let grid = Grid::new(x, 1, 1, ranks / x).unwrap();
            let request = LayoutRequest { per_node: Some(devices), ..LayoutRequest::new(grid, 0) };
            let request = LayoutRequest { global_batch: 16 * ranks, ..request };
            let candidate = Candidate::of(&Layout::new(&model, &request).unwrap(), &cluster);
            let setting = Setting { global_batch: 16 * ranks, ..setting };
            let layout = setting.layout(&candidate).unwrap();
            assert_eq!(Candidate::of(&layout, &cluster).inside, candidate.inside, "{name}");
            if devices == 6 {
                continue; // two of the three devices at a socket; groups of x would straddle them
            }
            assert_eq!(layout.per_node, devices, "{name} on {nodes} nodes");
            let numbers = Numbers::default();
            let target = Target { gpus_per_node: layout.per_node, precision: Precision::Bf16, numbers, planned: None };
            let text = export(Framework::Megatron, &model, &layout, &target).unwrap().text;
            let launched = format!("torchrun --nnodes {nodes} --nproc-per-node {devices} pretrain_gpt.py");
            assert!(text.contains(&launched), "{name}: {text}");
        }
    }
}

/// Devices that fill no nodes are as many of each; what was planned of them is explained and started the same.
#[test]
fn devices_that_fill_no_nodes_are_as_many_of_each() {
    let model = Model::preset("gpt2-124m").unwrap();
    for (name, devices, per_node) in [
        ("summit", 64, 4),
        ("summit", 36, 6),
        ("gb200-nvl72", 90, 3),
        ("gb200-nvl72", 36, 4),
        ("frontier", 20, 5),
        ("frontier", 45, 5),
        ("dgx-h100", 12, 6),
        ("pcie-8x-l40s", 10, 5),
    ] {
        let cluster = Cluster::preset(name).unwrap();
        let request = PlanRequest { top: Some(5), ..PlanRequest::new(&model, &cluster, devices, 8 * devices) };
        for (layout, price) in found(&request).unwrap() {
            let what = format!("{devices} of {name}: {}", layout.grid);
            assert!(devices.is_multiple_of(layout.per_node) && layout.per_node <= per_node, "{what}");
            let question =
                Question::of(model.clone(), cluster.clone(), Trainer::MEGATRON, &layout, Reserve::Bytes(0)).unwrap();
            let priced = question.setting().unwrap().price(&layout).unwrap();
            assert_eq!((priced.seconds, priced.memory.total()), (price.seconds, price.memory.total()), "{what}");
        }
        let (best, _) = found(&request).unwrap().remove(0);
        assert_eq!(best.per_node, per_node, "{devices} of {name}: {}", best.grid);
    }
}

/// Two of four devices of every host: half of a rack's.
#[test]
fn parts_of_nodes_are_parts_of_domains() {
    let model = Model::gpt(16, 64, 16, 64, 64);
    let rack = Cluster::preset("gb200-nvl72").unwrap();
    let setting = setting(&model, &rack, Trainer::MEGATRON, Some(2));
    let mut candidate = Candidate { sizes: [4, 1, 1, 1, 1, 16, 1], ..Candidate::PLAIN };
    candidate.inside = [4, 1, 1, 1, 1, 8, 1];
    let layout = setting.layout(&candidate).unwrap();
    assert_eq!((layout.per_node, Candidate::of(&layout, &rack).inside), (2, candidate.inside));
    // A rack's links carry what leaves 32 devices of it instead of 64.
    let whole = Candidate { inside: [4, 1, 1, 1, 1, 16, 1], ..candidate };
    let all = Setting { per_node: None, ..setting };
    assert_eq!(all.layout(&whole).unwrap().per_node, 4);
    let [half, full] = [setting.price(&layout), all.price(&all.layout(&whole).unwrap())].map(|price| price.unwrap());
    assert!(half.seconds > full.seconds, "{} and {} s", half.seconds, full.seconds);
}

/// The axes of several ranks of a planned layout, innermost first, if it places its ranks as the candidate does.
fn planned_order(setting: &Setting, candidate: &Candidate) -> Vec<Axis> {
    let layout = setting.layout(candidate).unwrap();
    let mut axes = layout.grid.order().axes().to_vec();
    axes.retain(|axis| layout.grid.size(*axis) > 1);
    axes
}

#[test]
fn axes_that_lie_alike_are_in_the_order_of_the_framework() {
    let text = "name = 'mixture'\nlayers = 2\nhidden = 256\nheads = 4\nvocab = 256\nseq_len = 64\nexperts = 8\n\
                experts_per_token = 1\nrouter_normalize = false\nexpert_ffn = 256\n";
    let model = Model::from_toml(text, &[]).unwrap();
    let cluster = Cluster::preset("dgx-b200").unwrap();
    let sizes = [1, 1, 16, 1, 8, 1, 1];
    let nothing = Candidate { sizes, microbatch: 16, experts_over: Axis::Expert.only(), ..Candidate::PLAIN };
    let experts = Candidate { inside: [1, 1, 1, 1, 8, 1, 1], ..nothing };
    let shards = Candidate { inside: [1, 1, 8, 1, 1, 1, 1], ..nothing };
    for framework in [Trainer::MEGATRON, Trainer::FSDP] {
        let setting = setting(&model, &cluster, framework, None);
        assert_eq!(planned_order(&setting, &experts), [Axis::Expert, Axis::Z], "{}", framework.name);
        assert_eq!(planned_order(&setting, &shards), [Axis::Z, Axis::Expert], "{}", framework.name);
        // One device a node: nothing lies inside, and the framework's order is all that there is.
        assert_eq!(planned_order(&setting, &nothing), [Axis::Expert, Axis::Z], "{}", framework.name);
    }
    let engine = setting(&model, &cluster, Trainer::QUADRILLE, None);
    assert_eq!(planned_order(&engine, &nothing), [Axis::Z, Axis::Expert]);
}
