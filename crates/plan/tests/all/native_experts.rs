//! Searches among the ways to spread experts.

use quadrille_plan::native::{Bound, Search, Setting, Space};
use quadrille_spec::{BalanceScope, Experts, FeedForward, Imbalance, Model, Router, RouterScores};

use crate::problems::{by_both, cluster, found, model, search};

/// Every way to spread experts is tried in one search: it finds the best of what it finds where each is fixed.
#[test]
fn the_best_way_to_spread_experts_is_found() {
    let cluster = cluster();
    let mut model = model(4, 4);
    model.blocks = model.blocks.each(|block| {
        let FeedForward::Dense(expert) = block.feed_forward else { return };
        let router = Router {
            scores: RouterScores::Softmax,
            groups: None,
            normalize: true,
            scale: 1.0,
            balance: BalanceScope::Sequence,
            balance_loss: 0.01,
            z_loss: 0.0,
            bias_rate: 0.0,
        };
        block.feed_forward =
            FeedForward::Experts(Experts { count: 4, per_token: 2, expert, shared: None, router, capacity: None });
    });
    for search in by_both(Search { distinct: true, front: false, top: 1, ..search(&model, &cluster, 8, 16) }) {
        let best = |set: Option<&str>| {
            let mut search = search.clone();
            let set = set.map(|set| format!("experts-over={set}"));
            let grid = ["x=2", "z=1", "context=1", "expert=2"].map(str::to_owned);
            grid.into_iter().chain(set).for_each(|text| search.space.constrain(Bound::Fix, &text).unwrap());
            let found = found(&search);
            (found.counts, found.ranked[0])
        };
        let (all, first) = best(None);
        let each = ["", "x+"].map(|others| best(Some(&format!("{others}expert"))));
        let least = each.iter().map(|(_, one)| one.price.seconds).min_by(f64::total_cmp);
        assert_eq!(Some(first.price.seconds), least);
        assert!(each.iter().any(|(_, one)| one.price.seconds > first.price.seconds), "it matters how they are spread");
        assert_eq!(each.iter().map(|(counts, _)| counts.legal).sum::<u64>(), all.legal);
        assert!(each.iter().all(|(counts, _)| counts.grids == all.grids));
    }
}

/// Where the fullest rank has more rows of experts than there usually is room for, layouts get the room; a search finds them with
/// and without bounds, and none where less room is wanted.
#[test]
fn unequal_loads_find_layouts_with_room_for_them() {
    let text = "name = 'mixture'\nlayers = 2\nhidden = 256\nheads = 4\nvocab = 256\nseq_len = 32\nexperts = 8\n\
                experts_per_token = 1\nrouter_normalize = false\nexpert_ffn = 256\n";
    let model = Model::from_toml(text, &[]).unwrap();
    let cluster = cluster();
    let imbalance = Imbalance::Times(2.5);
    let mut space = Space::default();
    for constraint in ["expert=8", "x=1", "y=1", "z=1", "context=1", "experts-over=expert", "recompute=none"] {
        space.constrain(Bound::Fix, constraint).unwrap();
    }
    let search = search(&model, &cluster, 8, 16);
    let setting = Setting { imbalance: &imbalance, capacity: None, ..search.setting };
    for search in by_both(Search { setting, space, ..search }) {
        let bounded = found(&search);
        let unbounded = found(&Search { prune: false, ..search.clone() });
        assert_eq!(bounded.ranked, unbounded.ranked);
        assert!(!bounded.ranked.is_empty() && bounded.ranked.iter().all(|ranked| ranked.candidate.expert_rows == 3));
        let equal =
            found(&Search { setting: Setting { imbalance: &Imbalance::EQUAL, ..search.setting }, ..search.clone() });
        assert!(equal.ranked.iter().all(|ranked| ranked.candidate.expert_rows == 0));
        assert!(equal.ranked[0].price.seconds < bounded.ranked[0].price.seconds);
        let mut narrow = search.clone();
        narrow.space.constrain(Bound::Fix, "expert-rows=2").unwrap();
        let nothing = narrow.run().unwrap();
        assert!(nothing.ranked.is_empty() && !nothing.stopped);
        let message = narrow.why_nothing(&nothing).to_string();
        assert!(
            message.contains("`layout.expert_rows` = 2") && message.contains("`layout.expert_rows` 3"),
            "{message}"
        );
        narrow.space.expert_rows = Some(4);
        assert!(found(&narrow).ranked.iter().all(|ranked| ranked.candidate.expert_rows == 4));
    }
}
