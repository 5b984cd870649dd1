//! Numbers that a message names have layouts, and none nearer has.

use quadrille_plan::native::{Bound, Nothing, Search, Setting};
use quadrille_spec::{Cluster, Model};

use crate::problems::{cluster, found, model, search};

fn why(search: &Search) -> Nothing {
    let found = found(search);
    assert!(found.ranked.is_empty());
    search.why_nothing(&found)
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
    let model = model(4, 2);
    let cluster = Cluster { device_memory: None, ..cluster() };
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
    let model = model(4, 4);
    let cluster = cluster();
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
    let model = model(4, 4);
    let open = Cluster { device_memory: None, ..cluster() };
    fn with<'a>(model: &'a Model, cluster: &'a Cluster, devices: usize, capacity: Option<u64>) -> Search<'a> {
        let mut open = search(model, cluster, devices, 8);
        for text in ["y=1", "z=1", "context=1", "overlap-chunks=1", "cac=false"] {
            open.space.constrain(Bound::Fix, text).unwrap();
        }
        Search { setting: Setting { capacity, ..open.setting }, front: false, top: 1, ..open }
    }
    let smallest = |devices| with(&model, &open, devices, None).smallest().unwrap().unwrap().price.memory.total();
    let one = smallest(1);
    let two = smallest(2);
    let eight = smallest(8);
    assert!(eight < two && two < one);
    // A device that has so much keeps nothing free, or what a larger one has beside.
    let message = |capacity, memory| {
        let device = Cluster { device_memory: Some(memory), ..open.clone() };
        why(&with(&model, &device, 1, Some(capacity))).to_string()
    };
    let enough = message(two, two);
    assert!(enough.contains("2 devices have a layout that fits"), "{enough}");
    // Bf16 gradients and fp8 moments leave 10 of 18 bytes a parameter, which is more than half.
    let nowhere = message(eight / 2, eight / 2);
    assert!(nowhere.contains("use more devices or devices with more memory"), "{nowhere}");
    let reserved = message(eight / 2, one);
    assert!(reserved.contains("with `search.memory_reserve` 0 there is one"), "{reserved}");
    assert!(!message(eight / 2, one - 1).contains("memory_reserve"), "one byte too few");
}
