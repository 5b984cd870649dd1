//! Graphs of the emulated device, and what a real one would refuse of them.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::thread::{ThreadId, current};

use super::streams::Command;
use super::{Emulator, State, fault};
use crate::driver::{Address, Algorithm, Fault, Launch, Product, ProductKind, Stream};
use crate::graph::{Graph, Graphs, Node};

/// What of graphs a device goes wrong at, each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GraphTrouble {
    /// None is begun.
    Begins,
    /// The second command ends what is kept.
    Captures,
    /// There is no memory when a graph ends.
    Ends,
    /// Launches get no other words.
    Updates,
    /// None is run.
    Runs,
}

/// What was done with graphs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GraphTally {
    /// That were made.
    pub made: u64,
    /// How often one was run.
    pub runs: u64,
    /// Launches that got other words.
    pub updates: u64,
    /// That were forgotten.
    pub forgotten: u64,
    /// Graphs that were not made, and launches that did not get other words.
    pub refused: u64,
}

/// Commands that are kept until the graph ends.
struct Open {
    thread: ThreadId,
    commands: Vec<Command>,
    /// What was asked of the stream that is not to be: the graph cannot be made any more.
    broken: Option<Fault>,
}

impl Open {
    /// A fault that ends what is kept.
    fn breaks(&mut self, text: impl Into<String>) -> Fault {
        self.broken.get_or_insert_with(|| fault(text)).clone()
    }
}

/// A product that a stream has done: with its workspace, and with what the library loads for it.
type Done = (Stream, ProductKind, bool, Option<Algorithm>);

fn done(on: Stream, product: &Product) -> Done {
    let operands = product.a.element;
    let result = product.c.element;
    let kind = ProductKind { shape: product.shape, operands, result, bias: product.bias.is_some() };
    (on, kind, product.accumulate, product.algorithm)
}

/// A graph that is ready.
struct Made {
    commands: Vec<Command>,
    /// Memory that one of its commands uses was freed.
    stale: bool,
}

/// All graphs of a device.
#[derive(Default)]
pub struct Kept {
    open: BTreeMap<u64, Open>,
    made: BTreeMap<u64, Made>,
    /// Kernels that were launched: what they need is loaded.
    loaded: BTreeSet<String>,
    products: HashSet<Done>,
    trouble: Option<GraphTrouble>,
    tally: GraphTally,
}

impl Kept {
    /// A command of a stream, unless it is kept.
    pub fn keep(&mut self, on: Stream, command: Command) -> Result<Option<Command>, Fault> {
        let first = match &command {
            Command::Kernel { kernel, .. } if !self.loaded.contains(kernel) => Some(format!("kernel {kernel}")),
            Command::Product(product) if !self.products.contains(&done(on, product)) => {
                Some(format!("what a product of {:?} needs in the stream", product.shape))
            }
            _ => None,
        };
        let Some(open) = self.open.get_mut(&on.0) else {
            match &command {
                Command::Kernel { kernel, .. } if first.is_some() => drop(self.loaded.insert(kernel.clone())),
                Command::Product(product) if first.is_some() => drop(self.products.insert(done(on, product))),
                _ => {}
            }
            return Ok(Some(command));
        };
        if let Some(fault) = &open.broken {
            return Err(fault.clone());
        }
        if let Some(first) = first {
            return Err(open.breaks(format!("{first} would be loaded while a graph is made")));
        }
        if self.trouble == Some(GraphTrouble::Captures) && open.commands.len() == 1 {
            return Err(open.breaks("what is kept for a graph is lost"));
        }
        open.commands.push(command);
        Ok(None)
    }

    /// A stream of which a graph is made stays, and the graph is lost; of others nothing is known any more.
    pub fn close(&mut self, stream: Stream) -> bool {
        if let Some(open) = self.open.get_mut(&stream.0) {
            open.breaks("a stream closed while a graph is made of it");
            return false;
        }
        self.products.retain(|(on, ..)| *on != stream);
        true
    }

    /// Copies from and to the host's memory are in no graph.
    pub fn refuse_host(&mut self, on: Stream) -> Result<(), Fault> {
        let open = self.open.get_mut(&on.0);
        open.map_or(Ok(()), |open| Err(open.breaks("a copy from or to the host while a graph is made")))
    }

    /// The device goes wrong at this.
    pub fn trouble(&mut self, trouble: GraphTrouble) {
        self.trouble = Some(trouble);
    }

    /// A fault where the device is to go wrong.
    fn troubled(&self, by: GraphTrouble) -> Result<(), Fault> {
        if self.trouble == Some(by) { Err(fault(format!("trouble with graphs: {by:?}"))) } else { Ok(()) }
    }

    /// A thread that makes a graph asks nothing else of the device.
    pub fn refuse_making(&self, what: &str) -> Result<(), Fault> {
        let own = self.open.values().any(|open| open.thread == current().id());
        if own { Err(fault(format!("{what} while the thread makes a graph"))) } else { Ok(()) }
    }

    /// Nobody asks anything of a stream whose commands are kept.
    pub fn refuse_on(&self, stream: Stream, what: &str) -> Result<(), Fault> {
        let is_open = self.open.contains_key(&stream.0);
        if is_open { Err(fault(format!("{what} while a graph is made of it"))) } else { Ok(()) }
    }

    /// Memory is freed: graphs that use it are not to be run any more.
    pub fn freed(&mut self, at: Address, bytes: usize) {
        let range = at.0..at.0 + bytes.max(1) as u64;
        let uses = |command: &Command| places(command).iter().any(|place| range.contains(place));
        self.made.values_mut().for_each(|made| made.stale |= made.commands.iter().any(uses));
    }

    fn end(&mut self, on: Stream) -> Result<Graph, Fault> {
        let open = self.open.remove(&on.0).ok_or_else(|| fault("no graph is made of the stream"))?;
        if open.thread != current().id() {
            return Err(fault("a graph is ended by another thread than began it"));
        }
        open.broken.map_or(Ok(()), Err)?;
        self.troubled(GraphTrouble::Ends)?;
        self.tally.made += 1;
        let number = self.tally.made;
        self.made.insert(number, Made { commands: open.commands, stale: false });
        Ok(Graph([number, 0]))
    }

    fn update(&mut self, graph: Graph, node: Node, entry: &str, launch: &Launch<'_>) -> Result<(), Fault> {
        self.refuse_making("a graph changed")?;
        self.troubled(GraphTrouble::Updates)?;
        let command = self.made(graph)?.commands.get_mut(node.0 as usize);
        let Some(Command::Kernel { kernel, blocks, shared, words }) = command else {
            return Err(fault(format!("{node:?} of the graph is no launch")));
        };
        let same = *kernel == entry && (*blocks, *shared) == (launch.blocks.max(1), launch.shared);
        if !same || words.len() != launch.words.len() {
            return Err(fault(format!("a launch of {kernel} in a graph cannot become another of {entry}")));
        }
        words.copy_from_slice(launch.words);
        self.tally.updates += 1;
        Ok(())
    }

    fn made(&mut self, graph: Graph) -> Result<&mut Made, Fault> {
        self.made.get_mut(&graph.0[0]).ok_or_else(|| fault("there is no such graph any more"))
    }
}

/// Where memory begins that is a command's for good: kernels say theirs with every launch.
fn places(command: &Command) -> Vec<u64> {
    match command {
        Command::Kernel { .. } | Command::Remote(_) => Vec::new(),
        Command::Copy { from, to, bytes } => {
            (*bytes > 0).then_some([*from as u64, *to as u64]).into_iter().flatten().collect()
        }
        Command::Clear { at, bytes } => (*bytes > 0).then_some(at.0).into_iter().collect(),
        Command::Product(product) => {
            let operands = [Some(product.a), Some(product.b), Some(product.c), product.bias];
            operands.into_iter().flatten().filter(|array| array.len > 0).map(|array| array.at.0).collect()
        }
    }
}

/// The command once more; none of what is done with others.
fn again(command: &Command) -> Option<Command> {
    Some(match command {
        Command::Kernel { kernel, blocks, shared, words } => {
            Command::Kernel { kernel: kernel.clone(), blocks: *blocks, shared: *shared, words: words.clone() }
        }
        Command::Copy { from, to, bytes } => Command::Copy { from: *from, to: *to, bytes: *bytes },
        Command::Clear { at, bytes } => Command::Clear { at: *at, bytes: *bytes },
        Command::Product(product) => Command::Product(*product),
        Command::Remote(_) => return None,
    })
}

impl State {
    fn begin_graph(&mut self, on: Stream) -> Result<(), Fault> {
        self.graphs.refuse_making("another graph begun")?;
        self.graphs.refuse_on(on, "another graph begun")?;
        self.graphs.troubled(GraphTrouble::Begins)?;
        self.streams.is_done(on)?; // there is such a stream
        let open = Open { thread: current().id(), commands: Vec::new(), broken: None };
        self.graphs.open.insert(on.0, open);
        Ok(())
    }
}

impl Emulator {
    /// The device with something of graphs that goes wrong.
    pub fn with_graph_trouble(self, trouble: GraphTrouble) -> Self {
        self.state().graphs.trouble(trouble);
        self
    }

    /// What was done with graphs until now.
    pub fn graphs(&self) -> GraphTally {
        self.state().graphs.tally
    }
}

impl Graphs for Emulator {
    fn check_graphs(&self) -> Result<(), Fault> {
        Ok(())
    }

    fn begin_graph(&self, on: Stream) -> Result<(), Fault> {
        let mut state = self.state();
        let refused = state.begin_graph(on);
        state.graphs.tally.refused += u64::from(refused.is_err());
        refused
    }

    fn last_node(&self, on: Stream) -> Result<Node, Fault> {
        let state = self.state();
        let open = state.graphs.open.get(&on.0).ok_or_else(|| fault("no graph is made of the stream"))?;
        match open.commands.last() {
            Some(Command::Kernel { .. }) => Ok(Node(open.commands.len() as u64 - 1)),
            _ => Err(fault("the last command of the graph is no launch")),
        }
    }

    fn end_graph(&self, on: Stream) -> Result<Graph, Fault> {
        let graphs = &mut self.state().graphs;
        let ended = graphs.end(on);
        graphs.tally.refused += u64::from(ended.is_err());
        ended
    }

    fn update_node(&self, graph: Graph, node: Node, launch: &Launch<'_>) -> Result<(), Fault> {
        let (entry, _) = self.kernel(launch)?;
        self.check_reach(&entry, launch.words)?;
        let graphs = &mut self.state().graphs;
        let updated = graphs.update(graph, node, &entry, launch);
        graphs.tally.refused += u64::from(updated.is_err());
        updated
    }

    unsafe fn run_graph(&self, graph: Graph, on: Stream) -> Result<(), Fault> {
        let state = &mut *self.state();
        state.graphs.refuse_on(on, "a graph run in a stream")?;
        state.graphs.troubled(GraphTrouble::Runs)?;
        let made = state.graphs.made(graph)?;
        if made.stale {
            return Err(fault("a graph uses memory that was freed"));
        }
        let commands: Option<Vec<Command>> = made.commands.iter().map(again).collect();
        let commands = commands.ok_or_else(|| fault("a graph has what is done with others"))?;
        state.graphs.tally.runs += 1;
        commands.into_iter().try_for_each(|command| state.streams.push(on, command))
    }

    fn forget_graph(&self, graph: Graph) {
        let graphs = &mut self.state().graphs;
        if graphs.made.remove(&graph.0[0]).is_some() {
            graphs.tally.forgotten += 1;
        }
    }
}
