//! Buffers of experts as each framework allocates them.

use quadrille_cost::native::{Framework, Memory, NarrowFormat, Numbers};
use quadrille_spec::{Axis, Cluster, Layout, LayoutRequest, Model, Zero};

use crate::case::Case;

const GIB: f64 = (1u64 << 30) as f64;

/// A preset's model on a preset's cluster, under ZeRO 1, with experts over the axis expert.
fn case(model: &str, cluster: &str, grid: &str, [global_batch, microbatch, seq_len]: [usize; 3]) -> Case {
    let model = Model::preset(model).unwrap();
    let request = LayoutRequest {
        seq_len: Some(seq_len),
        microbatch: Some(microbatch),
        zero: Zero::Optimizer,
        experts_over: Some(Axis::Expert.only()),
        ..LayoutRequest::new(grid.parse().unwrap(), global_batch)
    };
    let layout = Layout::new(&model, &request).unwrap();
    Case { layout, model, cluster: Cluster::preset(cluster).unwrap(), imbalance: 1.0 }
}

fn memory(case: &Case, framework: Framework) -> Memory {
    case.problem(framework).price_layout(&case.layout).unwrap().memory
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / GIB
}

/// Bytes in tensors.
fn tensors(memory: &Memory) -> u64 {
    memory.total() - memory.framework
}

fn mixtral() -> Case {
    case("mixtral-8x7b", "dgx-h100", "x=2,expert=8", [128, 1, 2048])
}

/// Megatron-LM on 16 H100 had 53.0 GiB of states and 60.0 GiB reserved after the first step.
#[test]
fn megatron_gives_experts_of_mixtral_the_rows_that_are_routed() {
    let case = mixtral();
    let memory = memory(&case, Framework::MEGATRON);
    let states = gib(memory.parameters + memory.gradients + memory.optimizer);
    assert!((states / 53.0 - 1.0).abs() < 0.005, "{states} GiB of states");
    let tensors = gib(tensors(&memory));
    assert!((60.0..62.0).contains(&tensors), "{tensors} GiB of tensors");
    assert!(memory.total() <= case.cluster.device_memory.unwrap(), "{memory:?}");

    // A layer on a rank, of 2048 tokens and twice as many rows of experts, half of them on a rank along x before they are gathered, in
    // numbers of 2 bytes: twice a residual stream and its norm of half the tokens, queries, keys and values of half the heads, what
    // attention gives, rows that were dispatched, what the gated product gives for half the width, and what is activated of it.
    let tokens = 2048;
    let rows = 4096;
    let hidden = 4096;
    let width = 14_336;
    let layer = 4 * tokens / 2 * hidden + tokens * (4096 + 2 * 1024) / 2 + tokens * 4096 / 2;
    let experts = rows / 2 * hidden + rows * 3 * width / 2;
    let expected = gib(32 * 2 * (layer + experts));
    let activations = gib(memory.activations + memory.buffers);
    assert!((expected..expected + 1.0).contains(&activations), "{activations} GiB, {expected} between the passes");
}

/// Its recipe of Megatron-Bridge runs on 8 GB200 of 186 GiB in 8 bits; in 16 bits the states and the stream of a microbatch fit as well.
#[test]
fn megatron_fits_the_recipe_of_qwen3_into_gb200() {
    let case = case("qwen3-30b-a3b", "gb200-nvl72", "expert=8", [512, 4, 4096]);
    let device = case.cluster.device_memory.unwrap();
    let narrow = Numbers { products: Some(NarrowFormat::Mxfp8), ..Numbers::default() };
    for framework in [Framework::MEGATRON, Framework::MEGATRON.in_formats(narrow)] {
        let memory = memory(&case, framework);
        assert!(memory.total() <= device, "{:?}: {} GiB", framework.numbers, gib(memory.total()));
    }
}

/// Rows of experts grow with their imbalance where a framework allocates the routed ones; nothing else does.
#[test]
fn rows_of_experts_grow_with_the_imbalance_where_routed_ones_are_allocated() {
    let equal = mixtral();
    let unequal = equal.unequal(1.5).unwrap();
    for framework in [Framework::MEGATRON, Framework::FSDP] {
        let [less, more] = [&equal, &unequal].map(|case| memory(case, framework));
        assert_eq!(
            [less.parameters, less.gradients, less.optimizer],
            [more.parameters, more.gradients, more.optimizer]
        );
        // Dispatched, gated and activated rows of 32 layers; results that are kept are with their tokens.
        let row = 2 * (4096 / 2 + 3 * 14_336 / 2);
        let expected = gib(32 * 4096 / 2 * row);
        let grown = gib(tensors(&more) - tensors(&less));
        assert!((0.95..1.2).contains(&(grown / expected)), "{}: {grown} GiB, {expected} expected", framework.name);
    }
}

/// This program's engine has room for twice to four times the rows of equal loads, and keeps experts' results: more than others.
#[test]
fn the_own_engine_reserves_room_for_more_rows() {
    let case = mixtral();
    let own = memory(&case, Framework::own("bf16".parse().unwrap(), "f32".parse().unwrap()));
    assert!(own.activations + own.buffers > 2 * memory(&case, Framework::MEGATRON).activations, "{own:?}");
}
