//! Holds the search of LBNL's configurations against the lists and counts of its authors' code.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use quadrille_papers::lbnl::{Found, Search, Shape, Strategy, System, price};

/// The cells of a table by line, without the header, which must be `columns`.
fn table(path: &str, columns: &str) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let mut lines = text.lines();
    assert!(lines.next().unwrap().starts_with(columns), "{path}");
    lines.map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

fn search(strategy: &str, model: &str, gpu: &str, nvs: u64, devices: u64, global_batch: u64) -> Search {
    let system = System::named(gpu).unwrap().with_fast_domain(nvs).unwrap();
    let shape = Shape::named(model).unwrap();
    Search::new(shape, system, strategy.parse().unwrap(), devices, global_batch).unwrap()
}

fn numbers(found: &Found) -> Vec<[u64; 10]> {
    found.ranked.iter().map(|ranked| ranked.configuration.numbers()).collect()
}

#[test]
fn there_are_exactly_as_many_candidates_as_published() {
    let rows = table("tests/data/lbnl/candidate_counts.csv", "strategy,model,n_gpus,nvs,global_batch,candidates");
    assert_eq!(rows.len(), 414);
    let mut total = 0;
    for row in rows {
        let size = |at: usize| row[at].parse::<u64>().unwrap();
        let found = search(&row[0], &row[1], "b200", size(3), size(2), size(4)).candidates();
        assert_eq!(found, size(5), "{row:?}");
        total += found;
    }
    assert_eq!(total, 4_739_014);
}

#[test]
fn complete_searches_find_the_published_ten_in_their_order() {
    let columns = "strategy,model,gpu,nvs,n_gpus,rank_in_top10,dp,tp1,tp2,pp,microbatch,summa_nb,nvs_tp1,nvs_tp2,\
                   nvs_dp,nvs_pp,global_batch,t_iter_s";
    let mut lists: BTreeMap<[String; 5], Vec<[u64; 10]>> = BTreeMap::new();
    for row in table("published/lbnl_top10.csv", columns) {
        let case = std::array::from_fn(|at| row[at].clone());
        let list = lists.entry(case).or_default();
        list.push(std::array::from_fn(|at| row[6 + at].parse().unwrap()));
        assert_eq!((row[5].parse(), row[16].as_str()), (Ok(list.len()), "4096"));
    }
    assert_eq!(lists.len(), 221);
    for ([strategy, model, gpu, nvs, devices], expected) in lists {
        let search = search(&strategy, &model, &gpu, nvs.parse().unwrap(), devices.parse().unwrap(), 4096);
        let found = search.run(10);
        assert_eq!(numbers(&found), expected, "{strategy} {model} {gpu} {nvs} {devices}");
        assert_eq!(found.candidates, search.candidates());
        assert!(found.feasible.min(10) == expected.len() as u64);
    }
}

/// The whole sequence's activations do not fit beside each other, however the width is cut.
#[test]
fn one_dimension_holds_no_long_sequence() {
    for gpu in ["a100", "h200", "b200"] {
        for (nvs, power) in [4, 8, 64].into_iter().flat_map(|nvs| (2..=14).map(move |power| (nvs, power))) {
            let found = search("1d", "vit_era5", gpu, nvs, 1 << power, 4096).run(10);
            let memory = System::named(gpu).unwrap().memory_bytes;
            assert_eq!((found.feasible, found.ranked.len()), (0, 0));
            assert!(found.least_memory_bytes.is_none_or(|least| least > memory), "{gpu} {nvs} 2^{power}");
        }
    }
}

#[test]
fn a_short_list_begins_a_long_one() {
    for strategy in Strategy::ALL.map(Strategy::name) {
        let search = search(strategy, "gpt3", "h200", 12, 720, 4320);
        let all = search.run(usize::MAX);
        assert!(all.feasible > 100 && all.feasible < all.candidates, "{all:?}");
        assert_eq!(all.ranked.len() as u64, all.feasible);
        assert!(all.ranked.is_sorted() && all.ranked.iter().all(|ranked| ranked.price.seconds > 0.0));
        let distinct: HashSet<_> = numbers(&all).into_iter().collect();
        assert_eq!(distinct.len() as u64, all.feasible);
        assert_eq!(search.run(7).ranked, all.ranked[..7]);
        assert_eq!(search.run(0).ranked, []);
    }
}

/// What is found uses all devices and the whole fast domain, and is priced as it would be alone.
#[test]
fn candidates_are_what_they_claim_to_be() {
    let shape = Shape::named("vit_era5").unwrap();
    let nvs = 8;
    let devices = 640;
    let batch = 1280;
    let system = System::named("b200-next").unwrap().with_fast_domain(nvs).unwrap();
    for strategy in [Strategy::TwoD, Strategy::Summa] {
        let found = Search::new(shape, system.clone(), strategy, devices, batch).unwrap().run(1000);
        assert!(found.ranked.len() > 100, "{}", found.ranked.len());
        for ranked in found.ranked {
            let [d, m1, m2, p, b, _, g1, g2, gd, gp] = ranked.configuration.numbers();
            assert_eq!((d * m1 * m2 * p, g1 * g2 * gd * gp), (devices, nvs));
            assert_eq!((batch % (d * b), shape.depth % p), (0, 0));
            assert_eq!(price(&shape, &system, &ranked.configuration, batch).unwrap(), ranked.price);
        }
    }
}

#[test]
fn what_cannot_be_searched() {
    let shape = Shape::named("gpt3").unwrap();
    let system = System::named("a100").unwrap();
    let refusal =
        |devices, batch| Search::new(shape, system.clone(), Strategy::TwoD, devices, batch).unwrap_err().to_string();
    assert_eq!(refusal(0, 1), "devices = 0: it is at least 1; use 1 or more");
    assert!(refusal(1, 1 << 25).starts_with("global_batch = 33554432: "));
    // A fast domain of five does not divide 16 devices; one of 32 holds them all.
    assert_eq!(search("2d", "gpt3", "a100", 5, 16, 4096).candidates(), 0);
    let none = search("2d", "gpt3", "a100", 5, 16, 4096).run(10);
    assert_eq!((none.candidates, none.least_memory_bytes, none.ranked.len()), (0, None, 0));
    let one_domain = search("2d", "gpt3", "a100", 32, 16, 4096);
    assert_eq!(one_domain.candidates(), search("2d", "gpt3", "a100", 16, 16, 4096).candidates());
    assert!(one_domain.run(1000).ranked.iter().all(|ranked| {
        let [d, m1, m2, p, .., g1, g2, gd, gp] = ranked.configuration.numbers();
        [d, m1, m2, p] == [gd, g1, g2, gp]
    }));
}
