//! Constraints of the native search: they are kept, and blamed where they leave nothing.

use quadrille_cost::native::Candidate;
use quadrille_plan::native::{Bound, Cancel, Found, Search, Space};
use quadrille_spec::{Axis, Recompute, Schedule};

use crate::problems::{by_both, cluster, found, model, search};

#[test]
fn what_leaves_nothing_is_blamed() {
    let model = model(8, 4);
    let cluster = cluster();
    let why = |constraints: &[(Bound, &str)]| {
        let mut search = search(&model, &cluster, 8, 16);
        constraints.iter().for_each(|(bound, text)| search.space.constrain(*bound, text).unwrap());
        let found = found(&search);
        assert!(found.ranked.is_empty(), "{constraints:?}");
        search.why_nothing(&found).to_string()
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
    let model = model(8, 4);
    let cluster = cluster();
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
    let model = model(4, 2);
    let cluster = cluster();
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
