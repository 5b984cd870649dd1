//! Recomputation repeats exactly the forward work that is needed again, and saves activations.
//!
//! Letters: `m` token rows of a (data, z, context) rank in a pass, `h` hidden, `f` perceptron, `n` heads.

use proptest::prelude::*;
use quadrille_proofs::{Traffic, gpt_cases, model, program_with, recomputed};
use quadrille_spec::CollectiveKind::{AllGather, AllReduce, ReduceScatter};
use quadrille_spec::{Activations, Axis, Classic, MemoryClass, RankLedger, Recompute};
use quadrille_step::{StepProgram, predict};

const FULL: Recompute = Recompute::Full { every: 1 };
const PAIRS: Recompute = Recompute::Full { every: 2 };
const BOTH: [Activations; 2] = [Activations::Replicated, Activations::Scattered];

/// Four blocks in two microbatches.
fn kept(grid: &str, activations: Activations) -> StepProgram {
    program_with(&model(4), grid, 8, |request| {
        (request.activations, request.microbatch) = (activations, Some(4));
    })
}

/// Sizes as the closed forms use them.
struct Sizes {
    x: usize,
    y: usize,
    m: usize,
    h: usize,
    f: usize,
    context: usize,
    scattered: bool,
}

impl Sizes {
    fn of(program: &StepProgram) -> Self {
        let StepProgram { model, layout, .. } = program;
        let [x, y, context] = [Axis::X, Axis::Y, Axis::Context].map(|axis| layout.grid.size(axis));
        let scattered = layout.activations == Activations::Scattered;
        Self { x, y, m: layout.rows(), h: model.hidden, f: model.classic().ffn, context, scattered }
    }

    /// Elements of the tiles of qkv, projection, up and down.
    fn tiles(&self) -> [usize; 4] {
        let Self { x, y, h, f, .. } = *self;
        [h / y * (3 * h / x), h / x * (h / y), h / y * (f / x), f / x * (h / y)]
    }
}

/// A block's collectives in one forward pass: the dataflow note's tables A and B.
fn forward_block(program: &StepProgram) -> Traffic {
    let sizes = Sizes::of(program);
    let grid = &program.layout.grid;
    let Sizes { x, y, m, h, f, context, scattered } = sizes;
    let mut traffic = Traffic::default();
    traffic.add(grid, Axis::Z, AllGather, 4, sizes.tiles().iter().sum());
    if scattered {
        traffic.add(grid, Axis::X, AllGather, 2, 2 * m * (h / y));
        traffic.add(grid, Axis::X, ReduceScatter, 2, 2 * m * (h / y));
        traffic.add(grid, Axis::Y, ReduceScatter, 2, m * ((3 * h + f) / x));
        traffic.add(grid, Axis::Y, AllGather, 2, m * ((h + f) / x));
        traffic.add(grid, Axis::Y, AllReduce, 4, 4 * m / x);
    } else {
        traffic.add(grid, Axis::X, AllReduce, 2, 2 * m * (h / y));
        traffic.add(grid, Axis::Y, AllReduce, 2 + 4, m * ((3 * h + f) / x) + 4 * m);
    }
    let rows = if scattered { m / y } else { m };
    traffic.add(grid, Axis::Context, AllGather, 1, context * rows * (2 * h / x));
    traffic
}

/// What only the last product of a segment needs, and the sum of its result.
fn last_product(program: &StepProgram) -> Traffic {
    let sizes = Sizes::of(program);
    let grid = &program.layout.grid;
    let Sizes { y, m, h, scattered, .. } = sizes;
    let mut traffic = Traffic::default();
    traffic.add(grid, Axis::Z, AllGather, 1, sizes.tiles()[3]);
    traffic.add(grid, Axis::X, if scattered { ReduceScatter } else { AllReduce }, 1, m * (h / y));
    traffic
}

/// What selective recomputation gathers again: the inputs of qkv and up from norms, that of down from GELU.
fn gathered_again(program: &StepProgram) -> Traffic {
    let Sizes { x, y, m, h, f, scattered, .. } = Sizes::of(program);
    let mut traffic = Traffic::default();
    let grid = &program.layout.grid;
    if scattered {
        traffic.add(grid, Axis::X, AllGather, 2, 2 * m * (h / y));
        traffic.add(grid, Axis::Y, AllGather, 1, m * (f / x));
    }
    traffic
}

fn ledger(program: &StepProgram) -> RankLedger {
    predict(program).ranks.swap_remove(0)
}

/// Whether block `index` of a model without pipeline is the last of its segment.
fn ends_segment(program: &StepProgram, index: usize) -> bool {
    match program.layout.recompute {
        Recompute::Full { every } => (index + 1).is_multiple_of(every) || index + 1 == program.model.layers(),
        _ => false,
    }
}

fn check_transfers(plain: &StepProgram, recompute: Recompute) -> Result<(), TestCaseError> {
    let again = recomputed(plain, recompute, false);
    let before = ledger(plain);
    let after = ledger(&again);
    for index in 0..plain.model.layers() {
        let layer = format!("block {index}");
        let repeated = match recompute {
            Recompute::None => Traffic::default(),
            Recompute::Selective => gathered_again(plain),
            Recompute::Full { .. } if ends_segment(&again, index) => forward_block(plain).minus(&last_product(plain)),
            Recompute::Full { .. } => forward_block(plain),
        };
        let [before, after] = [&before, &after].map(|ledger| Traffic::of_layer(ledger, &layer, 8));
        let passes = plain.layout.microbatches();
        prop_assert_eq!(after.minus(&before), repeated.times(passes), "{}, {}", layer, recompute);
    }
    prop_assert_eq!(ledger(&recomputed(plain, recompute, true)).axes, before.axes, "{} with CAC", recompute);
    Ok(())
}

/// Products: those of the segment but its last; attention and GELU: all of the segment.
fn check_work(plain: &StepProgram, recompute: Recompute) -> Result<(), TestCaseError> {
    let again = recomputed(plain, recompute, false);
    let before = ledger(plain);
    let after = ledger(&again);
    let layers = plain.model.layers();
    let passes = plain.layout.microbatches();
    let tiles = Sizes::of(plain).tiles();
    let full = matches!(recompute, Recompute::Full { .. });
    let in_block =
        |index| if ends_segment(&again, index) { tiles[..3].iter().sum() } else { tiles.iter().sum::<usize>() };
    let products: usize = if full { (0..layers).map(in_block).sum() } else { 0 };
    let added = after.flops.gemm_forward - before.flops.gemm_forward;
    prop_assert_eq!(added, (2 * plain.layout.rows() * passes * products) as u64, "{}", recompute);
    let attention = if full { 2 } else { 1 } * before.flops.attention_forward;
    prop_assert_eq!(after.flops.attention_forward, attention);
    let backward = |ledger: &RankLedger| {
        let flops = ledger.flops;
        [flops.gemm_input_gradient, flops.gemm_weight_gradient, flops.attention_backward]
    };
    prop_assert_eq!(backward(&after), backward(&before));
    // Norms are computed twice but for the head's; of GELU selective recomputation has its input.
    let swept = |ledger: &RankLedger, name: &str| ledger.elements.get(name).copied().unwrap_or(0);
    prop_assert_eq!(
        swept(&after, "norm") - swept(&before, "norm"),
        swept(&before, "norm") / (2 * layers as u64 + 1) * 2 * layers as u64
    );
    let activation = if full { "bias-gelu" } else { "gelu" };
    prop_assert_eq!(swept(&after, activation) - swept(&before, activation), swept(&before, "bias-gelu"));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn repeated_work_and_transfers_are_the_closed_forms(case in gpt_cases(), every in 1..=3_usize) {
        let plain = case.program(case.layout.dtype);
        for recompute in [Recompute::Selective, Recompute::Full { every }] {
            check_transfers(&plain, recompute)?;
            check_work(&plain, recompute)?;
        }
    }
}

#[test]
fn keys_and_values_are_gathered_again() {
    for activations in BOTH {
        let plain = kept("x=2,y=2,z=2,context=2", activations);
        for recompute in [Recompute::Selective, FULL, PAIRS] {
            check_transfers(&plain, recompute).unwrap();
        }
    }
}

/// With CAC a product whose sum is kept is not computed again either.
#[test]
fn products_behind_kept_sums_are_not_repeated() {
    let forward = |program: &StepProgram| ledger(program).flops.gemm_forward;
    let plain = kept("x=2,y=2,z=2", BOTH[1]);
    assert_eq!(forward(&recomputed(&plain, FULL, true)), forward(&plain));
    let alone = kept("z=2", BOTH[1]);
    assert_eq!(forward(&recomputed(&alone, FULL, true)), forward(&recomputed(&alone, FULL, false)));
    assert!(forward(&recomputed(&alone, FULL, true)) > forward(&alone));
}

/// What a block adds to the peak of activations on one rank: the difference that blocks make to the peak.
fn growth(recompute: Recompute, grid: &str) -> u64 {
    let peak = |layers| {
        let plain = program_with(&model(layers), grid, 4, |request| request.microbatch = Some(4));
        ledger(&recomputed(&plain, recompute, false)).memory.peak_of[&MemoryClass::Activations]
    };
    assert_eq!((peak(12) - peak(8)) % (4 * 8), 0);
    (peak(12) - peak(8)) / (4 * 8)
}

/// Kept per block on one rank, `m` = 16 rows: two norms, the two halves' results, q, k and v, attention with its
/// statistics, before and after GELU; selective without norms and GELU; full the input alone.
#[test]
fn blocks_keep_what_the_recomputation_says() {
    let Classic { hidden: h, ffn: f, heads: n, seq_len, .. } = model(1).classic();
    let m = 4 * seq_len;
    assert_eq!(growth(Recompute::None, "x=1"), (m * (8 * h + 2 * f + n)) as u64);
    assert_eq!(growth(Recompute::Selective, "x=1"), (m * (6 * h + f + n)) as u64);
    assert_eq!(growth(FULL, "x=1"), (m * h) as u64);
    assert_eq!(growth(PAIRS, "x=1"), (m * h / 2) as u64);
    // Scattered over x and y. Of norms and GELU only what is gathered from them is kept for the gradients of weights:
    // h twice, cut over y, and f, cut over x; so is h from attention, cut over x, beside its own result.
    let gathered = 2 * h / 2 + (h + f) / 2;
    assert_eq!(growth(Recompute::None, "x=2,y=2"), (m * ((6 * h + f + n) / 4 + gathered)) as u64);
    assert_eq!(growth(Recompute::Selective, "x=2,y=2"), (m * ((6 * h + f + n) / 4 + h / 2)) as u64);
    assert_eq!(growth(FULL, "x=2,y=2"), (m * h / 4) as u64);
}

#[test]
fn the_more_is_computed_again_the_less_is_held() {
    for grid in ["x=1", "x=2,y=2,z=2", "x=2,context=2", "y=2,pipe=2"] {
        let plain = kept(grid, BOTH[1]);
        let peak =
            |recompute, cac| ledger(&recomputed(&plain, recompute, cac)).memory.peak_of[&MemoryClass::Activations];
        let peaks = [peak(Recompute::None, false), peak(Recompute::Selective, false), peak(FULL, false)];
        assert!(peaks[0] > peaks[1] && peaks[1] > peaks[2], "{grid}: {peaks:?}");
        let kept = peak(FULL, true);
        assert!(peaks[0] > kept && kept >= peaks[2], "{grid}: {peaks:?}, with CAC {kept}");
    }
}
