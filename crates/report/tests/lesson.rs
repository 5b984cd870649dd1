//! What a lesson tells, held against the program and its ledger, on random models and layouts.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::select;
use quadrille_cost::simulation::{Communication, Lane, Machine, simulate};
use quadrille_draws::{descriptions, mixtures};
use quadrille_report::Style;
use quadrille_report::lesson::{Chosen, ChosenError, Lesson, Move, Waited};
use quadrille_spec::{
    Activations, Axis, CollectiveKind, Grid, KeepWeights, Layout, LayoutRequest, Linear, Model, Norm, Offload, Overlap,
    Recompute, Schedule, Transfer, Zero,
};
use quadrille_step::{Layer, Op, Reasons, StageProgram, StepProgram, predict_rank, transfer_of};

/// A model with a legal layout.
#[derive(Debug, Clone)]
struct Case {
    model: Model,
    layout: Layout,
}

fn grids() -> impl Strategy<Value = Grid> {
    let size = || select(vec![1, 1, 2, 2, 4]);
    (size(), size(), size(), select(vec![1, 1, 2]), select(vec![1, 1, 2]), select(vec![1, 2]), select(vec![1, 2, 3]))
        .prop_filter_map("small grids", |(x, y, z, context, expert, data, pipe)| {
            let grid = Grid::of_sizes([x, y, z, context, expert, data, pipe]).ok()?;
            (grid.ranks() <= 64).then_some(grid)
        })
}

fn models() -> impl Strategy<Value = Model> {
    (4..=7_usize, 0..3_u8, any::<bool>()).prop_map(|(layers, family, tied)| {
        let gpt = Model::gpt(layers, 48, 4, 61, 16).reshaped(|m| m.tied_head = tied);
        match family {
            0 => gpt,
            1 => gpt.reshaped(|m| (m.norm, m.kv_heads) = (Norm::Rms, 2)),
            _ => gpt.reshaped(|m| (m.patch_values, m.vocab, m.tied_head, m.causal) = (Some(12), 0, false, false)),
        }
    })
}

/// Of every switch that changes what a program sends; experts spread over `expert` or over all that may spread them.
fn cases() -> impl Strategy<Value = Case> {
    let switches =
        (any::<[bool; 8]>(), 0..3_usize, 0..5_usize, select(Schedule::ALL.map(|(_, it)| it).to_vec()), 1..=2_usize);
    let described = (prop::option::of(descriptions()), prop::option::of(mixtures()));
    (grids(), models(), switches, described).prop_filter_map(
        "a legal layout",
        |(grid, model, switches, (described, mixture))| {
            let ([scattered, summa, overlaps, step, cac, offload, spread, kinds], zero, recompute, schedule, chunks) =
                switches;
            let model = match (described, mixture) {
                (Some(described), _) if kinds => described.of(&model, grid.size(Axis::X)),
                (_, Some(mixture)) if !kinds => {
                    let over = if spread { Axis::SPREADING } else { Axis::Expert.only() };
                    mixture.of(
                        &model,
                        16 / (2 * grid.size(Axis::Context) * grid.size(Axis::X)).min(16),
                        grid.size_of(over),
                    )
                }
                _ => model,
            };
            let interleaves = schedule == Schedule::Interleaved && grid.size(Axis::Pipe) > 1;
            let linear = if summa { Linear::Summa } else { Linear::Pmm };
            let recompute = match recompute {
                0 | 1 => Recompute::None,
                2 => Recompute::Selective,
                every => Recompute::Full { every: every - 2 },
            };
            let request = LayoutRequest {
                activations: if scattered || summa { Activations::Scattered } else { Activations::Replicated },
                linear,
                overlap: if overlaps { Overlap::ALL } else { Overlap::NONE },
                schedule,
                chunks: if interleaves { chunks } else { 1 },
                recompute,
                keep_communicated: cac && recompute != Recompute::None,
                zero: [Zero::Off, Zero::Optimizer, Zero::Gradients][zero],
                keep_weights: if step { KeepWeights::Step } else { KeepWeights::Use },
                offload: if offload { Offload::Host } else { Offload::None },
                experts_over: spread.then_some(Axis::SPREADING),
                per_node: grid.ranks().is_multiple_of(4).then_some(4),
                ..LayoutRequest::new(grid, 48 * grid.batch_shares())
            };
            let with = |microbatch| LayoutRequest { microbatch: Some(microbatch), ..request.clone() };
            let layout = [8, 16, 48].into_iter().find_map(|microbatch| Layout::if_legal(&model, &with(microbatch)))?;
            Some(Case { model, layout })
        },
    )
}

/// By axes and kind, the sums over layers.
fn sums(lesson: &Lesson) -> BTreeMap<(String, CollectiveKind), Transfer> {
    let mut sums: BTreeMap<_, Transfer> = BTreeMap::new();
    for told in &lesson.moves {
        let layers = told.layers.len() as u64;
        *sums.entry((told.key.clone(), told.kind)).or_default() += Transfer {
            calls: layers * told.calls,
            payload_bytes: layers * told.payload_bytes,
            wire_bytes: layers * told.wire_bytes,
        };
    }
    sums
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_told_adds_up_to_the_ledger_and_everything_has_a_reason(case in cases(), pick in any::<prop::sample::Index>()) {
        let program = StepProgram::new(&case.model, &case.layout).unwrap();
        let rank = pick.index(case.layout.grid.ranks());
        let chosen = Chosen::of(&program, Some(rank), None).unwrap();
        let lesson = Lesson::of(&program, chosen, None);
        let ledger = predict_rank(&program, rank);
        let counted: BTreeMap<_, _> = ledger.axes.iter()
            .flat_map(|(axes, kinds)| kinds.iter().map(move |(kind, transfer)| ((axes.clone(), *kind), *transfer)))
            .collect();
        prop_assert_eq!(&sums(&lesson), &counted);
        // Of each layer, too.
        for layer in &ledger.layers {
            let of_layer = lesson.moves.iter().filter(|told| told.layers.contains(&layer.layer));
            let sent: u64 = of_layer.map(|told| told.wire_bytes).sum();
            let counted: u64 = layer.axes.values().flat_map(|kinds| kinds.values()).map(|transfer| transfer.wire_bytes).sum();
            prop_assert_eq!(sent, counted, "{}", layer.layer);
        }
        // Who moves something moves what the layer does, or is told once beside it, with those that move the same.
        let moves = |layer: &str| -> Vec<*const Move> { lesson.of_layer(layer).map(std::ptr::from_ref).collect() };
        for layer in ledger.layers.iter().map(|layer| layer.layer.as_str()).filter(|layer| !moves(layer).is_empty()) {
            let told = lesson.others.iter().filter(|same| same.iter().any(|name| name == layer)).count();
            prop_assert_eq!(told, usize::from(moves(layer) != moves(&lesson.layer)), "{}", layer);
        }
        for same in &lesson.others {
            prop_assert!(same.iter().all(|layer| moves(layer) == moves(&same[0])), "{:?}", same);
        }
        prop_assert_eq!(lesson.memory.peak_bytes, ledger.memory.peak);
        let named: u64 = lesson.memory.living.iter().map(|named| named.bytes).sum();
        prop_assert_eq!(named + lesson.memory.others_bytes, ledger.memory.peak);
        for told in &lesson.moves {
            prop_assert!(told.members > 1 || told.key == "host", "{told:?}");
            // The sentences that say nothing of why.
            for vague in ["each rank along none", "a term of the sum;"] {
                prop_assert!(!told.reason.contains(vague), "{told:?}");
            }
        }
    }

    #[test]
    fn axes_of_one_rank_are_not_named_and_lines_fit(case in cases()) {
        let program = StepProgram::new(&case.model, &case.layout).unwrap();
        let lesson = Lesson::of(&program, Chosen::of(&program, None, None).unwrap(), None);
        let single: Vec<Axis> = Axis::ALL.into_iter().filter(|axis| case.layout.grid.size(*axis) == 1).collect();
        let named = |text: &str, axis: Axis| text.split(|letter: char| !letter.is_alphanumeric()).any(|word| word == axis.name());
        for told in &lesson.moves {
            for axis in &single {
                prop_assert!(!named(&told.axes, *axis) && !named(&told.from, *axis) && !named(&told.to, *axis), "{axis}: {told:?}");
                // "x" and "y" are no words; the others may be.
                let is_letter = axis.name().len() == 1;
                prop_assert!(!is_letter || !named(&told.reason, *axis), "{axis}: {told:?}");
            }
        }
        let text = lesson.mesh_text(80) + lesson.layer_text(80) + lesson.memory_text(80);
        let shown = text.shown(Style { width: Some(80), color: false });
        for line in shown.lines() {
            prop_assert!(line.chars().count() <= 80, "{line}");
        }
    }

    /// Reasons are those of the shardings: what is reduced was a partial sum, what is gathered was cut over just those axes.
    #[test]
    fn told_shardings_are_what_collectives_change(case in cases()) {
        let program = StepProgram::new(&case.model, &case.layout).unwrap();
        let lesson = Lesson::of(&program, Chosen::of(&program, None, None).unwrap(), None);
        let has = |lies: &str, axis: &str| lies.split([' ', ',', '+', '·']).any(|word| word == axis);
        for told in lesson.moves.iter().filter(|told| !told.from.is_empty() && told.key != "world") {
            for axis in told.axes.split('+') {
                match told.kind {
                    CollectiveKind::ReduceScatter => prop_assert!(has(&told.to, axis), "{told:?}"),
                    CollectiveKind::AllGather if told.from != told.to => prop_assert!(has(&told.from, axis), "{told:?}"),
                    CollectiveKind::AllReduce if told.axes != "pipe" && told.to == told.from => {
                        prop_assert!(told.reason.contains("next to each other"), "{told:?}");
                    }
                    _ => {}
                }
            }
        }
    }
}

fn tiny(grid: &str) -> StepProgram {
    let model = Model::preset("gpt-tiny").unwrap();
    let layout = Layout::new(&model, &LayoutRequest::new(grid.parse().unwrap(), 8)).unwrap();
    StepProgram::new(&model, &layout).unwrap()
}

#[test]
fn an_operation_without_a_reason_would_be_seen() {
    let program = tiny("x=2,y=2");
    let stage = &program.stages[0];
    let pass = quadrille_step::schedule::Pass::Forward;
    let section = &stage.chunks[0].forward;
    let reasons = Reasons::of(stage, section, Some(pass));
    for (index, op) in section.ops.iter().enumerate() {
        assert_eq!(reasons.why(index).is_some(), transfer_of(stage, 0, op).is_some(), "{op:?}");
    }
    // One collective less, and the sums are not those of the ledger.
    let chosen = Chosen::of(&program, None, None).unwrap();
    let mut lesson = Lesson::of(&program, chosen, None);
    let whole = sums(&lesson);
    lesson.moves.pop();
    assert_ne!(sums(&lesson), whole);
}

/// The sentences of the dataflow tables: a product over y, the rows that x cuts.
#[test]
fn the_reasons_of_a_linear_layer_are_those_of_its_shardings() {
    let lesson = |grid| {
        let program = tiny(grid);
        Lesson::of(&program, Chosen::of(&program, None, None).unwrap(), None)
    };
    let told = |lesson: &Lesson, value: &str, kind| {
        let found = lesson.of_layer(&lesson.layer).find(|told| told.value == value && told.kind == kind);
        found.map(|told| (told.axes.clone(), told.from.clone(), told.to.clone(), told.reason.clone()))
    };
    let mesh = lesson("x=2,y=2");
    let (axes, from, to, reason) = told(&mesh, "qkv", CollectiveKind::ReduceScatter).unwrap();
    assert_eq!([axes, from, to], ["y", "cols x · partial y", "rows y · cols x"]);
    assert!(reason.contains("contracts over the weight's inputs, which y cuts"), "{reason}");
    let (axes, from, to, reason) = told(&mesh, "norm1", CollectiveKind::AllGather).unwrap();
    assert_eq!([axes, from, to], ["x", "rows x · cols y", "cols y"]);
    assert!(reason.contains("so are the weight's outputs"), "{reason}");
    let (.., reason) = told(&lesson("z=2"), "qkv.weight gathered", CollectiveKind::AllGather).unwrap();
    assert!(reason.contains("stores a part of the weight"), "{reason}");
    assert_eq!(told(&lesson("data=2"), "qkv", CollectiveKind::ReduceScatter), None);
    // Nothing is named that one rank has for itself.
    assert_eq!(lesson("x=1").moves, []);
}

#[test]
fn tiles_of_all_ranks_cover_each_matrix_as_often_as_it_is_replicated() {
    let program = tiny("x=2,y=2,z=2,data=2");
    let mut covered: BTreeMap<(String, usize, usize), usize> = BTreeMap::new();
    let mut sizes = BTreeMap::new();
    for rank in 0..16 {
        let chosen = Chosen::of(&program, Some(rank), Some(1)).unwrap();
        for tile in Lesson::of(&program, chosen, None).tiles {
            sizes.insert(tile.name.clone(), [tile.rows, tile.cols]);
            assert!(tile.same_on.contains(&rank) && tile.same_count == tile.same_on.len());
            let cols = tile.held_cols.len();
            let [part, parts] = tile.part;
            let whole = tile.held_rows.len() * cols;
            for at in whole * part / parts..whole * (part + 1) / parts {
                let element = (tile.name.clone(), tile.held_rows.start + at / cols, tile.held_cols.start + at % cols);
                *covered.entry(element).or_default() += 1;
            }
        }
    }
    // Twice: on both data ranks.
    assert!(covered.values().all(|times| *times == 2));
    assert_eq!(covered.len(), sizes.values().map(|[rows, cols]| rows * cols).sum::<usize>());
    assert_eq!(sizes["qkv.weight"], [48, 144]);
}

#[test]
fn blocks_are_found_where_they_lie() {
    let model = Model::gpt(4, 48, 4, 61, 16);
    let layout = Layout::new(&model, &LayoutRequest::new("x=2,pipe=2".parse().unwrap(), 8)).unwrap();
    let program = StepProgram::new(&model, &layout).unwrap();
    let of = |rank, block| Chosen::of(&program, rank, block);
    assert_eq!(of(None, Some(3)), Ok(Chosen { rank: 2, layer: Layer::Block(3) }));
    assert_eq!(of(Some(3), None), Ok(Chosen { rank: 3, layer: Layer::Block(2) }));
    assert!(matches!(of(None, Some(4)), Err(ChosenError::NoBlock { blocks: 4, .. })));
    assert!(matches!(of(Some(0), Some(3)), Err(ChosenError::OtherStage { of_block: 1, of_rank: 0, first: 2, .. })));
}

/// A second for each byte of what is large; what is small takes no time.
struct Bytes;

/// Bytes of what is large.
const LARGE: u64 = 1000;

fn seconds_of(bytes: u64) -> f64 {
    if bytes < LARGE { 0.0 } else { bytes as f64 }
}

impl Machine for Bytes {
    fn operation_seconds(&self, _: &StageProgram, _: &Op) -> f64 {
        100.0
    }

    fn collective_seconds(&self, collective: &Communication) -> f64 {
        seconds_of(collective.payload_bytes)
    }

    fn message_seconds(&self, bytes: u64) -> f64 {
        seconds_of(bytes)
    }

    fn host_copy_seconds(&self, bytes: u64) -> f64 {
        seconds_of(bytes)
    }
}

/// Layouts with all that moves: messages, sums of several stages, copies to the host, gathers for the next step.
fn moving() -> Vec<(StepProgram, &'static str)> {
    let model = Model::gpt(4, 48, 4, 61, 16);
    let of = |grid: &'static str, change: fn(&mut LayoutRequest)| {
        let mut request = LayoutRequest { microbatch: Some(4), ..LayoutRequest::new(grid.parse().unwrap(), 16) };
        change(&mut request);
        let layout = Layout::new(&model, &request).unwrap();
        (StepProgram::new(&model, &layout).unwrap(), grid)
    };
    vec![
        of("x=2,y=2", |_| {}),
        of("x=2,pipe=2", |request| request.overlap = Overlap::NONE),
        of("data=2,pipe=2", |request| request.schedule = Schedule::ZeroBubble),
        of("z=2,pipe=2", |request| request.schedule = Schedule::MessageDriven),
        of("data=2", |request| (request.zero, request.offload) = (Zero::Optimizer, Offload::Host)),
        of("z=2,data=2", |request| (request.zero, request.overlap) = (Zero::Gradients, Overlap::ALL)),
    ]
}

/// Each is told the seconds of its own bytes, although what takes no time is no event; and together those of the simulation.
#[test]
fn seconds_that_are_told_are_those_of_the_simulation() {
    for (program, grid) in moving() {
        let simulation = simulate(&program, &Bytes).unwrap();
        let grid_of = &program.layout.grid;
        for stage in &program.stages {
            let rank = grid_of.rank(grid_of.coordinate(0).with(Axis::Pipe, stage.stage));
            let lesson = Lesson::of(&program, Chosen::of(&program, Some(rank), None).unwrap(), Some(&simulation));
            assert!(lesson.timeline.is_some());
            let mut sum = 0.0;
            for told in &lesson.moves {
                let seconds = told.hidden.seconds.unwrap_or(0.0);
                sum += seconds * told.layers.len() as f64;
                let expected = match told.kind {
                    // Who sends it takes the time.
                    CollectiveKind::Receive => 0.0,
                    _ if told.payload_bytes / told.calls < LARGE => 0.0,
                    _ => told.payload_bytes as f64,
                };
                assert_eq!(seconds, expected, "{grid}: {told:?}");
                assert!(told.hidden.hidden_s.unwrap_or(0.0) <= seconds);
            }
            let events =
                simulation.events.iter().filter(|event| event.stage == stage.stage && event.lane != Lane::Compute);
            let spent: f64 = events.map(|event| event.end_s - event.start_s).sum();
            assert!(sum > 0.0 && (sum - spent).abs() <= 1e-9 * spent, "{grid}: {sum} of {spent}");
        }
    }
}

#[test]
fn waits_are_told_where_they_stand() {
    let all = |at: usize| {
        let (program, _) = moving().swap_remove(at);
        Lesson::of(&program, Chosen::of(&program, None, None).unwrap(), None).moves
    };
    let piped = all(1);
    let waited = |kind| piped.iter().find(|told| told.kind == kind).map(|told| told.hidden.waited);
    assert_eq!(waited(CollectiveKind::Send), Some(Waited::ByOthers));
    assert_eq!(waited(CollectiveKind::Receive), Some(Waited::BeforePass));
    // Buckets are fetched and stored while others are updated.
    let offloaded = all(4);
    let host: Vec<_> = offloaded.iter().filter(|told| told.key == "host").collect();
    assert!(!host.is_empty() && host.iter().any(|told| told.hidden.waited != Waited::AtOnce), "{host:?}");
    let carried = all(5);
    let updated: Vec<_> = carried.iter().filter(|told| told.pass == "update" && told.reason.contains("ZeRO")).collect();
    assert!(!updated.is_empty() && updated.iter().all(|told| told.hidden.waited == Waited::InNextStep), "{updated:?}");
    assert!(carried.iter().all(|told| told.pass == "update" || told.hidden.waited != Waited::InNextStep));
}

#[test]
fn copies_and_padding_are_no_part_of_a_matrix() {
    let model = Model::gpt(2, 48, 4, 61, 16).reshaped(|m| (m.norm, m.kv_heads) = (Norm::Rms, 2));
    let tiles = |grid: &str, layer| {
        let layout = Layout::new(&model, &LayoutRequest::new(grid.parse().unwrap(), 8)).unwrap();
        let program = StepProgram::new(&model, &layout).unwrap();
        let mut lesson = Lesson::of(&program, Chosen { rank: 0, layer }, None);
        let text = lesson.layer_text(80).to_string();
        (lesson.tiles.swap_remove(0), text)
    };
    // Four queries of 12 columns, and two keys with their values, of which each is there twice.
    let (tile, text) = tiles("x=4", Layer::Block(0));
    assert_eq!((tile.name.as_str(), tile.cols, tile.stored, tile.copies), ("qkv.weight", 96, [48, 144], 2));
    assert!(text.contains("hold copies of the same keys"), "{text}");
    let (tile, text) = tiles("x=2", Layer::Block(0));
    assert_eq!((tile.cols, tile.stored, tile.copies), (96, [48, 96], 1));
    assert!(!text.contains("copies"), "{text}");
    let (tile, text) = tiles("x=4", Layer::Embedding);
    assert_eq!((tile.rows, tile.stored), (61, [64, 48]));
    assert!(text.contains("padded by 3 to 64 rows"), "{text}");
}
