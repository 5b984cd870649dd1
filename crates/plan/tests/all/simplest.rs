//! Of layouts whose times cannot be told apart the simplest is found, whatever is left out on the way.

use quadrille_plan::native::{Bound, Complexity, Found, Ranked, Search};

use crate::problems::{by_both, cluster, found, model, search};

/// The seconds of the fastest, the simplest's complexity and seconds, and the fastest's complexity.
fn compared(search: &Search, found: &Found) -> (f64, (Complexity, f64), Complexity) {
    let layers = search.setting.model.layers();
    let fastest = found.ranked[0];
    let simplest = found.simplest.unwrap();
    let of = |candidate| Complexity::of(candidate, layers);
    let own = of(&simplest.candidate);
    let seconds = simplest.price.seconds;
    (fastest.price.seconds, (own, seconds), of(&fastest.candidate))
}

/// All layouts, priced one by one, against the search.
#[test]
fn nothing_within_the_tolerance_is_simpler() {
    let model = model(4, 4);
    let cluster = cluster();
    for search in by_both(search(&model, &cluster, 4, 8)) {
        let mut all = Search { front: false, prune: false, top: usize::MAX, ..search };
        for text in ["z=1", "overlap-chunks=1", "linear=pmm", "cac=false"] {
            all.space.constrain(Bound::Fix, text).unwrap();
        }
        let everything = found(&all).ranked;
        let mut simpler = 0;
        for tolerance in [0.0, 0.05, 0.3] {
            let limit = (1.0 + tolerance) * everything[0].price.seconds;
            let within = everything.iter().filter(|ranked| ranked.price.seconds as f32 <= limit as f32);
            let least = within.map(|ranked| Complexity::of(&ranked.candidate, model.layers())).min().unwrap();
            let few = Search { prune: true, top: 1, tolerance: Some(tolerance), ..all.clone() };
            let (fastest, (complexity, seconds), of_fastest) = compared(&few, &found(&few));
            assert_eq!(complexity, least, "{tolerance}");
            assert!(fastest <= seconds && seconds <= limit * (1.0 + 1e-6), "{fastest}, {seconds}, {limit}");
            simpler += usize::from(complexity < of_fastest);
        }
        assert!(simpler > 0, "the fastest and the simplest differ somewhere");
    }
}

/// Among layouts of at most so many bytes, of all that were priced one by one: the fastest, and the simplest that is hardly slower.
#[test]
fn the_recommended_layout_is_a_safe_one_if_there_is_any() {
    let model = model(4, 4);
    let cluster = cluster();
    for search in by_both(search(&model, &cluster, 4, 8)) {
        let mut all = Search { front: false, prune: false, top: usize::MAX, ..search };
        for text in ["z=1", "overlap-chunks=1", "linear=pmm", "cac=false"] {
            all.space.constrain(Bound::Fix, text).unwrap();
        }
        let everything = found(&all).ranked;
        let bytes = |ranked: &Ranked| ranked.price.memory.total();
        let mut sizes: Vec<u64> = everything.iter().map(bytes).collect();
        sizes.sort_unstable();
        let mut slower = 0;
        for safe in [sizes[0] - 1, sizes[0], sizes[sizes.len() / 4], sizes[sizes.len() / 2], u64::MAX] {
            let tolerance = 0.05;
            let few =
                Search { prune: true, top: 1, tolerance: Some(tolerance), safe_capacity: Some(safe), ..all.clone() };
            let found = found(&few);
            assert_eq!(found.ranked[0], everything[0], "the fastest of all stays the first");
            let fastest = everything.iter().find(|ranked| bytes(ranked) <= safe);
            assert_eq!(found.safe.as_ref(), fastest);
            // Without a safe one the simplest is one of all.
            let most = if fastest.is_some() { safe } else { u64::MAX };
            let limit = (1.0 + tolerance) * fastest.unwrap_or(&everything[0]).price.seconds;
            let within = |ranked: &&Ranked| bytes(ranked) <= most && ranked.price.seconds as f32 <= limit as f32;
            let of = |ranked: &Ranked| Complexity::of(&ranked.candidate, model.layers());
            let simplest = found.simplest.unwrap();
            assert_eq!(Some(of(&simplest)), everything.iter().filter(within).map(of).min());
            assert!(within(&&simplest));
            slower += usize::from(fastest.is_some_and(|fastest| fastest.price.seconds > everything[0].price.seconds));
        }
        assert!(slower > 0, "the fastest takes more than is safe somewhere");
    }
}

#[test]
fn without_a_tolerance_nothing_else_changes() {
    let model = model(6, 4);
    let cluster = cluster();
    let plain = found(&search(&model, &cluster, 4, 24));
    let advised = found(&Search { tolerance: Some(0.1), ..search(&model, &cluster, 4, 24) });
    assert!(plain.simplest.is_none() && advised.simplest.is_some());
    assert_eq!(plain, Found { simplest: None, ..advised });
}

#[test]
fn a_search_that_may_not_look_advises_what_it_knows() {
    let model = model(6, 4);
    let cluster = cluster();
    let search = Search { tolerance: Some(0.1), limit: Some(0), ..search(&model, &cluster, 12, 24) };
    let hurried = found(&search);
    let (fastest, (complexity, seconds), of_fastest) = compared(&search, &hurried);
    assert!(hurried.stopped && complexity <= of_fastest && seconds <= 1.1 * fastest * (1.0 + 1e-6));
}
