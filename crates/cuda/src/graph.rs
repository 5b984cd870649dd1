//! Graphs: commands of a stream that a device keeps, to be started all at once.

use crate::driver::{Fault, Launch, Stream};

/// Commands that are kept, in the words of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Graph(pub [u64; 2]);

/// A kernel's launch in a graph, in the words of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Node(pub u64);

/// What is asked of a device that keeps graphs.
///
/// Between [`Graphs::begin_graph`] and [`Graphs::end_graph`] commands of the stream are kept and not done: launches of kernels and
/// products that were done before, so that nothing is loaded or taken for them, clears, and copies within the device's memory. The
/// calling thread asks nothing else of the device meanwhile, and nobody anything of the stream; other threads go on with others.
pub trait Graphs {
    /// From now on commands of the stream are kept.
    fn begin_graph(&self, on: Stream) -> Result<(), Fault>;
    /// The launch that was put there last.
    fn last_node(&self, on: Stream) -> Result<Node, Fault>;
    /// The graph of what was kept, ready to run; the stream does its commands again, also after a fault.
    fn end_graph(&self, on: Stream) -> Result<Graph, Fault>;
    /// The launch has other words from the next run on. Everything else of it is as it was.
    fn update_node(&self, graph: Graph, node: Node, launch: &Launch<'_>) -> Result<(), Fault>;
    /// Puts the commands into a stream, one after another.
    ///
    /// # Safety
    /// As of each command.
    unsafe fn run_graph(&self, graph: Graph, on: Stream) -> Result<(), Fault>;
    /// The graph is run no more; what runs goes on to its end.
    fn forget_graph(&self, graph: Graph);
}
