//! Graphs: commands of a stream that a device keeps, to be started all at once.

use crate::driver::{Fault, Launch, Stream};

/// Commands that are kept, in the words of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Graph(pub [u64; 2]);

/// A kernel's launch in a graph, in the words of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Node(pub u64);

/// What is asked of a device that keeps graphs; one that says nothing else keeps none.
///
/// Between [`Graphs::begin_graph`] and [`Graphs::end_graph`] commands of the stream are kept and not done: launches of kernels and
/// products that were done before, so that nothing is loaded or taken for them, clears, and copies within the device's memory. The
/// calling thread asks nothing else of the device meanwhile, and nobody anything of the stream; other threads go on with others.
pub trait Graphs {
    /// That graphs can be made here, to be asked before the first one.
    fn check_graphs(&self) -> Result<(), Fault> {
        Err(none())
    }
    /// From now on commands of the stream are kept.
    fn begin_graph(&self, _on: Stream) -> Result<(), Fault> {
        Err(none())
    }
    /// The launch that was put there last.
    fn last_node(&self, _on: Stream) -> Result<Node, Fault> {
        Err(none())
    }
    /// The graph of what was kept, ready to run; the stream does its commands again, also after a fault.
    fn end_graph(&self, _on: Stream) -> Result<Graph, Fault> {
        Err(none())
    }
    /// The launch has other words from the next run on. Everything else of it is as it was. After a fault the graph is not to be run.
    fn update_node(&self, _graph: Graph, _node: Node, _launch: &Launch<'_>) -> Result<(), Fault> {
        Err(none())
    }
    /// Puts the commands into a stream, one after another.
    ///
    /// # Safety
    /// As of each command.
    unsafe fn run_graph(&self, _graph: Graph, _on: Stream) -> Result<(), Fault> {
        Err(none())
    }
    /// The graph is run no more; what runs goes on to its end.
    fn forget_graph(&self, _graph: Graph) {}
}

fn none() -> Fault {
    Fault { library: "quadrille", code: -1, text: "no graphs are made of this device's commands".into() }
}
