//! What searches learn for each other changes nothing that they find.

use quadrille_cost::native::Learned;
use quadrille_plan::native::{Search, Setting};
use quadrille_spec::Cluster;

use crate::problems::{by_both, cluster, found, model, search};

/// Of other devices, sequences, memory and clusters, each after the ones before; then of another model.
#[test]
fn searches_find_the_same_whatever_was_learned_before() {
    let large = model(6, 4);
    let small = model(4, 2);
    let cluster = cluster();
    let slow =
        Cluster { device_memory: cluster.device_memory.map(|memory| memory / 2), ..Cluster::preset("selene").unwrap() };
    let learned = Learned::default();
    for framework in 0..2 {
        for (model, cluster, devices, batch) in
            [(&large, &cluster, 4, 12), (&large, &slow, 2, 8), (&large, &cluster, 4, 12), (&small, &slow, 2, 8)]
        {
            let [own, other] = by_both(Search { front: false, ..search(model, cluster, devices, batch) });
            let alone = if framework == 0 { own } else { other };
            let taught = Search { setting: Setting { learned: Some(&learned), ..alone.setting }, ..alone.clone() };
            let expected = found(&alone);
            assert!(!expected.ranked.is_empty());
            assert_eq!(found(&taught), expected, "{} on {devices} of {}", model.name, cluster.name);
        }
    }
}
