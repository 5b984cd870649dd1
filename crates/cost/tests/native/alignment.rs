//! Where operands begin, in what they are gathered and how often their gradients are summed: what frameworks do differently.

use quadrille_cost::native::{Framework, NarrowFormat, Numbers, Price, Problem, StateBytes};
use quadrille_spec::{Activation, Activations, Axis, Cluster, CollectiveKind, Layout, LayoutRequest, Model};
use quadrille_step::predict_rank;

const BATCH: usize = 8;
const TOKENS: usize = 1024;

/// Without a host that the device waits for.
const STORED: Framework = Framework { host_seconds: 0.0, ..Framework::MEGATRON_STORED };
const FLASH: Framework = Framework { host_seconds: 0.0, ..Framework::MEGATRON };

fn layout(model: &Model, grid: &str, activations: Activations) -> Layout {
    let request =
        LayoutRequest { activations, microbatch: Some(1), ..LayoutRequest::new(grid.parse().unwrap(), BATCH) };
    Layout::new(model, &request).unwrap()
}

fn price(framework: Framework, model: &Model, grid: &str) -> Price {
    let cluster = Cluster::preset("dgx-h100").unwrap();
    let problem = Problem::new(model, &cluster, framework, BATCH, TOKENS).unwrap();
    problem.price_layout(&layout(model, grid, Activations::Scattered)).unwrap()
}

/// Bytes of the buffers of a kind of collectives that the first rank takes part in over x.
fn sent(framework: Framework, model: &Model, grid: &str, activations: Activations, kind: CollectiveKind) -> u64 {
    let cluster = Cluster::preset("dgx-b200").unwrap();
    let problem = Problem::new(model, &cluster, framework, BATCH, TOKENS).unwrap();
    let program = problem.program(&layout(model, grid, activations)).unwrap();
    predict_rank(&program, 0).axes[&Axis::X.only().key()].get(&kind).map_or(0, |transfer| transfer.payload_bytes)
}

fn gpt(head_dim: usize) -> Model {
    Model::gpt(4, 16 * head_dim, 16, 32_000, TOKENS)
}

fn llama() -> Model {
    Model::gpt(4, 1024, 16, 32_000, TOKENS).reshaped(|m| {
        m.activation = Activation::Swiglu;
        m.biases = false;
    })
}

/// Heads of 108 columns of 16 bits begin at multiples of 8 bytes: their products run on the units for vectors. Flash attention pads, and
/// heads of 106 columns begin anywhere.
#[test]
fn products_of_heads_that_begin_between_run_without_tensor_cores() {
    let compute = |framework: Framework, head_dim| price(framework, &gpt(head_dim), "data=2").parts.compute;
    let [below, between, above] = [104, 108, 112].map(|head_dim| compute(STORED, head_dim));
    assert!(below < above && between > 2.0 * above, "{below} {between} {above}");
    assert!(compute(STORED, 106) < above);
    // Six products of scores and values a block, of 2 s^2 d FLOP a head, each at the rate of vectors in place of that of products.
    let flops = (BATCH / 2 * 4 * 6 * 16) as f64 * 2.0 * (TOKENS * TOKENS * 108) as f64;
    let device = Cluster::preset("dgx-h100").unwrap().device.unwrap();
    let slowest = flops / device.vector_rate / 0.4;
    let fastest = flops / device.vector_rate;
    let more = between - (below + above) / 2.0;
    assert!(more > 0.9 * fastest && more < slowest, "{fastest} {more} {slowest}");
    let [below, between, above] = [104, 108, 112].map(|head_dim| compute(FLASH, head_dim));
    assert!(below < between && between < above, "{below} {between} {above}");
}

/// Rows of 50,257 columns begin anywhere, of 50,260, padded or not, at multiples of 8 bytes.
#[test]
fn logits_of_a_vocabulary_that_nobody_pads_are_slow() {
    let cluster = Cluster::preset("dgx-h100").unwrap();
    let compute = |vocab_multiple, vocab| {
        let model = Model::gpt(4, 1024, 16, vocab, TOKENS);
        let layout = Layout { vocab_multiple, ..layout(&model, "data=2", Activations::Scattered) };
        let problem = Problem::new(&model, &cluster, FLASH, BATCH, TOKENS).unwrap();
        problem.price_layout(&layout).unwrap().parts.compute
    };
    let [padded, anywhere] = [4, 1].map(|multiple| compute(multiple, 50_257));
    assert_eq!(padded, compute(1, 50_260));
    // Three products of 2 t h v FLOP, each at `unaligned_rate` of what they had.
    let flops = (3 * BATCH / 2 * TOKENS) as f64 * 2.0 * (1024 * 50_257) as f64;
    let shortest = flops / 989.4e12 * (1.0 / FLASH.unaligned_rate - 1.0);
    let more = anywhere - padded;
    assert!(more > shortest && more < 2.0 * shortest, "{more} {shortest}");
}

/// Products of weight gradients read and write the sums of microbatches, under which few tokens cannot hide.
#[test]
fn weight_gradients_are_added_to_sums() {
    let model = Model::gpt(4, 1024, 16, 32_000, TOKENS);
    let mut cluster = Cluster::preset("dgx-h100").unwrap();
    let passes = |cluster: &Cluster, gradient| {
        let states = StateBytes { gradient, ..FLASH.states };
        let problem = Problem::new(&model, cluster, Framework { states, ..FLASH }, BATCH, TOKENS).unwrap();
        let parts = problem.price_layout(&layout(&model, "data=2", Activations::Scattered)).unwrap().parts;
        parts.compute + parts.memory_bound
    };
    let bandwidth = cluster.device.as_ref().unwrap().memory_bandwidth;
    let mut slower = |factor: f64| {
        let device = cluster.device.as_mut().unwrap();
        device.memory_bandwidth = bandwidth / factor;
        let more = passes(&cluster, 4) - passes(&cluster, 2);
        more * cluster.device.as_ref().unwrap().memory_bandwidth * cluster.device.as_ref().unwrap().memory_efficiency
    };
    // Of every matrix and the head, in each of four microbatches: two bytes more are read and written, where all products wait. Sums of
    // vectors and tables are longer, too.
    let elements = 4 * 12 * 1024 * 1024 + 32_000 * 1024;
    let wanted = (BATCH / 2 * elements * (2 + 2)) as f64;
    let found = slower(100.0);
    assert!(found >= wanted && found < 1.01 * wanted, "{found} {wanted}");
    assert!(slower(0.01) < 0.01 * wanted, "products that wait for nothing have room for them");
}

/// What libraries reach of the rate of products slows these alone, in 16 and in 8 bits.
#[test]
fn products_run_at_the_rate_of_their_libraries() {
    for products in [None, Some(NarrowFormat::Fp8)] {
        let base = FLASH.in_formats(Numbers { products, ..Numbers::default() });
        let compute = |product_rate| price(Framework { product_rate, ..base }, &gpt(64), "data=2").parts.compute;
        let [whole, half, third] = [1.0, 1.0 / 2.0, 1.0 / 3.0].map(compute);
        assert!(half > 1.5 * whole && half < 2.0 * whole, "{half} {whole}");
        assert!(((third - half) / (half - whole) - 1.0).abs() < 1e-9, "{third} {half} {whole}");
    }
}

/// Inputs of a block's two products are gathered as bytes, and again for the gradients of their weights; gradients as bytes where one
/// scale is for both orders, else in both orders. The head's input and the gradient of the embedding keep their 16 bits, and so does
/// what is summed, and what stages send each other where activations are replicated.
#[test]
fn operands_are_gathered_in_the_bits_that_they_are_multiplied_in() {
    let narrow = |format| FLASH.in_formats(Numbers { products: Some(format), ..Numbers::default() });
    let of = |framework, kind| sent(framework, &gpt(64), "x=4", Activations::Scattered, kind);
    let gathered = |framework| of(framework, CollectiveKind::AllGather);
    let once = (BATCH * TOKENS * 1024) as u64;
    // Of four blocks two inputs, these again, and two gradients; of the head an input, and of the embedding a gradient.
    let [inputs, gradients, others] = [4 * 4, 4 * 2, 2].map(|count| count * once);
    assert_eq!(gathered(FLASH), 2 * (inputs + gradients + others));
    for format in [NarrowFormat::Fp8, NarrowFormat::Nvfp4] {
        assert_eq!(gathered(narrow(format)), inputs + gradients + 2 * others, "{format}");
    }
    for format in [NarrowFormat::Mxfp8, NarrowFormat::Fp8Block] {
        assert_eq!(gathered(narrow(format)), inputs + 2 * gradients + 2 * others, "{format}");
    }
    let fp8 = narrow(NarrowFormat::Fp8);
    let [wide, summed] = [FLASH, fp8].map(|framework| of(framework, CollectiveKind::ReduceScatter));
    assert_eq!(wide, summed);
    let between =
        |framework| sent(framework, &gpt(64), "x=4,pipe=2", Activations::Replicated, CollectiveKind::AllGather);
    assert!(between(FLASH) > 0 && between(FLASH) == between(fp8));
}

/// Experts' tokens are gathered as they were sent.
#[test]
fn tokens_of_experts_are_gathered_in_16_bits() {
    let model = Model::preset("mixtral-8x7b").unwrap();
    let narrow = FLASH.in_formats(Numbers { products: Some(NarrowFormat::Fp8), ..Numbers::default() });
    let of = |framework| sent(framework, &model, "x=2,expert=2", Activations::Scattered, CollectiveKind::AllGather);
    let dense = Model::preset("llama2-7b").unwrap();
    let all = |framework| sent(framework, &dense, "x=2,data=2", Activations::Scattered, CollectiveKind::AllGather);
    let left = |of: &dyn Fn(Framework) -> u64| of(narrow) as f64 / of(FLASH) as f64;
    assert!(left(&of) > 1.2 * left(&all), "{} {}", left(&of), left(&all));
}

/// Gate and up projection that are layers of their own sum their input gradients apart: five sums of a block where there were four.
/// Scattered inputs are gathered once, and so is their gradient scattered.
#[test]
fn gates_that_are_apart_sum_twice() {
    let apart = Framework { gates_apart: true, ..FLASH };
    let of =
        |framework, model: &Model| sent(framework, model, "x=4", Activations::Replicated, CollectiveKind::AllReduce);
    let [together, twice] = [FLASH, apart].map(|framework| of(framework, &llama()));
    let one = (BATCH * TOKENS * 1024 * 2) as u64;
    assert_eq!(twice - together, 4 * one);
    assert_eq!(of(FLASH, &gpt(64)), of(apart, &gpt(64)));
    for kind in [CollectiveKind::AllGather, CollectiveKind::ReduceScatter] {
        let of = |framework| sent(framework, &llama(), "x=4", Activations::Scattered, kind);
        assert_eq!(of(FLASH), of(apart));
    }
    // Rows in two parts take no more memory of weights, whose halves are nobody's parts.
    let held = |overlap_chunks| {
        let request = LayoutRequest {
            activations: Activations::Replicated,
            microbatch: Some(2),
            overlap_chunks,
            ..LayoutRequest::new("x=4".parse().unwrap(), BATCH)
        };
        let layout = Layout::new(&llama(), &request).unwrap();
        let cluster = Cluster::preset("dgx-h100").unwrap();
        Problem::new(&llama(), &cluster, apart, BATCH, TOKENS).unwrap().price_layout(&layout).unwrap().memory
    };
    let [whole, parts] = [1, 2].map(held);
    assert_eq!(whole.parameters, parts.parameters);
    assert!(parts.buffers <= whole.buffers, "{parts:?} {whole:?}");
    let [together, twice] = [FLASH, apart].map(|framework| price(framework, &llama(), "data=2"));
    assert!((together.parts.compute / twice.parts.compute - 1.0).abs() < 0.02);
}
