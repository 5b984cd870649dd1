//! Numbers that a message names have layouts, and none nearer has.

use quadrille_plan::native::{Bound, Nothing, Search, Setting};
use quadrille_spec::Cluster;

use crate::problems::{cluster, found, model, search};

fn why(search: &Search) -> Nothing {
    let found = found(search);
    assert!(found.ranked.is_empty());
    search.why_nothing(&found, &|| false)
}

fn has_layout(search: &Search) -> bool {
    !found(search).ranked.is_empty()
}

/// The numbers next to `wanted` for which something is found, by searching.
fn by_searching(wanted: usize, has: impl Fn(usize) -> bool) -> Vec<usize> {
    let below = (1..wanted).rev().find(|number| has(*number));
    let above = (wanted + 1..wanted + 40).find(|number| has(*number));
    below.into_iter().chain(above).collect()
}

#[test]
fn numbers_of_devices_and_sequences_are_the_nearest_that_are_legal() {
    let (model, cluster) = (model(4, 2), Cluster { device_memory: None, ..cluster() });
    for (devices, batch) in [(7, 8), (11, 6), (13, 12)] {
        let mut wanted = search(&model, &cluster, devices, batch);
        wanted.setting.capacity = None;
        wanted.front = false;
        for text in ["y=1", "z=1", "context=1"] {
            wanted.space.constrain(Bound::Fix, text).unwrap();
        }
        let error = why(&wanted);
        let Nothing::Illegal { feasible, .. } = &error else { panic!("{error}") };
        let on = |devices| has_layout(&Search { devices, ..wanted.clone() });
        assert_eq!(feasible.devices, by_searching(devices, on), "{error}");
        let with = |global_batch| {
            has_layout(&Search { setting: Setting { global_batch, ..wanted.setting }, ..wanted.clone() })
        };
        assert_eq!(feasible.batches, by_searching(batch, with), "{error}");
        let message = error.to_string();
        assert!(message.contains("nearest with a legal layout: "), "{message}");
        assert!(message.contains(&format!("{} devices", feasible.devices.iter().max().unwrap())), "{message}");
    }
}

#[test]
fn a_fixed_size_that_does_not_divide_names_devices_that_it_does() {
    let (model, cluster) = (model(4, 4), cluster());
    let mut wanted = Search { front: false, top: 1, ..search(&model, &cluster, 7, 8) };
    for text in ["x=2", "y=1", "z=1", "context=1"] {
        wanted.space.constrain(Bound::Fix, text).unwrap();
    }
    let message = why(&wanted).to_string();
    let near = by_searching(7, |devices| has_layout(&Search { devices, ..wanted.clone() }));
    let near = near.iter().map(usize::to_string).collect::<Vec<_>>().join(" or ");
    let remedy = format!("divides the 7 devices; try x=1 or x=7, or {near} devices");
    assert!(message.contains(&remedy), "{remedy}: {message}");
}

#[test]
fn devices_that_have_room_are_named_only_if_they_have() {
    let (model, cluster) = (model(4, 4), cluster());
    let with = |capacity| {
        let mut open = search(&model, &cluster, 1, 8);
        for text in ["y=1", "z=1", "context=1", "overlap-chunks=1", "cac=false"] {
            open.space.constrain(Bound::Fix, text).unwrap();
        }
        Search { setting: Setting { capacity: Some(capacity), ..open.setting }, front: false, top: 1, ..open }
    };
    let smallest = |devices| {
        let search = Search { devices, ..with(u64::MAX) };
        search.smallest(&|| false).unwrap().unwrap().price.memory.total()
    };
    let (one, two, eight) = (smallest(1), smallest(2), smallest(8));
    assert!(eight < two && two < one);
    let message = |capacity| why(&with(capacity)).to_string();
    assert!(message(two).contains("2 devices have a layout that fits"), "{}", message(two));
    assert!(message(eight - 1).contains("use more devices or devices with more memory"), "{}", message(eight - 1));
}
