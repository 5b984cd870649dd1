//! What a framework changes in the native model: kernels, hosts, the bytes of the loss, the memory of a stage.

use quadrille_cost::native::{Eager, Framework, Moments, NarrowFormat, Numbers, Price, Problem};
use quadrille_spec::{Axis, Classic, Cluster, ElementType, Layout, LayoutRequest, Model, Norm, Overlap, Schedule};

const BATCH: usize = 16;

fn model() -> Model {
    let gpt = Model::gpt(8, 1024, 16, 32_000, 512);
    gpt.reshaped(|m| {
        m.norm = Norm::Rms;
        m.biases = false;
        m.dropout = 0.0;
    })
}

fn layout(grid: &str, chunks: usize) -> Layout {
    let schedule = if chunks > 1 { Schedule::Interleaved } else { Schedule::OneForwardOneBackward };
    let request =
        LayoutRequest { chunks, schedule, microbatch: Some(1), ..LayoutRequest::new(grid.parse().unwrap(), BATCH) };
    Layout::new(&model(), &request).unwrap()
}

fn problem(framework: Framework) -> Problem {
    Problem::new(&model(), &Cluster::preset("selene").unwrap(), framework, BATCH, 512).unwrap()
}

fn price(framework: Framework) -> Price {
    problem(framework).price_layout(&layout("data=2", 1)).unwrap()
}

/// Without a host that the device waits for.
const BASE: Framework = Framework { host_seconds: 0.0, eager: Eager::NONE, ..Framework::MEGATRON };

#[test]
fn eager_norms_move_and_keep_what_their_kernels_do() {
    let fused = price(BASE);
    let eager = price(Framework { fused_norms: false, eager: Eager { norms: true, ..Eager::NONE }, ..BASE });
    // Two norms of 8 blocks and the last one: forward 18 elements of 2 bytes instead of 2, backward 40 instead of 3.
    let elements = (512 * 1024) as f64;
    let moved = 17.0 * (16.0 + 37.0) * elements * 2.0;
    let seconds = 8.0 * moved / (2.039e12 * 0.600);
    let more = eager.parts.memory_bound - fused.parts.memory_bound;
    assert!((more / seconds - 1.0).abs() < 0.01, "{more} {seconds}");
    // 16 norms keep 5 elements of 2 bytes each until the backward pass.
    let kept = eager.memory.activations - fused.memory.activations;
    assert!((kept as f64 / (17.0 * 5.0 * 2.0 * elements) - 1.0).abs() < 0.07, "{kept}");
}

/// Products of blocks in 8 bits: half the arithmetic of those in 16, less traffic, and the casts; the head's stay.
#[test]
fn narrow_products_take_half_of_the_arithmetic_and_their_casts() {
    let mut cluster = Cluster::preset("dgx-h100").unwrap();
    let device = cluster.device.as_mut().unwrap();
    device.narrow_products = None;
    let on = |products: Option<NarrowFormat>, memory_bandwidth: f64| {
        let mut cluster = cluster.clone();
        cluster.device.as_mut().unwrap().memory_bandwidth = memory_bandwidth;
        let framework = BASE.in_formats(Numbers { products, ..Numbers::default() });
        let problem = Problem::new(&model(), &cluster, framework, BATCH, 512).unwrap();
        problem.price_layout(&layout("data=2", 1)).unwrap()
    };
    // Where memory is no limit only arithmetic differs: per token and block 24 h^2 of products forward, thrice that with backward.
    let [wide, fp8] = [None, Some(NarrowFormat::Fp8)].map(|narrow| on(narrow, 1e17).parts.compute);
    let tokens = (BATCH / 2 * 512) as f64;
    let flops = 3.0 * 8.0 * 24.0 * 1024.0 * 1024.0 * tokens;
    let shortest = flops / 989.4e12 / 0.684 / 2.0;
    assert!(wide - fp8 > shortest && wide - fp8 < 1.2 * shortest, "{wide} {fp8} {shortest}");
    // One scale a tensor reads what is cast twice, blocks of scales once.
    let memory = |narrow| on(Some(narrow), 1e11).parts.memory_bound;
    assert!(memory(NarrowFormat::Fp8) > memory(NarrowFormat::Fp8Block));
    assert!(memory(NarrowFormat::Fp8Block) > 0.0);
    let nvfp4 = BASE.in_formats(Numbers { products: Some(NarrowFormat::Nvfp4), ..Numbers::default() });
    let refused = Problem::new(&model(), &cluster, nvfp4, BATCH, 512);
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("peak.fp4") && text.contains("h100"), "{text}");
}

/// 16-bit gradients, and moments of a byte, of Megatron-LM: 2 + 2 + 4 + 2 bytes of a parameter instead of 2 + 4 + 4 + 8.
#[test]
fn narrow_states_take_as_many_bytes_as_said() {
    let numbers = Numbers { gradients: Some(ElementType::Bf16), moments: Some(Moments::Fp8), products: None };
    let [usual, narrow] = [BASE, BASE.in_formats(numbers)].map(|framework| price(framework).memory);
    assert_eq!((usual.gradients, narrow.gradients), (2 * narrow.gradients, usual.gradients / 2));
    assert_eq!(usual.optimizer / 12, narrow.optimizer / 6);
    assert_eq!(usual.parameters, narrow.parameters);
    // What products are cast to changes no state: neither masters nor what ZeRO gathers.
    let fp8 = Numbers { products: Some(NarrowFormat::Fp8), ..Numbers::default() };
    let [usual, fp8] = [BASE, BASE.in_formats(fp8)].map(|framework| price_on_h100(framework).memory);
    assert_eq!([usual.parameters, usual.gradients, usual.optimizer], [fp8.parameters, fp8.gradients, fp8.optimizer]);
    // Of 512 tokens and 8 blocks, inputs of products are kept in a byte less: both norms' results of 1,024 columns and what is
    // activated, 4,096. The result of attention, whose backward pass reads it, is kept beside its copy in 8 bits.
    assert_eq!(usual.activations - fp8.activations, 512 * 8 * (2 * 1024 + 4096 - 1024));
    assert_eq!(usual.buffers, fp8.buffers);
}

/// Two heads of one sequence are none of the fours that a block of the fused softmax takes, and 8,192 tokens too many for a warp.
#[test]
fn scores_that_the_fused_softmax_does_not_take_are_computed_by_eager_kernels() {
    let stored = |scores| Framework { eager: Eager { scores, ..Eager::NONE }, ..Framework::MEGATRON_STORED };
    let on = |microbatch: usize, seq_len: usize, scores: bool| {
        let model = Model::gpt(2, 1024, 16, 32_000, seq_len);
        let cluster = Cluster::preset("selene").unwrap();
        let problem = Problem::new(&model, &cluster, stored(scores), BATCH, seq_len).unwrap();
        let request =
            LayoutRequest { microbatch: Some(microbatch), ..LayoutRequest::new("x=8".parse().unwrap(), BATCH) };
        problem.price_layout(&Layout::new(&model, &request).unwrap()).unwrap().seconds
    };
    assert_eq!(on(1, 512, false), on(1, 512, true));
    assert!(on(2, 512, false) < 0.98 * on(2, 512, true));
    assert!(on(2, 4096, false) < 0.9 * on(2, 4096, true));
    assert_eq!(on(2, 8192, false), on(2, 8192, true));
}

/// A block takes twice as many rows of sequences up to 128 tokens: four heads are too few, two sequences of them are enough.
#[test]
fn short_sequences_fuse_by_eights() {
    let on = |microbatch, scores| {
        let framework = Framework { eager: Eager { scores, ..Eager::NONE }, ..Framework::MEGATRON_STORED };
        stored_on_x_4(framework, 128, microbatch, |_| {}).seconds
    };
    assert_eq!(on(1, false), on(1, true));
    assert!(on(2, false) < 0.98 * on(2, true));
}

/// What lies above the diagonal is not read: half an element of two bytes a score less forward, one less backward. Masks of dropout are
/// written forward and read backward, beside those of the residual stream.
#[test]
fn a_fused_softmax_moves_what_its_mask_leaves() {
    let base = Framework { attention: Framework::MEGATRON_STORED.attention, ..BASE };
    let [causal, all] = [true, false].map(|causal| stored_on_x_4(base, 1024, 1, |m| m.causal = causal));
    let scores = 2.0 * 16.0 * 4.0 * 1024.0 * 1024.0;
    let byte = 1.0 / (2.039e12 * 0.600);
    let more = all.parts.memory_bound - causal.parts.memory_bound;
    assert!((more / (1.5 * 2.0 * scores * byte) - 1.0).abs() < 1e-6, "{more}");
    let [drawn_again, stored] = [0, 1].map(|mask_bytes| {
        stored_on_x_4(Framework { mask_bytes, ..base }, 1024, 1, |m| m.dropout = 0.1).parts.memory_bound
    });
    let more = stored - drawn_again;
    assert!(more >= 2.0 * scores * byte * (1.0 - 1e-9), "{more}");
}

/// A model of two blocks and sixteen heads on four ranks of one node.
fn stored_on_x_4(framework: Framework, seq_len: usize, microbatch: usize, change: impl Fn(&mut Classic)) -> Price {
    let model = Model::gpt(2, 1024, 16, 32_000, seq_len).reshaped(change);
    let cluster = Cluster::preset("selene").unwrap();
    let request = LayoutRequest { microbatch: Some(microbatch), ..LayoutRequest::new("x=4".parse().unwrap(), BATCH) };
    let problem = Problem::new(&model, &cluster, framework, BATCH, seq_len).unwrap();
    problem.price_layout(&Layout::new(&model, &request).unwrap()).unwrap()
}

/// What collectives beside them leave to kernels stretches a step that has some, and counts as communication.
#[test]
fn kernels_beside_collectives_are_slower() {
    let on = |overlap: Overlap, compute_share: f64| {
        let request = LayoutRequest { overlap, ..LayoutRequest::new("z=2".parse().unwrap(), BATCH) };
        let layout = Layout::new(&model(), &request).unwrap();
        problem(Framework { compute_share, ..BASE }).price_layout(&layout).unwrap()
    };
    let [whole, half] = [1.0, 0.5].map(|share| on(Overlap::ALL, share));
    assert_eq!(whole.parts.compute, half.parts.compute);
    let longer = half.seconds - whole.seconds;
    let communication = |price: &Price| price.parts.communication[Axis::Z as usize];
    assert!(longer > 0.01 * whole.seconds, "{whole:?} {half:?}");
    assert!((communication(&half) - communication(&whole) - longer).abs() < 1e-9 * whole.seconds, "{whole:?} {half:?}");
    // Without overlap almost nothing runs beside each other.
    let [whole, half] = [1.0, 0.5].map(|share| on(Overlap::NONE, share));
    assert!(half.seconds < 1.001 * whole.seconds, "{whole:?} {half:?}");
}

fn price_on_h100(framework: Framework) -> Price {
    let cluster = Cluster::preset("dgx-h100").unwrap();
    Problem::new(&model(), &cluster, framework, BATCH, 512).unwrap().price_layout(&layout("data=2", 1)).unwrap()
}

#[test]
fn a_slow_host_sets_the_pace_of_short_operations_only() {
    let device = price(BASE);
    let slightly = price(Framework { host_seconds: 1e-9, ..BASE });
    assert_eq!(device.seconds, slightly.seconds);
    let slow = price(Framework { host_seconds: 1e-3, ..BASE });
    let slower = price(Framework { host_seconds: 2e-3, ..BASE });
    // Everything waits for the host: twice as slow a host, twice the time of the passes.
    let passes = |price: &Price| price.seconds - price.parts.optimizer - price.parts.communication.iter().sum::<f64>();
    assert!((passes(&slower) / passes(&slow) - 2.0).abs() < 0.02, "{} {}", passes(&slow), passes(&slower));
    // A host that waits for every operation adds to each.
    let blocking = price(Framework { dispatch_seconds: 1e-3, ..BASE });
    assert!(blocking.seconds > device.seconds + 0.5 * passes(&slow), "{}", blocking.seconds);
}

#[test]
fn attention_runs_at_the_frameworks_rate() {
    let [fast, slow] = [0.5, 0.25].map(|attention_rate| price(Framework { attention_rate, ..BASE }).parts.compute);
    // 4 s^2 h FLOP forward and 2.5 times that backward, half of it under the mask; 8 passes of 8 blocks. Arithmetic is the
    // limit at either rate.
    let flops = 8.0 * 8.0 * 3.5 * 0.5 * 4.0 * 512.0 * 512.0 * 1024.0;
    // 16 heads, each of 512 rows of queries.
    let efficiency = 0.541 / (1.0 + 737.0 / 512.0 + 16_384.0 / (16.0 * 512.0));
    let seconds = flops / (312e12 * efficiency);
    assert!(((slow - fast) / (2.0 * seconds) - 1.0).abs() < 0.02, "{} {seconds}", slow - fast);
}

#[test]
fn logits_count_with_all_their_copies() {
    let [four, sixteen] = [4, 16].map(|loss_bytes| price(Framework { loss_bytes, ..BASE }).memory);
    assert_eq!(sixteen.activations - four.activations, 12 * 512 * 32_000);
}

#[test]
fn an_interleaved_last_stage_holds_the_logits_of_one_microbatch() {
    let problem = problem(BASE);
    let [plain, interleaved] = [1, 2].map(|chunks| {
        let program = problem.program(&layout("pipe=4", chunks)).unwrap();
        problem.memory_of_stage_program(program.stages.last().unwrap())
    });
    let logits = 6 * 512 * 32_000;
    assert!(plain.activations > logits && interleaved.activations > plain.activations);
    // Four more pieces of one block, less than the logits of another microbatch.
    assert!(interleaved.activations - plain.activations < logits, "{plain:?} {interleaved:?}");
}
