//! Graphs of the rows of commands that a rank sends again and again.
//!
//! A row that comes for the first time is sent command by command, so that the device has loaded what it needs; the second time it
//! becomes a graph, which later rows of the same commands run, after the kernels in it whose words are others got these. A
//! graph is never run but for the row that it is then: what is computed is what the commands one by one compute.

use std::collections::HashMap;

use super::batch::{Batch, Step};
use crate::driver::{Driver, Fault, Stream};
use crate::graph::{Graph, Node};

/// The shortest row that becomes a graph: to start one takes the host about as long as two or three kernels.
pub const FEWEST: usize = 4;

/// The most rows that are known, with a graph or seen once. A step of some tens of layers, each of several rows between its
/// collectives, has some hundreds. If it has more, those that were sent the longest time ago go, before they come again: none
/// becomes a graph then, and none is made in vain.
const MOST: usize = 512;

/// Of so many commands at most one may be a kernel with other words, for the graph to be run: to give a kernel of a graph other words
/// is taken to be half as long for the host as to start it, and a product takes longer. Where dropout is, three kernels of a block's
/// dozen and more have others each time.
const COMMANDS_PER_UPDATE: usize = 2;

/// A row of commands that has been sent.
struct Known {
    graph: Option<Made>,
    /// The number of the last row so far that was this one.
    last: u64,
}

struct Made {
    graph: Graph,
    /// Its kernels, and the words of all of them that it has.
    nodes: Vec<Node>,
    words: Vec<u64>,
}

/// The rows that a rank's stream of kernels has sent, and their graphs.
#[derive(Default)]
pub struct KnownRows {
    rows: HashMap<Box<[Step]>, Known>,
    /// Rows so far.
    count: u64,
}

impl KnownRows {
    /// Puts the commands into a stream, always the same one.
    ///
    /// # Safety
    /// As of each command. Graphs are forgotten before memory is freed that one of their commands used.
    pub unsafe fn send(&mut self, device: &dyn Driver, on: Stream, batch: &Batch) -> Result<(), Fault> {
        self.count += 1;
        if batch.steps().len() >= FEWEST {
            let Some(known) = self.rows.get_mut(batch.steps()) else {
                self.note(device, batch);
                // SAFETY: the caller's promise.
                return unsafe { batch.send(device, on, || Ok(())) };
            };
            known.last = self.count;
            let graph = match &mut known.graph {
                None => Some(known.graph.insert(made(device, on, batch)?).graph),
                Some(made) => made.become_row(device, batch)?.then_some(made.graph),
            };
            if let Some(graph) = graph {
                // SAFETY: the graph has these commands, of which the caller promises.
                return unsafe { device.run_graph(graph, on) };
            }
        }
        // SAFETY: the caller's promise.
        unsafe { batch.send(device, on, || Ok(())) }
    }

    /// The row is known from now on, in the place of the one that was sent the longest time ago, if there is no other.
    fn note(&mut self, device: &dyn Driver, batch: &Batch) {
        if self.rows.len() >= MOST {
            let oldest = self.rows.iter().min_by_key(|(_, known)| known.last).map(|(steps, _)| steps.clone());
            let gone = oldest.and_then(|steps| self.rows.remove(&steps)).and_then(|known| known.graph);
            gone.into_iter().for_each(|made| device.forget_graph(made.graph));
        }
        self.rows.insert(batch.steps().into(), Known { graph: None, last: self.count });
    }

    /// There are no graphs, and rows have not been seen.
    pub fn forget(&mut self, device: &dyn Driver) {
        self.rows.drain().filter_map(|(_, known)| known.graph).for_each(|made| device.forget_graph(made.graph));
    }
}

/// The graph of a row that was sent before.
fn made(device: &dyn Driver, on: Stream, batch: &Batch) -> Result<Made, Fault> {
    device.begin_graph(on)?;
    let mut nodes = Vec::new();
    let node = || {
        nodes.push(device.last_node(on)?);
        Ok(())
    };
    // SAFETY: nothing is done.
    let kept = unsafe { batch.send(device, on, node) };
    // After a fault, too: the stream is to go on.
    let graph = device.end_graph(on);
    match (kept, graph) {
        (Ok(()), Ok(graph)) => Ok(Made { graph, nodes, words: batch.words().to_vec() }),
        (Err(fault), graph) => {
            graph.into_iter().for_each(|graph| device.forget_graph(graph));
            Err(fault)
        }
        (Ok(()), Err(fault)) => Err(fault),
    }
}

impl Made {
    /// Gives kernels the words that they have in the batch, which has the graph's commands; not if too many are others.
    fn become_row(&mut self, device: &dyn Driver, batch: &Batch) -> Result<bool, Fault> {
        if self.words == batch.words() {
            return Ok(true);
        }
        let differ = |(start, words): (usize, &[u64])| self.words[start..start + words.len()] != *words;
        let differing = batch.launches().filter(|(start, launch)| differ((*start, launch.words))).count();
        if differing * COMMANDS_PER_UPDATE > batch.steps().len() {
            return Ok(false);
        }
        for ((start, launch), node) in batch.launches().zip(&self.nodes) {
            let own = &mut self.words[start..start + launch.words.len()];
            if own != launch.words {
                device.update_node(self.graph, *node, &launch)?;
                own.copy_from_slice(launch.words);
            }
        }
        Ok(true)
    }
}
