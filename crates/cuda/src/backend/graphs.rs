//! Graphs of the rows of commands that a rank sends again and again.
//!
//! A row that comes for the first time is sent command by command, so that the device has loaded what it needs; when it comes again it
//! becomes a graph, which later rows of the same commands run, after the kernels in it whose words are others got these. A
//! graph is never run but for the row that it is then: what is computed is what the commands one by one compute. A row of which the
//! device makes no graph is sent command by command for good, and counted.

use std::collections::HashMap;

use quadrille_engine::GraphUse;

use super::batch::{Batch, Step};
use crate::driver::{Driver, Fault, Stream};
use crate::graph::{Graph, Node};

/// The shortest row that becomes a graph: to start one is taken to be as long for the host as to start two or three kernels, which is
/// not measured.
const FEWEST_COMMANDS: usize = 4;

/// The most rows that are known. A step of some tens of layers, each of several rows between its collectives, has some hundreds. If
/// it has more, those that were sent the longest time ago go, most of them before they come again: the graphs of those that come
/// sooner may then be made in vain.
const MOST_ROWS: usize = 512;

/// Of so many commands at most one may be a kernel with other words, for the graph to be made or run: to give a kernel of a graph other
/// words is taken to be half as long for the host as to start it, which is not measured. Where dropout is, three kernels of a
/// block's dozen and more have others each time.
const COMMANDS_PER_UPDATE: usize = 2;

/// So often in a row may too many words be others; then the row is sent command by command for good.
const MOST_MISSES: u32 = 8;

/// What is known of a row of commands that has been sent.
struct Known {
    state: State,
    /// So often in a row too many of its words were others.
    misses: u32,
    /// The number of the last row so far that was this one.
    last: u64,
}

enum State {
    /// It had these words when it was sent last.
    Seen(Vec<u64>),
    Made(Made),
    /// It is no graph, for good.
    Apart,
}

struct Made {
    graph: Graph,
    /// Its kernels, and the words of all of them that it has.
    nodes: Vec<Node>,
    words: Vec<u64>,
}

/// The rows that a rank's stream of kernels has sent, and their graphs.
pub struct KnownRows {
    rows: HashMap<Box<[Step]>, Known>,
    most: usize,
    /// Rows so far.
    count: u64,
    told: GraphUse,
}

impl Default for KnownRows {
    fn default() -> Self {
        Self::at_most(MOST_ROWS)
    }
}

impl KnownRows {
    /// None is known yet; so many will be at most, one at least.
    pub fn at_most(most: usize) -> Self {
        Self { rows: HashMap::new(), most, count: 0, told: GraphUse::default() }
    }

    /// What was done with graphs until now.
    pub fn told(&self) -> GraphUse {
        self.told
    }

    /// Puts the commands into a stream, always the same one.
    ///
    /// # Safety
    /// As of each command. Graphs are forgotten before memory is freed that one of their commands used.
    pub unsafe fn send(&mut self, device: &dyn Driver, on: Stream, batch: &Batch) -> Result<(), Fault> {
        self.count += 1;
        if batch.steps().len() >= FEWEST_COMMANDS {
            if let Some(known) = self.rows.get_mut(batch.steps()) {
                known.last = self.count;
                if let Some(graph) = known.graph(device, on, batch, &mut self.told) {
                    self.told.runs += 1;
                    // SAFETY: the graph has these commands, of which the caller promises.
                    return unsafe { device.run_graph(graph, on) };
                }
            } else {
                self.note(device, batch);
            }
        }
        // SAFETY: the caller's promise.
        unsafe { batch.send(device, on, || Ok(())) }
    }

    /// The row is known from now on, in the place of the one that was sent the longest time ago, if there is no other.
    fn note(&mut self, device: &dyn Driver, batch: &Batch) {
        if self.rows.len() >= self.most {
            let oldest = self.rows.iter().min_by_key(|(_, known)| known.last).map(|(steps, _)| steps.clone());
            oldest.and_then(|steps| self.rows.remove(&steps)).into_iter().for_each(|known| known.forget(device));
        }
        let state = State::Seen(batch.words().to_vec());
        self.rows.insert(batch.steps().into(), Known { state, misses: 0, last: self.count });
    }

    /// There are no graphs, and rows have not been seen.
    pub fn forget(&mut self, device: &dyn Driver) {
        self.rows.drain().for_each(|(_, known)| known.forget(device));
    }
}

impl Known {
    /// The row's graph, with the words of the batch; `None`: the row is to be sent command by command.
    fn graph(&mut self, device: &dyn Driver, on: Stream, batch: &Batch, told: &mut GraphUse) -> Option<Graph> {
        let words = match &self.state {
            State::Seen(words) => words,
            State::Made(made) => &made.words,
            State::Apart => return None,
        };
        if differing(batch, words) * COMMANDS_PER_UPDATE > batch.steps().len() {
            self.miss(device, batch);
            return None;
        }
        self.misses = 0;
        let ready = match &mut self.state {
            State::Made(made) => made.take_words(device, batch, told).map(|()| made.graph),
            state => made(device, on, batch).map(|made| {
                told.made += 1;
                let graph = made.graph;
                *state = State::Made(made);
                graph
            }),
        };
        // Nothing has been done, so that nothing is lost but the time that a graph saves. What ails the device itself is told by
        // the commands one by one.
        ready.map_err(|_| told.refused += 1).inspect_err(|()| self.be_apart(device)).ok()
    }

    /// Too many words are others.
    fn miss(&mut self, device: &dyn Driver, batch: &Batch) {
        self.misses += 1;
        if self.misses >= MOST_MISSES {
            self.be_apart(device);
        } else if let State::Seen(words) = &mut self.state {
            words.copy_from_slice(batch.words());
        }
    }

    fn be_apart(&mut self, device: &dyn Driver) {
        std::mem::replace(&mut self.state, State::Apart).forget(device);
    }

    fn forget(self, device: &dyn Driver) {
        self.state.forget(device);
    }
}

impl State {
    fn forget(self, device: &dyn Driver) {
        if let Self::Made(made) = self {
            device.forget_graph(made.graph);
        }
    }
}

/// How many kernels have other words in the batch than in these, of the same commands.
fn differing(batch: &Batch, words: &[u64]) -> usize {
    if words == batch.words() {
        return 0;
    }
    batch.launches().filter(|(start, launch)| words[*start..start + launch.words.len()] != *launch.words).count()
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
    let graph = device.end_graph(on)?;
    match kept {
        Ok(()) => Ok(Made { graph, nodes, words: batch.words().to_vec() }),
        Err(fault) => {
            device.forget_graph(graph);
            Err(fault)
        }
    }
}

impl Made {
    /// Gives kernels the words that they have in the batch, which has the graph's commands.
    fn take_words(&mut self, device: &dyn Driver, batch: &Batch, told: &mut GraphUse) -> Result<(), Fault> {
        if self.words == batch.words() {
            return Ok(());
        }
        for ((start, launch), node) in batch.launches().zip(&self.nodes) {
            let own = &mut self.words[start..start + launch.words.len()];
            if own != launch.words {
                device.update_node(self.graph, *node, &launch)?;
                own.copy_from_slice(launch.words);
                told.updates += 1;
            }
        }
        Ok(())
    }
}
