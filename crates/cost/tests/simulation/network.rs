//! Prices of links and devices against numbers worked out by hand.

use quadrille_cost::simulation::{Communication, DeviceRates, Lane, Machine, RingNetwork, UniformMachine, simulate};
use quadrille_spec::{Axis, AxisSet, Cluster, CollectiveKind, Layout, LayoutRequest};
use quadrille_step::Format;
use quadrille_step::{At, Layer, Operation};

use crate::common::{close, model, program};

const NODES_OF_FOUR: &str = r#"
    name = "nodes of four"
    source = "test"
    devices_per_node = 4
    inter_node_bandwidth = 100e9
    intra_node_bandwidth = 7e9
    group_bandwidths = [{ inner = 1, group = 2, bandwidth = 60e9 }]
"#;

const LATENCY: f64 = 1e-6;

fn network(grid: &str) -> RingNetwork {
    let model = model(8);
    let request = LayoutRequest { per_node: Some(4), ..LayoutRequest::new(grid.parse().unwrap(), 64) };
    let cluster = Cluster::from_toml(NODES_OF_FOUR).unwrap();
    RingNetwork::new(&cluster, &Layout::new(&model, &request).unwrap(), LATENCY).unwrap()
}

fn collective(kind: CollectiveKind, axes: AxisSet, members: usize, bytes: u64) -> Communication {
    Communication { kind, axes, members, payload_bytes: 0, wire_bytes: bytes, format: Format::Values, block: None }
}

#[test]
fn groups_that_run_at_once_share_the_links_of_a_node() {
    let network = network("x=2,y=4,data=2,pipe=2");
    let seconds = |kind, axes, members| network.collective_seconds(&collective(kind, axes, members, 3_000_000));
    // Inside a node: the table. Two steps of a ring of two.
    assert!(close(seconds(CollectiveKind::AllReduce, Axis::X.only(), 2), 2.0 * LATENCY + 3e6 / 60e9));
    // Equation 7: two rings of y, one for each x, leave a node.
    assert!(close(seconds(CollectiveKind::AllGather, Axis::Y.only(), 4), 3.0 * LATENCY + 3e6 / 50e9));
    // Eight rings of data, but a node has four devices.
    assert!(close(seconds(CollectiveKind::ReduceScatter, Axis::Data.only(), 2), LATENCY + 3e6 / 25e9));
    // Several axes: the slowest.
    let both = Axis::X.only().union(Axis::Y.only());
    assert!(close(seconds(CollectiveKind::Broadcast, both, 8), 7.0 * LATENCY + 3e6 / 50e9));
    // All four devices of a node send to the next stage.
    assert!(close(network.message_seconds(5_000_000), LATENCY + 5e6 / 25e9));
}

#[test]
fn axes_of_one_rank_do_not_slow_a_ring_down() {
    assert_eq!(network("x=2,y=2").bandwidth(AxisSet::WORLD), 7e9);
    assert_eq!(RingNetwork::FREE.collective_seconds(&collective(CollectiveKind::AllReduce, AxisSet::WORLD, 8, 9)), 0.0);
}

#[test]
fn a_roofline_takes_what_is_longer() {
    let program = program(1, "x=1", 1, |_| {});
    let stage = &program.stages[0];
    let op = |name: &str| {
        let ops = &stage.chunks[0].forward.ops;
        ops.iter().find(|op| op.operation.name() == name && op.layer == Layer::Block(0)).unwrap()
    };
    // 8 tokens; qkv 16 -> 48: 2 * 8 * 16 * 48 FLOPs, 4 (8 * 16 + 16 * 48 + 8 * 48) bytes.
    let work = |name: &str| {
        let work = op(name).operation.work(At::first(stage));
        (work.flops(), work.moved)
    };
    assert_eq!(work("gemm"), (12_288, 5120));
    // 4 s per element of [8, 16]; operands qkv [8, 48], output and a statistic per head [8, 4].
    assert_eq!(work("attention"), (4096, 4 * (384 + 128 + 32)));
    // Reads its input and writes a number per row.
    assert_eq!(work("row-sums"), (0, 4 * (128 + 8)));

    let rates = |gemm, attention, memory| DeviceRates {
        gemm_flop_per_s: gemm,
        attention_flop_per_s: attention,
        memory_bytes_per_s: memory,
        operation_latency_s: 1.0,
    };
    let seconds = |rates, name| UniformMachine { rates, network: RingNetwork::FREE }.operation_seconds(stage, op(name));
    assert_eq!(seconds(rates(12_288.0, 1.0, 1e9), "gemm"), 2.0);
    assert_eq!(seconds(rates(12_288.0, 1.0, 512.0), "gemm"), 11.0);
    assert_eq!(seconds(rates(1.0, 2048.0, 1e9), "attention"), 3.0);
    assert_eq!(seconds(rates(1.0, 1.0, 544.0), "row-sums"), 2.0);
}

#[test]
fn the_work_of_a_step_is_the_ledgers() {
    for grid in ["x=1", "x=2,y=2,z=2", "x=2,context=2,data=2,pipe=2"] {
        let program = program(3, grid, 2, |_| {});
        for stage in &program.stages {
            let ops = stage.chunks.iter().flat_map(|chunk| chunk.sections()).flat_map(|section| &section.ops);
            let flops: u128 = ops.map(|op| 2 * op.operation.work(At::first(stage)).flops()).sum();
            let rank = (0..program.layout.grid.ranks()).find(|rank| program.of_rank(*rank).stage == stage.stage);
            let ledger = quadrille_step::predict_rank(&program, rank.unwrap());
            assert_eq!(flops, ledger.flops.total().into(), "{grid}");
        }
    }
}

#[test]
fn simulated_collectives_are_those_of_the_ledger() {
    // One second per byte: the time that the streams are busy is what the first rank sends.
    let program = program(2, "x=2,y=2,z=2", 2, |_| {});
    let network = RingNetwork { latency_s: 0.0, bandwidths: [1.0; Axis::COUNT] };
    let rates = DeviceRates {
        gemm_flop_per_s: 1.0,
        attention_flop_per_s: 1.0,
        memory_bytes_per_s: 1.0,
        operation_latency_s: 0.0,
    };
    let simulation = simulate(&program, &UniformMachine { rates, network }).unwrap();
    let ledger = quadrille_step::predict_rank(&program, 0);
    for axes in [Axis::X, Axis::Y, Axis::Z].map(Axis::only).into_iter().chain([AxisSet::WORLD]) {
        let events = simulation.events.iter().filter(|event| event.lane == Lane::Axes(axes));
        let seconds: f64 = events.map(|event| event.end_s - event.start_s).sum();
        let bytes: u64 = ledger.axes[&axes.key()].values().map(|transfer| transfer.wire_bytes).sum();
        assert!(close(seconds, bytes as f64), "{axes:?}: {seconds} {bytes}");
    }
}

#[test]
fn panels_are_moved_by_the_rank_that_holds_them() {
    let summa = |request: &mut LayoutRequest| request.linear = quadrille_spec::Linear::Summa;
    let program = program(1, "x=2,y=2", 1, summa);
    let stage = &program.stages[0];
    let ops = stage.chunks[0].forward.ops.iter();
    let copies = ops.filter(|op| matches!(op.operation, Operation::CopyPanel(_)));
    let moved: Vec<u64> = copies.map(|op| op.operation.work(At::first(stage)).moved).collect();
    assert!(moved.len() >= 4 && moved.iter().all(|moved| *moved > 0));
}
