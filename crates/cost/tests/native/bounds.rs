//! Bounds against the prices of programs: never above them, and seldom far below.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use quadrille_cost::native::{Bounds, Candidate, Framework, Learned, Problem};
use quadrille_spec::{
    Activations, Axis, AxisSet, Cluster, ElementType, EvenPieces, Grid, KeepWeights, Layout, LayoutRequest, Linear,
    Model, Offload, Overlap, Recompute, Schedule, Zero,
};
use rayon::prelude::*;

use crate::case::{Case, PUBLISHED, changed, fast_networks, fixed, fixed_described, fixed_mixed, frameworks};

/// What [`ratios`] are of.
const BOUNDS: [&str; 9] = [
    "blocks",
    "fastest",
    "passes",
    "seconds",
    "seconds by lists",
    "bytes of passes",
    "bytes",
    "bytes by lists",
    "blocks of the fastest",
];

/// Bounds over the price: of the seconds by blocks alone, by the fastest passes, by passes, in full, and along the schedule;
/// of the bytes by passes, in full, and along the schedule; of the seconds by blocks if nothing is computed or gathered again,
/// which searches take for all that is.
fn ratios(case: &Case, framework: Framework) -> Option<[f64; 9]> {
    ratios_knowing(case, framework, &Learned::default())
}

/// The same with what other cases have taught.
fn ratios_knowing(case: &Case, framework: Framework, learned: &Learned) -> Option<[f64; 9]> {
    let problem = case.problem(framework);
    // Pruned keys have no copies.
    let copies = case.model.blocks.kinds().iter().any(|block| case.layout.kv_copies(&block.attention) > 1);
    let refused = framework.sparsity.is_some() && copies;
    if refused || problem.check_placed(&case.layout).is_err() || !EvenPieces::are(&case.layout.stage_blocks) {
        return None;
    }
    let candidate = case.candidate();
    let mut bounds = Bounds::knowing(&problem, learned);
    let price = problem.price_layout(&case.layout).unwrap();
    let block = bounds.block_seconds(&candidate).unwrap();
    let least = Candidate {
        recompute: Recompute::None,
        keep_communicated: true,
        keep_weights: KeepWeights::Step,
        zero: Zero::Off,
        ..candidate
    };
    let least = bounds.block_seconds(&least).unwrap();
    let passes = bounds.passes(&candidate).unwrap();
    let pieces = bounds.pieces(&candidate).unwrap();
    let fastest = bounds.fastest_passes(&candidate).unwrap();
    let by_lists = bounds.by_lists(&candidate, &pieces).unwrap();
    let seconds = [
        bounds.seconds_of_blocks(&candidate, block),
        bounds.seconds_of_passes(&candidate, &fastest),
        bounds.seconds_of_passes(&candidate, &passes),
        bounds.seconds(&candidate, &pieces),
        by_lists.0,
        bounds.seconds_of_blocks(&candidate, least),
    ];
    let bytes = [bounds.bytes(&candidate, &passes), bounds.bytes(&candidate, &pieces), by_lists.1];
    let [blocks, fastest, passes, seconds, along, least] = seconds.map(|seconds| seconds / price.seconds);
    let [of_passes, bytes, bytes_along] = bytes.map(|bytes| bytes as f64 / price.memory.total() as f64);
    Some([blocks, fastest, passes, seconds, along, of_passes, bytes, bytes_along, least])
}

/// Candidates of one problem on twelve ranks, with all kinds of switches, several of each block's sizes.
fn candidates(problem: &Problem, model: &Model) -> Vec<Candidate> {
    let recompute = [Recompute::None, Recompute::Selective, Recompute::Full { every: 1 }, Recompute::Full { every: 2 }];
    let mut all = Vec::new();
    for (number, grid) in Grid::all_over(12, AxisSet::WORLD).into_iter().enumerate() {
        let [x, y, z, context] = [Axis::X, Axis::Y, Axis::Z, Axis::Context].map(|axis| grid.size(axis));
        let which = x + 2 * y + 3 * z + 4 * context;
        for (other, (_, schedule)) in Schedule::ALL.into_iter().enumerate() {
            let request = LayoutRequest {
                schedule,
                activations: Activations::ALL[which % 2].1,
                linear: if which % 3 == 0 { Linear::Summa } else { Linear::Pmm },
                recompute: recompute[which % 4],
                keep_weights: KeepWeights::ALL[which % 2].1,
                microbatch: Some(12),
                zero: Zero::ALL[(number + other) % 3].1,
                dtype: ElementType::F32,
                ..LayoutRequest::new(grid, BATCH)
            };
            all.extend(Layout::if_legal(model, &request).map(|layout| problem.candidate(&layout)));
        }
    }
    all
}

/// Sequences of a step of [`candidates`].
const BATCH: usize = 12 * 12;

/// What they are of.
fn problem() -> (Model, Problem) {
    let model = Model::gpt(14, 96, 12, 1001, 48);
    let cluster = Cluster::preset("summit").unwrap();
    let problem = Problem::new(&model, &cluster, Framework::QUADRILLE, BATCH, model.seq_len).unwrap();
    (model, problem)
}

/// Bounds know templates of the candidates that came before, in the sizes of the last one: that changes nothing.
#[test]
fn bounds_do_not_depend_on_what_was_bounded_before() {
    let (model, problem) = problem();
    let of = |bounds: &mut Bounds, c: &Candidate| {
        let block = bounds.block_seconds(c).unwrap();
        let [passes, pieces] = [bounds.passes(c).unwrap(), bounds.pieces(c).unwrap()];
        let seconds = [bounds.seconds_of_passes(c, &passes), bounds.seconds(c, &pieces)];
        (block, seconds, [&passes, &pieces].map(|pieces| bounds.bytes(c, pieces)))
    };
    let all = candidates(&problem, &model);
    let fresh: Vec<_> = all.iter().map(|c| of(&mut Bounds::new(&problem), c)).collect();
    let mut runner = TestRunner::deterministic();
    let mut first = Bounds::new(&problem);
    for _ in 0..3 {
        let order = Just((0..all.len()).collect::<Vec<_>>()).prop_shuffle().new_tree(&mut runner).unwrap().current();
        let mut beside = first.beside();
        for at in order {
            assert_eq!(of(&mut beside, &all[at]), fresh[at], "{:?}", all[at]);
            assert_eq!(of(&mut first, &all[at]), fresh[at], "{:?}", all[at]);
        }
    }
}

/// What a search knows of the passes of some data, pipe, schedule and ZeRO stage serves others.
#[test]
fn passes_serve_all_that_shares_the_sizes_of_a_block() {
    let (model, problem) = problem();
    let all = candidates(&problem, &model);
    let shared = |c: &Candidate| {
        let mut alike = Candidate { schedule: Schedule::OneForwardOneBackward, zero: Zero::Off, ..*c };
        for outer in [Axis::Data, Axis::Pipe] {
            alike.sizes[outer as usize] = 1;
            alike.inside[outer as usize] = 1;
        }
        let kind = (c.size(Axis::Pipe) > 1, c.schedule == Schedule::ZeroBubble);
        (alike, kind, problem.ranks_by_tier(c.sizes, c.inside))
    };
    let keys: Vec<_> = all.iter().map(shared).collect();
    let mut bounds = Bounds::new(&problem);
    let mut others_served = 0;
    for (one, key) in all.iter().zip(&keys) {
        let block = bounds.block_seconds(one).unwrap();
        let passes = bounds.passes(one).unwrap();
        for (other, _) in all.iter().zip(&keys).filter(|(other, others)| *other != one && *others == key) {
            assert_eq!(bounds.block_seconds(other).unwrap(), block, "{one:?} for {other:?}");
            let own = bounds.passes(other).unwrap();
            let known = |passes| (bounds.seconds_of_passes(other, passes), bounds.bytes(other, passes));
            assert_eq!(known(&passes), known(&own), "{one:?} for {other:?}");
            others_served += usize::from(one.size(Axis::Data) != other.size(Axis::Data));
        }
    }
    assert!(others_served > 100, "{others_served}");
}

/// Gradients that z cuts already are added in shorter shards where ZeRO scatters them too: on a fast network a step is faster
/// with it than without. Bounds that serve every stage are below both.
#[test]
fn bounds_of_every_zero_stage_hold_where_the_last_is_the_fastest() {
    let model = Model::preset("gpt-demo").unwrap();
    let cluster = Cluster::preset("selene").unwrap();
    let request = LayoutRequest::new("z=2,data=4".parse().unwrap(), 4 * 2 * 512);
    let off = LayoutRequest { microbatch: Some(2), dtype: ElementType::F32, ..request };
    let case = |zero| Case {
        layout: Layout::new(&model, &LayoutRequest { zero, ..off.clone() }).unwrap(),
        model: model.clone(),
        cluster: fast_networks(&cluster),
        imbalance: 1.0,
    };
    let seconds = |case: &Case| case.problem(Framework::QUADRILLE).price_layout(&case.layout).unwrap().seconds;
    let [off, cut] = [Zero::Off, Zero::Gradients].map(case);
    assert!(seconds(&cut) < seconds(&off), "{} and {}", seconds(&cut), seconds(&off));
    for case in [off, cut] {
        let ratios = ratios(&case, Framework::QUADRILLE).unwrap();
        assert!(ratios.iter().all(|ratio| *ratio <= 1.0), "{ratios:?} of {:?}", case.layout.zero);
    }
}

/// What nothing hides, blocks stand still for: the roughest bound knows it.
#[test]
fn blocks_stand_still_for_what_nothing_hides() {
    let model = Model::gpt(12, 1024, 16, 1000, 256);
    let cluster = Cluster::preset("summit").unwrap();
    let request = LayoutRequest {
        overlap: Overlap::NONE,
        dtype: ElementType::F32,
        per_node: Some(1),
        ..LayoutRequest::new("x=8".parse().unwrap(), 64)
    };
    let layout = Layout::new(&model, &request).unwrap();
    let case = Case { layout, model, cluster, imbalance: 1.0 };
    let on_fast = Case { cluster: fast_networks(&case.cluster), ..case.clone() };
    let of = |case: &Case| ratios(case, Framework::QUADRILLE).unwrap()[0];
    let price = |case: &Case| case.problem(Framework::QUADRILLE).price_layout(&case.layout).unwrap().seconds;
    // Computations and the longest stream are each well below the price.
    assert!((0.2..0.8).contains(&(price(&on_fast) / price(&case))), "{}", price(&on_fast) / price(&case));
    assert!([of(&case), of(&on_fast)].iter().all(|ratio| *ratio > 0.85), "{} {}", of(&case), of(&on_fast));
}

/// Beside experts over z one overlap chunk may be through a segment of recomputation before the next begins: of what they hold
/// only one chunk's is sure.
#[test]
fn bounds_hold_where_an_overlap_chunk_goes_ahead_of_others() {
    let text = "name = \"m\"\nlayers = 8\nhidden = 1536\nheads = 24\npatch_values = 768\ncausal = false\nseq_len = 48\nexperts = 2\n\
                capacity = 5.0\ncapacity_group = 6\nrouter = \"sigmoid\"\nrouter_normalize = false\nrouter_z_loss = 0.1\n";
    let model = Model::from_toml(text, &[]).unwrap();
    let cluster = Cluster::preset("selene").unwrap();
    for schedule in [Schedule::Gpipe, Schedule::MessageDriven] {
        let request = LayoutRequest {
            schedule,
            activations: Activations::Replicated,
            overlap: Overlap::NONE,
            overlap_chunks: 2,
            recompute: Recompute::Full { every: 4 },
            zero: Zero::Gradients,
            experts_over: Some(Axis::Z.only()),
            microbatch: Some(8),
            per_node: Some(8),
            dtype: ElementType::F32,
            ..LayoutRequest::new("z=2,pipe=4".parse().unwrap(), 32)
        };
        let layout = Layout::new(&model, &request).unwrap();
        let case = Case { layout, model: model.clone(), cluster: cluster.clone(), imbalance: 1.0 };
        let ratios = ratios(&case, Framework { reserved_bytes: 0, ..Framework::MEGATRON }).unwrap();
        assert!(ratios.iter().all(|ratio| *ratio <= 1.0), "{schedule}: {ratios:?}");
    }
}

fn median(ratios: &[[f64; 9]], which: usize) -> f64 {
    let mut sorted: Vec<f64> = ratios.iter().map(|ratios| ratios[which]).collect();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// The case, on a fast network, in long segments of recomputation, with two data ranks as expert ranks, and with unequal loads
/// of experts.
fn variants(case: Case) -> impl Iterator<Item = Case> {
    let on_fast = Case { cluster: fast_networks(&case.cluster), ..case.clone() };
    let in_segments = changed(&case, |request| request.recompute = Recompute::Full { every: 4 });
    // Of some: prices of expert ranks are those of data ranks.
    let of_expert = (case.layout.grid.batch_shares() == 2).then(|| case.shared_out(2));
    let crowded = [(&case, 1.7), (&on_fast, 1.2)].map(|(case, times)| case.unequal(times));
    let roomy = changed(&case, |request| request.expert_rows = 3).and_then(|case| case.unequal(3.0));
    let crowded = crowded.into_iter().chain([roomy]).flatten().collect::<Vec<_>>();
    [case, on_fast].into_iter().chain(in_segments).chain(of_expert).chain(crowded)
}

/// Copies of states between the device and its host take time, and what they leave on the device takes memory: bounds know
/// of neither more than there is.
#[test]
fn bounds_of_offloaded_states_are_never_above_the_price() {
    let own = Framework { reserved_bytes: 0, ..Framework::own(ElementType::Bf16, ElementType::F32) };
    let schedule = Schedule::OneForwardOneBackward;
    let mut found = Vec::new();
    for framework in [own, Framework { reserved_bytes: 0, ..Framework::MEGATRON }] {
        for case in fixed(schedule, 80).into_iter().chain(fixed_mixed(schedule, 30)) {
            let offload = |request: &mut LayoutRequest| (request.offload, request.bucket) = (Offload::Host, Some(100));
            let Some(offloaded) = changed(&case, offload) else { continue };
            let Some(ratios) = ratios(&offloaded, framework) else { continue };
            for (what, ratio) in BOUNDS.into_iter().zip(ratios) {
                assert!(ratio <= 1.0, "{what} {ratio}: {:?}", offloaded.layout);
            }
            found.push(ratios[3]);
        }
    }
    // Steps of small models are mostly copies, which bounds count.
    let mean = found.iter().sum::<f64>() / found.len() as f64;
    assert!(found.len() > 40 && mean > 0.8, "{mean} of {}", found.len());
}

/// On models of few blocks, where the first microbatch and the update weigh most.
#[test]
fn bounds_are_never_above_the_price() {
    let all = below_the_price(frameworks().chain([PUBLISHED]), fixed, 24);
    // What is put off is not counted where segments are recomputed.
    assert_close(&all, 0.93, |schedule| if schedule == Schedule::ZeroBubble { 0.75 } else { 0.9 });
}

/// Of described blocks, which may differ.
#[test]
fn bounds_are_never_above_the_price_whatever_blocks_there_are() {
    let all = below_the_price(frameworks().chain([PUBLISHED]), fixed_described, 28);
    // Of blocks that differ, what their neighbours may hide is not counted.
    assert_close(&all, 0.85, |schedule| if schedule == Schedule::ZeroBubble { 0.7 } else { 0.85 });
}

/// Of experts, however they are spread.
#[test]
fn bounds_are_never_above_the_price_of_experts() {
    let all = below_the_price(
        frameworks().chain([PUBLISHED]).filter(|framework| framework.sparsity.is_none()),
        fixed_mixed,
        20,
    );
    assert_close(&all, 0.8, |_| 0.6);
}

/// Bounds over the price, of a framework and a schedule.
type Found = (Framework, Schedule, Vec<[f64; 9]>);

/// Bounds over the price, of which none is above 1, of every framework in every schedule: of so many cases, which no other pair has.
fn below_the_price(
    frameworks: impl Iterator<Item = Framework>,
    fixed: impl Fn(Schedule, usize) -> Vec<Case>,
    draws: usize,
) -> Vec<Found> {
    let frameworks: Vec<Framework> = frameworks.collect();
    let of = |framework: Framework, case: Case, learned: &Learned| -> Option<[f64; 9]> {
        let ratios = ratios_knowing(&case, framework, learned)?;
        for (what, ratio) in BOUNDS.into_iter().zip(ratios) {
            let of = framework.name;
            let layout = &case.layout;
            assert!(ratio <= 1.0, "{what} of {of} {ratio}: {layout:?} of {:?}", case.model.blocks);
        }
        Some(ratios)
    };
    let mut found = Vec::new();
    for (_, schedule) in Schedule::ALL {
        let cases = fixed(schedule, draws * frameworks.len());
        for (framework, cases) in frameworks.iter().zip(cases.chunks(draws)) {
            let framework = Framework { reserved_bytes: 0, ..*framework };
            // Variants of a case share most programs.
            let of_variants = |case: &Case| {
                let learned = Learned::default();
                variants(case.clone()).filter_map(move |case| of(framework, case, &learned))
            };
            found.push((framework, schedule, cases.par_iter().flat_map_iter(of_variants).collect()));
        }
    }
    found
}

/// Medians of the bounds' seconds and bytes over the price are near 1: of each schedule, and of each framework.
fn assert_close(all: &[Found], seconds: f64, bytes: impl Fn(Schedule) -> f64) {
    for (name, schedule) in Schedule::ALL {
        assert_medians(name, all.iter().filter(|found| found.1 == schedule), seconds, bytes(schedule));
    }
    for framework in frameworks() {
        // What ZeRO pads of the few elements that so small pruned tiles keep is not counted.
        let padding = if framework.sparsity.is_some() { 0.1 } else { 0.0 };
        let of_framework = |found: &&Found| (found.0.name, found.0.sparsity) == (framework.name, framework.sparsity);
        let found = all.iter().filter(of_framework);
        if found.clone().count() > 0 {
            let least = bytes(Schedule::OneForwardOneBackward) - padding;
            assert_medians(framework.name, found, seconds, least);
        }
    }
}

fn assert_medians<'a>(name: &str, found: impl Iterator<Item = &'a Found>, seconds: f64, bytes: f64) {
    let all: Vec<[f64; 9]> = found.flat_map(|(_, _, ratios)| ratios.iter().copied()).collect();
    assert!(all.len() > 100, "{name} has {} cases", all.len());
    let closer = [[3, 4], [6, 7]].map(|which| which.map(|which| median(&all, which)));
    let is_closer = |[rough, close]: &[f64; 2]| *close >= rough * (1.0 - 1e-9);
    assert!(closer.iter().all(is_closer), "{name}: {closer:?}");
    let medians = [3, 6].map(|which| median(&all, which));
    assert!(medians[0] > seconds && medians[1] > bytes, "{name}: {medians:?} of {}", all.len());
}

/// Experts that no two ranks share have states of their own under ZeRO, so that the bound of a rank's bytes is near the price: of
/// 18 bytes a parameter none is taken for shared. The rank of stage 1 has 12 of 94
/// blocks, 16 of whose 128 experts (8 ranks share them): 12 * 16 * 3 * 4096 * 1536 parameters of 18 bytes.
#[test]
fn states_of_experts_are_shared_by_the_ranks_that_have_copies_alone() {
    let model = Model::preset("qwen3-235b-a22b").unwrap();
    let cluster = Cluster::preset("dgx-h100").unwrap();
    let problem = Problem::new(&model, &cluster, Framework::MEGATRON, 256, model.seq_len).unwrap();
    let spread: AxisSet = [Axis::X, Axis::Expert].into_iter().collect();
    let request = LayoutRequest {
        zero: Zero::Optimizer,
        recompute: Recompute::Full { every: 1 },
        experts_over: Some(spread),
        microbatch: Some(1),
        vocab_multiple: Framework::MEGATRON.vocab_multiple,
        ..LayoutRequest::new("x=4,expert=2,pipe=8".parse().unwrap(), 256)
    };
    let layout = Layout::new(&model, &request).unwrap();
    let candidate = problem.candidate(&layout);
    let price = problem.price_layout(&layout).unwrap();
    let mut bounds = Bounds::new(&problem);
    let pieces = bounds.pieces(&candidate).unwrap();
    let bytes = bounds.bytes(&candidate, &pieces);
    assert!(bytes > 12 * 16 * 3 * 4096 * 1536 * 18, "{bytes} of the experts alone");
    let ratio = bytes as f64 / price.memory.total() as f64;
    assert!((0.98..=1.0).contains(&ratio), "{ratio}");
}
