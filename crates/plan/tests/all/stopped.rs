//! Searches with a limit of looks: they say so, look at no more, give the same on every machine, and have found something likely.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use quadrille_cost::native::Framework;
use quadrille_plan::native::{Answer, Bound, Question, Search, Wanted};
use quadrille_spec::Cluster;

use crate::problems::{by_both, cluster, found, model, on_threads, search};

#[test]
fn a_search_with_a_limit_says_so_and_keeps_what_it_has() {
    let model = model(6, 4);
    let cluster = cluster();
    for search in by_both(search(&model, &cluster, 4, 24)) {
        let early = found(&Search { limit: Some(2000), ..search.clone() });
        assert!(early.stopped && !early.ranked.is_empty());
        let counts = early.counts;
        assert!(counts.priced + counts.too_large + counts.too_slow <= counts.legal, "{counts:?}");
        let whole = found(&search);
        assert!(counts.legal < whole.counts.legal && early.looks < whole.looks, "{counts:?}");
        assert!(whole.ranked[0].price.seconds <= early.ranked[0].price.seconds);
        // As many looks as a whole search takes, in each of the cuts that it looks at side by side, are no limit.
        let enough = found(&Search { limit: Some(1000 * whole.looks), ..search });
        assert_eq!(enough, whole);
    }
}

/// A look at a part of a wave ends with one more layout that was bounded, or eight that were priced, at most.
#[test]
fn no_more_is_priced_than_a_limit_allows() {
    let model = model(4, 2);
    let cluster = cluster();
    let [_, mut search] = by_both(search(&model, &cluster, 4, 4));
    search.top = 40;
    for text in ["recompute=none", "overlap-chunks=1", "context=1", "linear=pmm"] {
        search.space.constrain(Bound::Fix, text).unwrap();
    }
    let whole = found(&search);
    let priced = |limit| found(&Search { limit: Some(limit), ..search.clone() }).counts.priced;
    let limits = [0, 1, 64, 1000, 4000, 16_000, 1000 * whole.looks];
    let each = limits.map(priced);
    assert!(each[0] == 0 && each[6] == whole.counts.priced && whole.counts.priced > 8, "{each:?}");
    assert!(each.is_sorted(), "{each:?}");
    let allowed = |(limit, priced): (u64, u64)| priced <= limit / 64 + 8;
    assert!(limits.into_iter().zip(each).all(allowed), "{each:?}");
}

/// How busy a machine is, and how many threads search, decides how long it takes and nothing else.
#[test]
fn results_with_a_limit_are_the_same_on_busy_machines_and_any_number_of_threads() {
    let model = model(6, 4);
    let cluster = cluster();
    let is_done = AtomicBool::new(false);
    for limit in [Some(0), Some(300), Some(5000), None] {
        for search in by_both(Search { tolerance: Some(0.1), limit, ..search(&model, &cluster, 4, 24) }) {
            let quiet = on_threads(1, || found(&search));
            is_done.store(false, Ordering::Relaxed);
            let busy = thread::scope(|scope| {
                // Some wait and some do not, so that threads of the search are late in turn.
                for number in 0..6_u64 {
                    let is_done = &is_done;
                    scope.spawn(move || {
                        while !is_done.load(Ordering::Relaxed) {
                            std::hint::black_box((0..10_000 * number).sum::<u64>());
                            thread::yield_now();
                        }
                    });
                }
                let found = [2, 5].map(|threads| on_threads(threads, || found(&search)));
                is_done.store(true, Ordering::Relaxed);
                found
            });
            assert_eq!(quiet.stopped, limit.is_some());
            assert!(busy.iter().all(|found| *found == quiet), "{limit:?}");
        }
    }
}

#[test]
fn a_search_that_may_not_look_finds_something_likely() {
    let model = model(6, 4);
    let cluster = cluster();
    for constraint in ["recompute=full:3", "keep-weights=step", "cac=true", "x=1"] {
        let mut search = search(&model, &cluster, 6, 12);
        search.space.constrain(Bound::Fix, constraint).unwrap();
        let hurried = found(&Search { limit: Some(0), ..search.clone() });
        assert!(hurried.stopped && !hurried.ranked.is_empty() && !hurried.front.is_empty(), "{constraint}");
        assert!(hurried.ranked.iter().all(|ranked| search.space.contains(&ranked.candidate)), "{constraint}");
        let all = found(&search);
        assert!(all.ranked[0].price.seconds <= hurried.ranked[0].price.seconds, "{constraint}");
    }
    // States fit, and activations of the usual layouts do not.
    let wanted = |capacity| {
        let open = search(&model, &cluster, 12, 24);
        let setting = quadrille_plan::native::Setting { capacity: Some(capacity), ..open.setting };
        Search { setting, limit: Some(0), ..open }
    };
    let least = Search { limit: None, ..wanted(u64::MAX) }.smallest().unwrap().unwrap().price.memory;
    let search = wanted(least.total() - 1);
    let message = search.why_nothing(&search.run().unwrap()).to_string();
    assert!(message.contains("stopped before") && message.contains("`search.limit`"), "{message}");
}

/// What a first look finds at once has the prices that everything has.
#[test]
fn what_is_found_at_once_is_priced_in_full() {
    let model = model(6, 4);
    let cluster = cluster();
    for search in by_both(search(&model, &cluster, 12, 24)) {
        let brief = Search { brief: true, limit: Some(0), tolerance: Some(0.1), ..search };
        let found = brief.run().unwrap();
        assert!(found.stopped && (1..=3).contains(&found.ranked.len()) && found.simplest.is_some());
        for ranked in found.ranked.iter().chain(&found.front).chain(&found.simplest) {
            let layout = brief.setting.layout(&ranked.candidate).unwrap();
            assert_eq!(ranked.price, brief.setting.price(&layout).unwrap(), "{}", layout.grid);
        }
    }
}

/// A price of so many blocks takes about a second: none of some thirty is taken for gains where looks are limited.
#[test]
fn of_very_many_blocks_no_gains_are_looked_at_where_looks_are_limited() {
    let looked_at = |layers, limit| {
        let model = model(layers, 2);
        let cluster = Cluster::preset("selene").unwrap();
        let question = Question::new(model, cluster, Framework::MEGATRON, 1, 2);
        let question = Question { limit, ..question };
        let answer = Answer::new(&question, &Wanted { top: 1, ..Wanted::default() }).unwrap();
        (answer.is_long(), answer.sensitivities.is_empty())
    };
    assert_eq!(looked_at(8, Some(1)), (false, false));
    assert_eq!(looked_at(8, None), (false, false));
    assert_eq!(looked_at(8192, Some(1)), (true, true));
}
