//! Searches whose time is up: they say so, price no more, and have found something likely.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use quadrille_cost::native::Framework;
use quadrille_plan::native::{Answer, Bound, Question, Search, Wanted};
use quadrille_spec::Cluster;

use crate::problems::{by_both, cluster, found, model, on_threads, search};

#[test]
fn a_stopped_search_says_so_and_keeps_what_it_has() {
    let (model, cluster) = (model(6, 4), cluster());
    for search in by_both(search(&model, &cluster, 4, 24)) {
        let asked = AtomicUsize::new(0);
        let early = search.run(&|| asked.fetch_add(1, Ordering::Relaxed) > 40).unwrap();
        assert!(early.stopped && !early.ranked.is_empty());
        let counts = early.counts;
        assert!(counts.priced + counts.too_large + counts.too_slow <= counts.legal, "{counts:?}");
        assert!(counts.legal < found(&search).counts.legal, "{counts:?}");
    }
}

/// Between two questions whether to stop, eight programs are priced at most; after the answer none.
#[test]
fn a_stopped_search_prices_no_more_programs() {
    let (model, cluster) = (model(4, 2), cluster());
    let [_, mut search] = by_both(search(&model, &cluster, 4, 4));
    search.top = 40;
    for text in ["recompute=none", "overlap-chunks=1", "context=1", "linear=pmm"] {
        search.space.constrain(Bound::Fix, text).unwrap();
    }
    let asked = AtomicUsize::new(0);
    let stopped_at = |question: usize| {
        asked.store(0, Ordering::Relaxed);
        on_threads(1, || search.run(&|| asked.fetch_add(1, Ordering::Relaxed) >= question)).unwrap().counts.priced
    };
    let all = stopped_at(usize::MAX);
    let questions = asked.load(Ordering::Relaxed);
    let priced: Vec<u64> = (0..=questions).map(stopped_at).collect();
    assert!(priced[0] == 0 && priced[questions] == all && all > 8, "{priced:?}");
    assert!(priced.windows(2).all(|two| two[0] <= two[1] && two[1] <= two[0] + 8), "{priced:?}");
}

#[test]
fn a_search_that_has_no_time_finds_something_likely() {
    let (model, cluster) = (model(6, 4), cluster());
    for constraint in ["recompute=full:3", "keep-weights=step", "cac=true", "x=1"] {
        let mut search = search(&model, &cluster, 6, 12);
        search.space.constrain(Bound::Fix, constraint).unwrap();
        let hurried = search.run(&|| true).unwrap();
        assert!(hurried.stopped && !hurried.ranked.is_empty() && !hurried.front.is_empty(), "{constraint}");
        assert!(hurried.ranked.iter().all(|ranked| search.space.contains(&ranked.candidate)), "{constraint}");
        let all = found(&search);
        assert!(all.ranked[0].price.seconds <= hurried.ranked[0].price.seconds, "{constraint}");
    }
    let tiny = Cluster { device_memory: Some(10), ..cluster };
    let search = search(&model, &tiny, 12, 24);
    let message = search.why_nothing(&search.run(&|| true).unwrap(), &|| true).to_string();
    assert!(message.contains("stopped before"), "{message}");
}

/// What a first look finds in no time has the prices that everything has.
#[test]
fn what_is_found_at_once_is_priced_in_full() {
    let (model, cluster) = (model(6, 4), cluster());
    for search in by_both(search(&model, &cluster, 12, 24)) {
        let brief = Search { brief: true, tolerance: Some(0.1), ..search };
        let found = brief.run(&|| true).unwrap();
        assert!(found.stopped && (1..=3).contains(&found.ranked.len()) && found.simplest.is_some());
        for ranked in found.ranked.iter().chain(&found.front).chain(&found.simplest) {
            let layout = brief.setting.layout(&ranked.candidate).unwrap();
            assert_eq!(ranked.price, brief.setting.price(&layout).unwrap(), "{}", layout.grid);
        }
    }
}

/// A price of so many blocks takes about a second: none of some thirty is taken for gains where time is limited.
#[test]
fn of_very_many_blocks_no_gains_are_looked_at_where_time_is_limited() {
    let looked_at = |layers, limit| {
        let (model, cluster) = (model(layers, 2), Cluster::preset("selene").unwrap());
        let question = Question::new(model, cluster, Framework::MEGATRON, 1, 2);
        let question = Question { time_limit: limit, ..question };
        let answer = Answer::new(&question, &Wanted { top: 1, ..Wanted::default() }).unwrap();
        (answer.is_long(), answer.sensitivities.is_empty())
    };
    let moment = Some(Duration::from_millis(1));
    assert_eq!(looked_at(8, moment), (false, false));
    assert_eq!(looked_at(8, None), (false, false));
    assert_eq!(looked_at(8192, moment), (true, true));
}
