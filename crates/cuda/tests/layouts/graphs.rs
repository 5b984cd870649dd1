//! Kernels that are sent in graphs give the bits that they give one by one; graphs that do nothing, or are run with the words that they
//! had, are found.

use std::env;

use crate::careless::{PARTS, Part, passes_apart, passes_in_graphs};
use crate::switched::{TROUBLES, told_in_trouble, told_with_graphs, told_without};

/// Where tests run on a real device these are left out: they look at the emulated one.
fn is_real() -> bool {
    env::var("QUADRILLE_TEST_DEVICE").is_ok()
}

/// Dropout's keys and places and the optimizer's constants change with every pass and step; collectives and messages lie between.
#[test]
fn graphs_change_no_bit_and_are_run() {
    if is_real() {
        return;
    }
    let grids = ["data=2", "x=2,z=2"].map(|grid| ["f64", "f32", "bf16"].map(|dtype| format!("{dtype} {grid} none")));
    let more = ["f64 pipe=2,data=2 none", "f32 data=2 full"].map(str::to_owned);
    for run in grids.into_iter().flatten().chain(more) {
        let (apart, none) = told_with_graphs("", &run);
        assert_eq!(none, [0; 4], "{run}: they are off");
        let (in_graphs, [made, runs, updates, refused]) = told_with_graphs("graphs=on", &run);
        assert_eq!(in_graphs, apart, "{run}");
        assert!(made > 0 && runs > made && updates > 0, "{run}: {made} made, {runs} run, {updates} launches changed");
        assert_eq!(refused, 0, "{run}");
    }
}

/// What a device refuses of graphs changes no bit, and is told.
#[test]
fn refused_graphs_change_no_bit() {
    if is_real() {
        return;
    }
    let run = "f64 data=2 none";
    let apart = told_with_graphs("", run).0;
    for trouble in TROUBLES {
        let (told, [.., refused]) = told_in_trouble(trouble, run);
        assert_eq!(told, apart, "{trouble:?}");
        assert!(refused > 0, "{trouble:?}");
    }
}

/// What is left out of graphs changes the steps.
#[test]
fn graphs_that_do_less_are_found() {
    if is_real() {
        return;
    }
    let run = "f64 data=2 none";
    let whole = told_without(Part::Nothing, "graphs=on", run);
    assert_eq!(whole, Some(told_with_graphs("", run).0));
    for part in [Part::Words, Part::Graphs] {
        assert_ne!(told_without(part, "graphs=on", run), whole, "{part:?} is left out");
    }
}

/// Random layouts in graphs equal the serial model, on one device and on three.
#[test]
fn random_layouts_in_graphs_equal_the_serial_model() {
    if is_real() {
        return;
    }
    let tests = ["layouts", "described_blocks", "experts"].map(|which| format!("{which}_equal_the_serial_model"));
    let close = ["single_precision_is", "rounded_values_are"].map(|which| format!("{which}_close_to_the_serial_model"));
    for test in tests.iter().chain(&close) {
        assert!(passes_in_graphs(test, Part::Nothing, 1), "{test}");
    }
    assert!(passes_in_graphs("combined_layouts_equal_the_serial_model", Part::Nothing, 3), "on three devices");
}

/// What orders streams is found where it is left out; so are graphs that do nothing.
#[test]
fn careless_devices_are_found_in_graphs() {
    if is_real() {
        return;
    }
    let test = "combined_layouts_equal_the_serial_model";
    for part in PARTS.into_iter().chain([Part::Graphs]) {
        assert_eq!(passes_in_graphs(test, part, 1), part == Part::Nothing, "{part:?} is left out");
    }
}

/// Ranks that are kept apart, as if they were processes, compute the same in graphs by the library of collectives.
#[test]
fn ranks_kept_apart_compute_the_same_in_graphs() {
    if is_real() {
        return;
    }
    for part in [Part::Nothing, Part::Records] {
        let passed = passes_apart("combined_layouts_equal_the_serial_model", part, "bias=on,graphs=on");
        assert_eq!(passed, part == Part::Nothing, "{part:?} is left out");
    }
}
