//! Commands of a stream that are collected before they are sent.

use crate::array::Format;
use crate::driver::{Address, Driver, Fault, Launch, Place, Product, Stream};

/// A command without a kernel's words: all of it that stays as it is in a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// Runs a kernel with so many words.
    Kernel { kernel: &'static str, format: Format, blocks: u32, shared: u32, words: usize },
    /// Computes a product, by one algorithm, of what lies at fixed places.
    Product(Product),
    /// Copies bytes within the device's memory.
    Copy { from: Address, to: Address, bytes: usize },
    /// Sets bytes to zero.
    Clear { at: Address, bytes: usize },
}

impl Step {
    /// How many words it has in the batch.
    fn words(&self) -> usize {
        if let Step::Kernel { words, .. } = self { *words } else { 0 }
    }

    /// The launch of a kernel, with its words; `None`: it is none.
    fn launch<'w>(&self, words: &'w [u64]) -> Option<Launch<'w>> {
        match *self {
            Step::Kernel { kernel, format, blocks, shared, .. } => {
                Some(Launch { kernel, format, blocks, shared, words })
            }
            _ => None,
        }
    }
}

/// Commands, and the words of all their kernels one after another. Emptied, it keeps its memory.
#[derive(Debug, Default)]
pub struct Batch {
    steps: Vec<Step>,
    words: Vec<u64>,
}

impl Batch {
    /// A kernel comes last.
    pub fn launch(&mut self, launch: &Launch<'_>) {
        let Launch { kernel, format, blocks, shared, words } = *launch;
        self.steps.push(Step::Kernel { kernel, format, blocks, shared, words: words.len() });
        self.words.extend_from_slice(words);
    }

    /// Another command comes last.
    pub fn push(&mut self, step: Step) {
        debug_assert!(!matches!(step, Step::Kernel { .. }), "kernels have words");
        self.steps.push(step);
    }

    /// None are left.
    pub fn empty(&mut self) {
        self.steps.clear();
        self.words.clear();
    }

    /// The commands without words, in their order: what rows of commands are told apart by.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The words of all kernels, in their order.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Each command, where its words begin, and these.
    fn worded(&self) -> impl Iterator<Item = (&Step, usize, &[u64])> {
        self.steps.iter().scan(0, |next, step| {
            let start = *next;
            *next += step.words();
            Some((step, start, &self.words[start..*next]))
        })
    }

    /// The kernels' launches, each with where its words begin.
    pub fn launches(&self) -> impl Iterator<Item = (usize, Launch<'_>)> {
        self.worded().filter_map(|(step, start, words)| Some((start, step.launch(words)?)))
    }

    /// Puts all commands into a stream, one by one, and tells `sent` of each kernel.
    ///
    /// # Safety
    /// As of each command.
    pub unsafe fn send(
        &self,
        device: &dyn Driver,
        on: Stream,
        mut sent: impl FnMut() -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        for (step, _, words) in self.worded() {
            // SAFETY: the caller's promise.
            unsafe {
                match *step {
                    Step::Product(ref product) => device.product(on, product)?,
                    Step::Copy { from, to, bytes } => device.copy(on, Place::Device(from), Place::Device(to), bytes)?,
                    Step::Clear { at, bytes } => device.clear(on, at, bytes)?,
                    Step::Kernel { kernel, format, blocks, shared, .. } => {
                        device.launch(on, &Launch { kernel, format, blocks, shared, words })?;
                        sent()?;
                    }
                }
            }
        }
        Ok(())
    }
}
