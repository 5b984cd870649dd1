//! Searches with a padded vocabulary.

use quadrille_plan::native::{Bound, Search};

use crate::problems::{by_both, cluster, found, model, search};

/// Vocabularies are padded as the framework pads; what is fixed of it all layouts have, bounds lose nothing, and it costs what it
/// costs.
#[test]
fn a_padded_vocabulary_is_searched_and_priced() {
    let cluster = cluster();
    let model = model(3, 4);
    for search in by_both(search(&model, &cluster, 4, 8)) {
        let plain = found(&search);
        let mut padded = search.clone();
        padded.space.constrain(Bound::Fix, "vocab-multiple=4096").unwrap();
        let bounded = found(&padded);
        assert_eq!(bounded.ranked, found(&Search { prune: false, ..padded.clone() }).ranked);
        assert!(bounded.ranked.iter().all(|ranked| ranked.candidate.vocab_multiple == 4096));
        assert!(
            plain
                .ranked
                .iter()
                .all(|ranked| ranked.candidate.vocab_multiple == search.setting.framework.vocab_multiple)
        );
        assert!(bounded.ranked[0].price.seconds > plain.ranked[0].price.seconds, "padding is multiplied, too");
    }
}
