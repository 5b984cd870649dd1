//! The native search finds the same whatever bounds leave out, however many are wanted, on any number of threads.

use proptest::prelude::*;
use quadrille_cost::native::{Candidate, Framework};
use quadrille_draws::descriptions;
use quadrille_plan::native::{Bound, Search, Setting, Space};
use quadrille_spec::{Axis, ElementType, KeepWeights, Layout, Linear, Overlap, Recompute, Schedule, Zero};

use crate::problems::{FAMILIES, any_model, by_both, cluster, found, model, on_threads, search};

/// Who asks for more finds no less, however tight memory is.
#[test]
fn more_wanted_layouts_begin_with_fewer() {
    let model = model(4, 2);
    let all = cluster();
    let open = |top| Search { front: false, top, ..search(&model, &all, 4, 8) };
    let smallest = |search: &Search| search.smallest().unwrap().unwrap().price.memory.total();
    let setting = Setting { framework: Framework::QUADRILLE, capacity: None, ..open(1).setting };
    let least = smallest(&Search { setting, ..open(1) });
    for capacity in [least, least * 11 / 10, least * 3 / 2, least * 2] {
        let setting = Setting { capacity: Some(capacity), ..setting };
        let best = |top| found(&Search { setting, ..open(top) }).ranked.first().map(|ranked| ranked.price.seconds);
        let few = best(1);
        let many = best(20);
        assert!(few.is_some() && many <= few, "{capacity} bytes: {few:?} and {many:?}");
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
        (memory, top, distinct, framework) in (1_000_000..12_000_000_u64, 1..9_usize, any::<bool>(), 0..5_usize),
        networks in prop::array::uniform2(prop::sample::select(vec![0.01, 1.0, 100.0])),
        constraints in prop::sample::subsequence(CONSTRAINTS.to_vec(), 0..4),
        tolerance in prop::sample::select(vec![None, Some(0.0), Some(0.03), Some(0.5)]),
    ) {
        let model = any_model(number, layers, heads, &description);
        let mut cluster = cluster();
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
        let pruned = Search { setting, top, distinct, space, tolerance, ..open };
        let exhaustive = Search { prune: false, ..pruned.clone() };
        let found_pruned = found(&pruned);
        let found = found(&exhaustive);
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
            prop_assert!(!pruned.why_nothing(&found_pruned).to_string().is_empty());
        }
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let model = model(6, 4);
    let cluster = cluster();
    for search in by_both(Search { tolerance: Some(0.1), ..search(&model, &cluster, 4, 24) }) {
        let one = on_threads(1, || found(&search));
        assert!(one.counts.too_slow > 0);
        assert_eq!(one, on_threads(2, || found(&search)));
        assert_eq!(one, on_threads(5, || found(&search)));
    }
}
