//! The native search: it knows the rules of layouts, misses nothing, and finds the same whatever is left out.

use std::collections::HashSet;

use proptest::prelude::*;
use quadrille_cost::native::{Candidate, Framework, Problem};
use quadrille_draws::{Description, descriptions};
use quadrille_plan::native::{Bound, Cancel, Found, Rules, Search, Setting, Space};
use quadrille_spec::{
    Activation, Activations, Axis, AxisOrder, AxisSet, Cluster, Dispatch, ElementType, Grid, Imbalance, KeepWeights,
    Layout, LayoutRequest, Linear, Model, Norm, Overlap, Positions, Recompute, Schedule, Zero,
};

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
const FRAMEWORK: Framework = Framework { reserved_bytes: 0, ..Framework::MEGATRON };

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
            per_node: None,
            capacity: cluster.device_memory,
            learned: None,
        },
        devices,
        space: Space::default(),
        top: 5,
        one_per_grid: false,
        front: true,
        tolerance: None,
        deadline: None,
        brief: false,
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
    search.run(&|| false).unwrap()
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
fn any_model(number: usize, layers: usize, heads: usize, description: &Description) -> Model {
    if number < FAMILIES { family(number, layers, heads) } else { description.of(&family(0, layers, heads), 1) }
}

/// How many families there are.
const FAMILIES: usize = 4;

/// Sizes that are often legal, and sometimes not.
fn size() -> impl Strategy<Value = usize> {
    prop_oneof![4 => Just(1_usize), 3 => Just(2), 1 => Just(3), 1 => Just(4), 1 => Just(5)]
}

fn candidate() -> impl Strategy<Value = Candidate> {
    let sizes = [size(), size(), size(), size(), size(), size(), size()];
    let switches = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), 0..5_usize, 0..3_usize);
    let numbers = (1..13_usize, prop_oneof![3 => Just(1_usize), 1 => Just(2)], 0..5_usize, 0..7_usize, 0..10_usize);
    (sizes, switches, numbers).prop_map(|(sizes, switches, (microbatch, overlap_chunks, chunks, panels, recompute))| {
        let (replicated, summa, keep_communicated, step, schedule, zero) = switches;
        Candidate {
            sizes,
            inside: [1; Axis::COUNT],
            microbatch,
            activations: if replicated { Activations::Replicated } else { Activations::Scattered },
            linear: if summa { Linear::Summa } else { Linear::Pmm },
            summa_panels: if summa { panels } else { 0 },
            overlap: Overlap::ALL,
            overlap_chunks,
            schedule: Schedule::ALL[schedule].1,
            chunks,
            recompute: match recompute {
                0..5 => Recompute::None,
                5 => Recompute::Selective,
                every => Recompute::Full { every: every - 5 },
            },
            keep_communicated,
            zero: Zero::ALL[zero].1,
            keep_weights: if step { KeepWeights::Step } else { KeepWeights::Use },
            bucket: None,
            experts_over: AxisSet::EMPTY,
            dispatch: Dispatch::Dropped,
            expert_rows: 0,
            vocab_multiple: [1, 1, 3][chunks % 3],
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn rules_are_those_of_layouts(
        candidate in candidate(),
        (number, layers, heads, description) in (0..FAMILIES + 2, 1..7_usize, 1..7_usize, descriptions()),
        (global_batch, seq_len) in (1..49_usize, 1..25_usize),
    ) {
        let model = any_model(number, layers, heads, &description);
        let rules = Rules { model: &model, global_batch, seq_len };
        let layout = Layout::new(&model, &candidate.request(global_batch, seq_len).unwrap());
        prop_assert_eq!(rules.check(&candidate).is_ok(), layout.is_ok(), "{:?}: {:?}", rules.check(&candidate), layout);
    }
}

/// Who asks for more finds no less, however tight memory is.
#[test]
fn more_wanted_layouts_begin_with_fewer() {
    let model = model(4, 2);
    let all = cluster();
    let open = |top| Search { front: false, top, ..search(&model, &all, 4, 8) };
    let smallest = |search: &Search| search.smallest(&|| false).unwrap().unwrap().price.memory.total();
    let setting = Setting { framework: Framework::QUADRILLE, capacity: None, ..open(1).setting };
    let least = smallest(&Search { setting, ..open(1) });
    for capacity in [least, least * 11 / 10, least * 3 / 2, least * 2] {
        let setting = Setting { capacity: Some(capacity), ..setting };
        let best = |top| found(&Search { setting, ..open(top) }).ranked.first().map(|ranked| ranked.price.seconds);
        let (few, many) = (best(1), best(20));
        assert!(few.is_some() && many <= few, "{capacity} bytes: {few:?} and {many:?}");
    }
}

/// The axes of [`grids`].
fn axes() -> impl Iterator<Item = Axis> {
    Axis::ALL.into_iter().filter(|axis| *axis != Axis::Expert)
}

/// The grids of a model without experts: what expert ranks do of it data ranks do, too, and cost the same.
fn grids(devices: usize) -> Vec<Grid> {
    Grid::all_over(devices, axes().collect())
}

/// Every order of their axes.
fn orders() -> Vec<AxisOrder> {
    let mut orders = vec![Vec::new()];
    for _ in axes() {
        let longer = |order: Vec<Axis>| {
            let rest = axes().filter(|axis| !order.contains(axis)).collect::<Vec<_>>();
            rest.into_iter().map(move |axis| order.iter().copied().chain([axis]).collect::<Vec<_>>())
        };
        orders = orders.into_iter().flat_map(longer).collect();
    }
    let named = orders.into_iter().map(|order| order.into_iter().map(Axis::name).collect::<Vec<_>>().join(","));
    named.map(|order| order.parse().unwrap()).collect()
}

/// Every layout that the choices of [`Space::default`] make of a grid, as a user would type them.
fn requests(grid: Grid, global_batch: usize) -> Vec<LayoutRequest> {
    let recompute = [1, 2, 4, 8].map(|every| Recompute::Full { every });
    let mut all = Vec::new();
    for microbatch in (1..=global_batch).map(Some) {
        for (_, activations) in Activations::ALL {
            for (_, linear) in Linear::ALL {
                for overlap_chunks in [1, 2, 4] {
                    for (_, schedule) in Schedule::ALL {
                        for chunks in 1..=8 {
                            for recompute in recompute.into_iter().chain([Recompute::None, Recompute::Selective]) {
                                for keep_communicated in [false, true] {
                                    for (_, zero) in Zero::ALL {
                                        for (_, keep_weights) in KeepWeights::ALL {
                                            all.push(LayoutRequest {
                                                microbatch,
                                                activations,
                                                linear,
                                                overlap_chunks,
                                                schedule,
                                                chunks,
                                                recompute,
                                                keep_communicated,
                                                zero,
                                                keep_weights,
                                                ..LayoutRequest::new(grid, global_batch)
                                            });
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    all
}

/// All layouts, typed one by one, against the search.
#[test]
fn nothing_is_missed() {
    let (model, cluster, global_batch) = (model(4, 2), Cluster { device_memory: Some(2_000_000), ..cluster() }, 8);
    let problem = Problem::new(&model, &cluster, FRAMEWORK, global_batch, model.seq_len).unwrap();
    let orders = orders();
    for devices in [2, 3] {
        let mut best = f64::INFINITY;
        let mut smallest = u64::MAX;
        let mut seen = HashSet::new();
        for grid in grids(devices) {
            let legal: Vec<_> =
                requests(grid, global_batch).iter().filter_map(|request| Layout::if_legal(&model, request)).collect();
            for order in &orders {
                let grid = grid.with_order(*order);
                let inside = legal.first().map(|layout| {
                    Candidate::of(&Layout { grid, per_node: 4.min(devices), ..layout.clone() }, &cluster).inside
                });
                if !inside.is_some_and(|inside| seen.insert((Axis::ALL.map(|axis| grid.size(axis)), inside))) {
                    continue;
                }
                for layout in &legal {
                    let layout = Layout { grid, per_node: 4.min(devices), ..layout.clone() };
                    let price = problem.price_layout(&layout).unwrap();
                    smallest = smallest.min(price.memory.total());
                    if price.memory.total() <= cluster.device_memory.unwrap() {
                        best = best.min(price.seconds);
                    }
                }
            }
        }
        let search = search(&model, &cluster, devices, global_batch);
        let found = found(&search);
        let least = search.smallest(&|| false).unwrap().unwrap();
        let fastest = found.ranked.first().map_or(f64::INFINITY, |ranked| ranked.price.seconds);
        assert!((fastest - best).abs() <= 1e-6 * best, "{devices} devices: {fastest} and {best}");
        assert_eq!(least.price.memory.total(), smallest, "{devices} devices");
        assert!(best.is_finite());
    }
}

#[test]
fn what_is_found_is_legal_and_placed_as_said() {
    let (model, cluster) = (model(6, 4), cluster());
    let searches = [1, 2, 6].map(|devices| search(&model, &cluster, devices, 24));
    for search in searches.into_iter().flat_map(by_both) {
        // Where all grids are among the wanted, all layouts are priced, which takes minutes.
        let (search, devices) = (Search { one_per_grid: true, top: 5, ..search.clone() }, search.devices);
        let found = found(&search);
        let mut grids = HashSet::new();
        for ranked in found.ranked.iter().chain(&found.front) {
            let request = ranked.candidate.request(24, model.seq_len).unwrap();
            let layout = Layout::new(&model, &request).unwrap();
            assert_eq!(Candidate::of(&layout, &cluster), ranked.candidate);
            assert_eq!(ranked.candidate.devices(), devices);
        }
        assert!(found.ranked.iter().all(|ranked| grids.insert(ranked.candidate.sizes)), "one of each grid");
        let several = Search { one_per_grid: false, ..search.clone() };
        let several = self::found(&several).ranked;
        assert!((1..several.len()).all(|at| !several[..at].contains(&several[at])), "each once");
        assert!(found.ranked.is_sorted_by(|a, b| a.price.seconds <= b.price.seconds * (1.0 + 1e-6)));
        assert!(found.front.is_sorted_by(|a, b| a.price.memory.total() > b.price.memory.total()));
        assert!(!found.ranked.is_empty() && !found.front.is_empty() && !found.stopped);
        let counts = found.counts;
        assert_eq!(counts.legal, counts.priced + counts.too_large + counts.too_slow);
        let refused: u64 = found.refused.values().map(|refused| refused.configurations).sum();
        assert_eq!(counts.enumerated, counts.legal + refused);
        let refused: u64 = found.refused.values().map(|refused| refused.grids).sum();
        assert_eq!(counts.grids, counts.legal_grids + refused);
        // Every refusal has an example that a user would see refused.
        assert!(found.refused.values().all(|refused| search.refusal(refused).is_some()));
    }
}

/// A constraint, and whether a layout keeps it.
type Constraint = (Bound, &'static str, fn(&Candidate) -> bool);

/// Constraints of which many leave something.
const CONSTRAINTS: [Constraint; 18] = [
    (Bound::Fix, "x=2", |c| c.size(Axis::X) == 2),
    (Bound::Max, "y=1", |c| c.size(Axis::Y) == 1),
    (Bound::Max, "z=2", |c| c.size(Axis::Z) <= 2),
    (Bound::Min, "pipe=2", |c| c.size(Axis::Pipe) >= 2),
    (Bound::Max, "data=2", |c| c.size(Axis::Data) <= 2),
    (Bound::Fix, "context=2", |c| c.size(Axis::Context) == 2),
    (Bound::Fix, "expert=2", |c| c.size(Axis::Expert) == 2),
    (Bound::Max, "expert=3", |c| c.size(Axis::Expert) <= 3),
    (Bound::Max, "microbatch=3", |c| c.microbatch <= 3),
    (Bound::Fix, "chunks=2", |c| c.chunks == 2),
    (Bound::Fix, "overlap-chunks=3", |c| c.overlap_chunks == 3),
    (Bound::Fix, "schedule=zb-h1", |c| c.schedule == Schedule::ZeroBubble),
    (Bound::Fix, "recompute=full:3", |c| c.recompute == Recompute::Full { every: 3 }),
    (Bound::Fix, "cac=true", |c| c.keep_communicated),
    (Bound::Fix, "zero=2", |c| c.zero == Zero::Gradients),
    (Bound::Fix, "linear=summa", |c| c.linear == Linear::Summa),
    (Bound::Fix, "keep-weights=step", |c| c.keep_weights == KeepWeights::Step),
    (Bound::Fix, "overlap=none", |c| c.overlap != Overlap::ALL),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_left_out_is_not_missed_and_what_is_found_is_legal(
        (number, layers, heads, devices, batch) in (0..2 * FAMILIES, 2..9_usize, 1..5_usize, 1..13_usize, 1..5_usize),
        description in descriptions(),
        (memory, top, one_per_grid, framework) in (1_000_000..12_000_000_u64, 1..9_usize, any::<bool>(), 0..5_usize),
        networks in prop::array::uniform2(prop::sample::select(vec![0.01, 1.0, 100.0])),
        constraints in prop::sample::subsequence(CONSTRAINTS.to_vec(), 0..4),
        tolerance in prop::sample::select(vec![None, Some(0.0), Some(0.03), Some(0.5)]),
    ) {
        let (model, mut cluster) = (any_model(number, layers, heads, &description), cluster());
        // Every program of an exhaustive search is built.
        let devices = devices.min(4);
        cluster.tiers.iter_mut().zip(networks).for_each(|(tier, factor)| tier.bandwidth *= factor);
        let open = search(&model, &cluster, devices, batch * devices);
        let narrow = Framework::own(ElementType::Bf16, ElementType::F32);
        let framework = Framework::ALL.get(framework).copied().unwrap_or(narrow);
        let framework = Framework { reserved_bytes: 0, ..framework };
        let setting = Setting { capacity: Some(memory), framework, ..open.setting };
        let mut space = Space::default();
        constraints.iter().for_each(|(bound, text, _)| space.constrain(*bound, text).unwrap());
        let pruned = Search { setting, top, one_per_grid, space, tolerance, ..open };
        let exhaustive = Search { prune: false, ..pruned.clone() };
        let (found_pruned, found) = (found(&pruned), found(&exhaustive));
        prop_assert_eq!(&found_pruned.ranked, &found.ranked);
        prop_assert_eq!(&found_pruned.front, &found.front);
        prop_assert_eq!(&found_pruned.simplest, &found.simplest);
        prop_assert_eq!(found_pruned.counts.legal, found.counts.legal);
        prop_assert_eq!(found.counts.priced, found.counts.legal);
        for ranked in found.ranked.iter().chain(&found.front).chain(&found.simplest) {
            let candidate = ranked.candidate;
            let layout = Layout::new(&model, &candidate.request(batch * devices, model.seq_len).unwrap());
            prop_assert!(layout.is_ok(), "{:?}: {:?}", candidate, layout);
            let layout = layout.unwrap();
            prop_assert_eq!(Candidate::of(&layout, &cluster), candidate);
            prop_assert_eq!(setting.price(&layout), Ok(ranked.price));
            prop_assert!(ranked.price.memory.total() <= memory && ranked.price.seconds > 0.0);
            for (_, text, keeps) in &constraints {
                prop_assert!(keeps(&candidate), "{text} and {candidate:?}");
            }
        }
        if found.ranked.is_empty() {
            prop_assert!(!pruned.why_nothing(&found_pruned, &|| false).to_string().is_empty());
        }
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let (model, cluster) = (model(6, 4), cluster());
    for search in by_both(Search { tolerance: Some(0.1), ..search(&model, &cluster, 4, 24) }) {
        let one = on_threads(1, || found(&search));
        assert!(one.counts.too_slow > 0);
        assert_eq!(one, on_threads(2, || found(&search)));
        assert_eq!(one, on_threads(5, || found(&search)));
    }
}

pub fn on_threads<T: Send>(threads: usize, act: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(act)
}

#[test]
fn what_leaves_nothing_is_blamed() {
    let (model, cluster) = (model(8, 4), cluster());
    let why = |constraints: &[(Bound, &str)]| {
        let mut search = search(&model, &cluster, 8, 16);
        constraints.iter().for_each(|(bound, text)| search.space.constrain(*bound, text).unwrap());
        let found = found(&search);
        assert!(found.ranked.is_empty(), "{constraints:?}");
        search.why_nothing(&found, &|| false).to_string()
    };
    use Bound::{Fix, Max, Min};
    for (constraints, words) in [
        (&[(Fix, "microbatch=3")][..], &["microbatch = 3:", "divides the sequences of a data rank", "try 2 or 4"][..]),
        (&[(Fix, "microbatch=16"), (Fix, "data=2")], &["microbatch = 16", "at most 8 here", "try 8"]),
        (&[(Fix, "chunks=4"), (Fix, "schedule=1f1b")], &["chunks = 4", "interleaved", "schedule=interleaved"]),
        (&[(Fix, "chunks=4"), (Fix, "pipe=1")], &["chunks = 4", "at least 2 stages"]),
        (&[(Min, "chunks=9"), (Max, "chunks=11")], &["chunks = 9..=11"]),
        (&[(Fix, "cac=true"), (Fix, "recompute=none")], &["recomputed blocks", "cac = on", "nothing is recomputed"]),
        (&[(Fix, "recompute=full:100")], &["recomputed blocks", "every 100-th block", "`layout.recompute` full:8"]),
        (&[(Min, "overlap-chunks=32")], &["no legal layout", " legal, and of them ", "overlap-chunks = 32"]),
        (&[(Fix, "x=8")], &["no legal layout", "x=8 does not divide heads = 4"]),
        (&[(Min, "pipe=16")], &["pipe = at least 16:", "divides the 8 devices", "try pipe=8"]),
    ] {
        let message = why(constraints);
        assert!(words.iter().all(|word| message.contains(word)), "{words:?} in {message}");
    }
}

#[test]
fn constraints_are_kept() {
    let (model, cluster) = (model(8, 4), cluster());
    let mut space = Space::default();
    for text in ["x=2", "schedule=interleaved", "chunks=2", "recompute=full:3", "zero=1", "microbatch=2"] {
        space.constrain(Bound::Fix, text).unwrap();
    }
    space.constrain(Bound::Max, "data=2").unwrap();
    space.constrain(Bound::Min, "pipe=2").unwrap();
    let found = found(&Search { space, ..search(&model, &cluster, 8, 16) });
    assert!(!found.ranked.is_empty());
    for ranked in &found.ranked {
        let candidate = ranked.candidate;
        assert!(candidate.size(Axis::X) == 2 && candidate.size(Axis::Data) <= 2 && candidate.size(Axis::Pipe) >= 2);
        assert_eq!((candidate.schedule, candidate.chunks, candidate.microbatch), (Schedule::Interleaved, 2, 2));
        assert_eq!(candidate.recompute, Recompute::Full { every: 3 });
    }
}

/// Of a model without experts, expert is data by another name: searches leave it alone, unless they are told not to, and find
/// then what they find along data.
#[test]
fn expert_is_tried_where_a_constraint_names_it() {
    let (model, cluster) = (model(4, 2), cluster());
    for search in by_both(search(&model, &cluster, 4, 8)) {
        let with = |constraints: &[&str]| {
            let mut search = search.clone();
            constraints.iter().for_each(|text| search.space.constrain(Bound::Fix, text).unwrap());
            found(&search)
        };
        assert_eq!(with(&[]), with(&["expert=1"]));
        let [both, expert, data] =
            [&["expert=2", "data=2"], &["expert=4", "data=1"], &["expert=1", "data=4"]].map(|fixed| with(fixed));
        for (found, sizes) in [(&both, [2, 2]), (&expert, [4, 1])] {
            assert!(!found.ranked.is_empty());
            let named = |c: &Candidate| [Axis::Expert, Axis::Data].map(|axis| c.size(axis));
            assert!(found.ranked.iter().all(|ranked| named(&ranked.candidate) == sizes));
            let first = |found: &Found| found.ranked.first().map(|ranked| (ranked.price.seconds, ranked.price.memory));
            assert_eq!(first(found), first(&data));
        }
        assert_eq!((expert.counts, expert.ranked.len()), (data.counts, data.ranked.len()));
        // Other layouts around one that has expert ranks keep to what is known of them, and those around others have none.
        let around = |found: &Found| search.setting.changes(&found.ranked[0].candidate, &Cancel::default()).unwrap();
        assert!(around(&expert).iter().any(|change| change.candidate.size(Axis::Expert) > 1));
        assert!(around(&data).iter().all(|change| change.candidate.size(Axis::Expert) == 1));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every legal layout of a small problem, priced by its program, against the search: the fastest, and the front of time
    /// against memory.
    #[test]
    fn what_is_found_is_priced_by_its_program_and_the_best_of_all(
        (number, layers, heads, devices, batch) in (0..2 * FAMILIES, 1..5_usize, 1..4_usize, 1..5_usize, 1..5_usize),
        description in descriptions(),
        (memory, factor) in (1_500_000..6_000_000_u64, prop::sample::select(vec![0.01, 1.0, 100.0])),
    ) {
        let (model, mut cluster) = (any_model(number, layers, heads, &description), cluster());
        cluster.tiers[0].bandwidth *= factor;
        let open = search(&model, &cluster, devices, batch);
        let setting = Setting { framework: Framework::QUADRILLE, capacity: Some(memory), ..open.setting };
        let found = found(&Search { setting, ..open });
        for ranked in found.ranked.iter().chain(&found.front) {
            prop_assert_eq!(setting.price(&setting.layout(&ranked.candidate).unwrap()), Ok(ranked.price));
            prop_assert!(ranked.price.memory.total() <= memory);
        }
        let (mut seen, mut prices) = (HashSet::new(), Vec::new());
        for grid in grids(devices) {
            let typed =
                requests(grid, batch).into_iter().map(|request| LayoutRequest { per_node: Some(devices), ..request });
            // On a single stage a search tries one order of passes; on one tile no panels, which only copy it; and it keeps what
            // was communicated where something is.
            let [x, y, z, context] = [Axis::X, Axis::Y, Axis::Z, Axis::Context].map(|axis| grid.size(axis));
            let tried = |request: &LayoutRequest| {
                (grid.size(Axis::Pipe) > 1 || request.schedule == Schedule::OneForwardOneBackward)
                    && (x * y > 1 || request.linear == Linear::Pmm)
                    && (x * y * z * context > 1 || !request.keep_communicated)
            };
            let legal = typed.filter(tried).filter_map(|request| Layout::if_legal(&model, &request));
            for layout in legal.filter(|layout| seen.insert(format!("{layout:?}"))) {
                let price = setting.price(&layout).unwrap();
                prices.extend((price.memory.total() <= memory).then_some((price.seconds, price.memory.total())));
            }
        }
        let best = prices.iter().map(|(seconds, _)| *seconds).fold(f64::INFINITY, f64::min);
        let fastest = found.ranked.first().map_or(f64::INFINITY, |ranked| ranked.price.seconds);
        prop_assert!(fastest == best || (fastest - best).abs() <= 1e-6 * best, "{} and {}", fastest, best);
        // Nothing is clearly faster than what the front has for as many bytes, told apart by a 32nd of the memory.
        let grains = |bytes: u64| bytes.div_ceil(memory / 32);
        for (seconds, bytes) in prices {
            let kept = found.front.iter().filter(|ranked| grains(ranked.price.memory.total()) <= grains(bytes));
            let least = kept.map(|ranked| ranked.price.seconds).fold(f64::INFINITY, f64::min);
            prop_assert!(least <= seconds * (1.0 + 1e-6), "{} s with {} bytes, the front has {} s", seconds, bytes, least);
        }
    }
}
