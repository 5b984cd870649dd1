//! The native search misses nothing: every layout of small problems, priced by its program, against what is found.

use std::collections::HashSet;

use proptest::prelude::*;
use quadrille_cost::native::{Candidate, Framework, Problem};
use quadrille_draws::descriptions;
use quadrille_plan::native::{Search, Setting};
use quadrille_spec::{
    Activations, Axis, AxisOrder, Cluster, Grid, KeepWeights, Layout, LayoutRequest, Linear, Recompute, Schedule, Zero,
};

use crate::problems::{FAMILIES, FRAMEWORK, any_model, by_both, cluster, found, model, search};

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
fn requests(framework: &Framework, grid: Grid, global_batch: usize) -> Vec<LayoutRequest> {
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
                                                vocab_multiple: framework.vocab_multiple,
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
    let model = model(4, 2);
    let cluster = Cluster { device_memory: Some(2_000_000), ..cluster() };
    let global_batch = 8;
    let problem = Problem::new(&model, &cluster, FRAMEWORK, global_batch, model.seq_len).unwrap();
    let orders = orders();
    for devices in [2, 3] {
        let mut best = f64::INFINITY;
        let mut smallest = u64::MAX;
        let mut seen = HashSet::new();
        for grid in grids(devices) {
            let legal: Vec<_> = requests(&FRAMEWORK, grid, global_batch)
                .iter()
                .filter_map(|request| Layout::if_legal(&model, request))
                .collect();
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
                    let (seconds, memory) = problem.outline(&layout, |_| true, &|| false).unwrap().unwrap();
                    smallest = smallest.min(memory.total());
                    if memory.total() <= cluster.device_memory.unwrap() {
                        best = best.min(seconds);
                    }
                }
            }
        }
        let search = search(&model, &cluster, devices, global_batch);
        let found = found(&search);
        let least = search.smallest().unwrap().unwrap();
        let fastest = found.ranked.first().map_or(f64::INFINITY, |ranked| ranked.price.seconds);
        assert!((fastest - best).abs() <= 1e-6 * best, "{devices} devices: {fastest} and {best}");
        assert_eq!(least.price.memory.total(), smallest, "{devices} devices");
        assert!(best.is_finite());
    }
}

#[test]
fn what_is_found_is_legal_and_placed_as_said() {
    let model = model(6, 4);
    let cluster = cluster();
    let searches = [1, 2, 6].map(|devices| search(&model, &cluster, devices, 24));
    for search in searches.into_iter().flat_map(by_both) {
        // Where all grids are among the wanted, all layouts are priced, which takes minutes.
        let devices = search.devices;
        let search = Search { distinct: true, top: 5, ..search.clone() };
        let found = found(&search);
        let mut grids = HashSet::new();
        for ranked in found.ranked.iter().chain(&found.front) {
            let request = ranked.candidate.request(24, model.seq_len).unwrap();
            let layout = Layout::new(&model, &request).unwrap();
            assert_eq!(Candidate::of(&layout, &cluster), ranked.candidate);
            assert_eq!(ranked.candidate.devices(), devices);
        }
        assert!(found.ranked.iter().all(|ranked| grids.insert(ranked.candidate.sizes)), "one of each grid");
        let several = Search { distinct: false, ..search.clone() };
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
        let model = any_model(number, layers, heads, &description);
        let mut cluster = cluster();
        cluster.tiers[0].bandwidth *= factor;
        let open = search(&model, &cluster, devices, batch);
        let setting = Setting { framework: Framework::QUADRILLE, capacity: Some(memory), ..open.setting };
        let found = found(&Search { setting, ..open });
        for ranked in found.ranked.iter().chain(&found.front) {
            prop_assert_eq!(setting.price(&setting.layout(&ranked.candidate).unwrap()), Ok(ranked.price));
            prop_assert!(ranked.price.memory.total() <= memory);
        }
        let mut seen = HashSet::new();
        let mut prices = Vec::new();
        for grid in grids(devices) {
            let typed =
                requests(&setting.framework, grid, batch).into_iter().map(|request| LayoutRequest { per_node: Some(devices), ..request });
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
