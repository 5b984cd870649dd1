//! Graphs of the emulated device: what they keep, what is refused.

use super::*;
use quadrille_tensor::{ProductShape, Transpose};

use crate::array::{Array, Element, Format};
use crate::driver::{Driver, Place};

fn launch<'w>(kernel: &'static str, words: &'w [u64]) -> Launch<'w> {
    Launch { kernel, format: Format::F64, blocks: 1, shared: 0, words }
}

/// A stream, numbers, and a graph that doubles the first of them and copies it to the second.
fn doubled() -> (Emulator, Stream, Address, Graph, Node) {
    let device = Emulator::new(1);
    let stream = device.stream(false).unwrap();
    let at = device.allocate(16).unwrap();
    let words = [at.0, 2.0_f64.to_bits(), 1];
    let doubles = launch("scale", &words);
    // SAFETY: the numbers are there as long as the device.
    unsafe {
        device.clear(stream, at, 16).unwrap();
        device.launch(stream, &doubles).unwrap();
        device.begin_graph(stream).unwrap();
        device.launch(stream, &doubles).unwrap();
    }
    let node = device.last_node(stream).unwrap();
    // SAFETY: as above.
    unsafe { device.copy(stream, Place::Device(at), Place::Device(at.offset(8)), 8) }.unwrap();
    assert!(device.last_node(stream).is_err(), "a copy is no launch");
    let graph = device.end_graph(stream).unwrap();
    (device, stream, at, graph, node)
}

fn told<T>(outcome: Result<T, Fault>) -> String {
    outcome.err().map(|fault| fault.text).unwrap_or_default()
}

#[test]
fn a_graph_runs_with_the_words_that_it_had_then() {
    let (device, stream, at, graph, node) = doubled();
    let one = [1.0_f64];
    let mut numbers = [0.0_f64; 2];
    // SAFETY: the numbers are there until the stream is done.
    unsafe {
        device.copy(stream, Place::Host(one.as_ptr().cast()), Place::Device(at), 8).unwrap();
        device.run_graph(graph, stream).unwrap();
        device.update_node(graph, node, &launch("scale", &[at.0, 5.0_f64.to_bits(), 1])).unwrap();
        device.run_graph(graph, stream).unwrap();
        device.forget_graph(graph);
        device.copy(stream, Place::Device(at), Place::HostMut(numbers.as_mut_ptr().cast()), 16).unwrap();
    }
    device.synchronize(stream).unwrap();
    assert_eq!(numbers, [10.0; 2]);
    assert_eq!(device.graphs(), GraphTally { made: 1, runs: 2, updates: 1, forgotten: 1, refused: 0 });
}

#[test]
fn what_a_device_refuses_of_graphs_is_refused() {
    let (device, stream, at, graph, node) = doubled();
    // SAFETY: what is refused is not done.
    let run = |graph| unsafe { device.run_graph(graph, stream) };
    let other = device.update_node(graph, node, &launch("control_sound", &[at.0, at.0]));
    assert!(told(other).contains("cannot become another"));
    let words = [at.0, 0, 1];
    let wider = Launch { blocks: 2, ..launch("scale", &words) };
    assert!(told(device.update_node(graph, node, &wider)).contains("cannot become another"));
    assert!(told(device.update_node(graph, Node(1), &launch("scale", &words))).contains("is no launch"));
    // SAFETY: the graph is not run any more.
    unsafe { device.free(at) }.unwrap();
    assert!(told(run(graph)).contains("memory that was freed"));
    device.forget_graph(graph);
    assert!(told(run(graph)).contains("no such graph"));
    assert!(told(device.update_node(graph, node, &launch("scale", &words))).contains("no such graph"));
}

#[test]
fn nobody_asks_for_more_while_a_graph_is_made() {
    let (device, stream, at, graph, _) = doubled();
    let event = device.event().unwrap();
    device.begin_graph(stream).unwrap();
    let while_it_is_made = [
        told(device.begin_graph(stream)),
        told(device.allocate(8)),
        told(device.synchronize(stream)),
        told(device.query(event)),
        told(device.record(event, stream)),
        told(device.wait(stream, event)),
        // SAFETY: it is refused.
        told(unsafe { device.run_graph(graph, stream) }),
    ];
    assert!(while_it_is_made.iter().all(|text| text.contains("graph")), "{while_it_is_made:?}");
    // SAFETY: it is refused.
    let unloaded = told(unsafe { device.launch(stream, &launch("control_sound", &[at.0, at.0])) });
    assert!(unloaded.contains("would be loaded"), "{unloaded}");
    assert_eq!(told(device.end_graph(stream)), unloaded, "there is no such graph");
    device.begin_graph(stream).unwrap();
    // Another thread goes on, but for this stream.
    // SAFETY: nothing uses the memory yet.
    let freed = |at| unsafe { device.free(at) };
    let (others, own) = std::thread::scope(|scope| {
        let others = scope.spawn(|| device.allocate(8).and_then(freed)).join().unwrap();
        (others, scope.spawn(|| told(device.synchronize(stream))).join().unwrap())
    });
    assert!(others.is_ok() && own.contains("graph"), "{others:?} {own}");
    device.end_graph(stream).unwrap();
    device.synchronize(stream).unwrap();
}

/// A stream's first product of a kind takes workspace, and the library loads it; the host's memory is in no graph; and a stream of
/// which a graph is made is not closed. Each ends the graph, and the stream goes on.
#[test]
fn what_no_capture_may_have_ends_it() {
    let (device, stream, at, ..) = doubled();
    let number = |offset| Array { at: at.offset(offset), len: 1, element: Element::F64 };
    let product = |on, stored| {
        let shape = ProductShape { stored, m: 1, n: 1, k: 1 };
        let a = number(0);
        let b = number(0);
        let c = number(8);
        // SAFETY: the numbers are there as long as the device, and apart.
        unsafe { device.product(on, &Product { shape, a, b, c, accumulate: false, bias: None, algorithm: None }) }
    };
    let ended = |asks: &dyn Fn() -> String, what: &str| {
        device.begin_graph(stream).unwrap();
        let text = asks();
        assert!(text.is_empty() || text.contains(what), "{text}");
        let text = told(device.end_graph(stream));
        assert!(text.contains(what), "{text}");
        device.synchronize(stream).unwrap();
    };
    let other = device.stream(false).unwrap();
    product(other, Transpose::Nn).unwrap();
    ended(&|| told(product(stream, Transpose::Nn)), "would be loaded");
    product(stream, Transpose::Nn).unwrap();
    ended(&|| told(product(stream, Transpose::Nt)), "would be loaded");
    let one = [1.0_f64];
    // SAFETY: it is refused.
    let copy = || unsafe { device.copy(stream, Place::Host(one.as_ptr().cast()), Place::Device(at), 8) };
    ended(&|| told(copy()), "from or to the host");
    let close = || {
        device.close(stream);
        String::new()
    };
    ended(&close, "closed while a graph is made");
    device.begin_graph(stream).unwrap();
    product(stream, Transpose::Nn).unwrap();
    device.end_graph(stream).unwrap();
    assert_eq!(device.graphs().refused, 4);
    // A stream that is closed has no workspace any more.
    device.close(stream);
    assert_eq!(device.stream(false).unwrap(), stream);
    ended(&|| told(product(stream, Transpose::Nn)), "would be loaded");
}
