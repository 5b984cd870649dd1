//! Why a program communicates, in words: from how a value lies before and after a collective, from what made it and from what
//! reads it. Nothing is said in words anywhere else, so that what is printed cannot part from what is run.

mod words;

use crate::operation::{GemmPass, Operation};
use crate::schedule::Pass;
use crate::{Collective, Members, Message, Op, Section, StageProgram, StorageId, ValueId, kind};

/// The reasons of a section's communication.
#[derive(Clone, Copy)]
pub struct Reasons<'a> {
    program: &'a StageProgram,
    section: &'a Section,
    /// `None`: the update.
    pass: Option<Pass>,
}

impl<'a> Reasons<'a> {
    /// Of a section of the program, the one of a pass, or without one the update.
    pub fn of(program: &'a StageProgram, section: &'a Section, pass: Option<Pass>) -> Self {
        Self { program, section, pass }
    }

    /// Why the operation at a place of the section communicates; `None`: it does not, or in a group of one.
    pub fn why(&self, index: usize) -> Option<String> {
        let grid = self.program.grid();
        match &self.section.ops[index].operation {
            Operation::Issue(collective) if collective.size(grid) > 1 => Some(self.of_collective(index, collective)),
            Operation::ReduceScalar(reduced) if grid.size_of(reduced.axes) > 1 => {
                Some(words::scalar(grid, reduced.scalar, reduced.axes))
            }
            Operation::Fetch(_) => {
                Some("the states of this bucket lie in the host's memory; its update wants them here".to_owned())
            }
            Operation::Store(_) => Some("the updated states of this bucket go back to the host's memory".to_owned()),
            _ => None,
        }
    }

    /// Why a message is sent at the end of the section, or received before its begin.
    pub fn of_message(&self, message: &Message, is_sent: bool) -> String {
        let peer = message.peer;
        match (self.pass, is_sent) {
            (Some(Pass::Forward), true) => {
                format!("stage {peer} has the layers that follow; it goes on with these rows")
            }
            (Some(Pass::Forward), false) => format!("stage {peer} has the layers before; these are its results"),
            (_, true) => format!("stage {peer} has made these rows; it goes on with their gradient"),
            (_, false) => format!("stage {peer} has gone on with these rows; this is their gradient"),
        }
    }

    /// Why the ranks of a message-driven stage send before a pass.
    pub fn of_decision() -> &'static str {
        "passes run as messages arrive: the ranks of the stage agree which comes next"
    }

    fn of_collective(&self, index: usize, collective: &Collective) -> String {
        let source = self.source(index, collective.input);
        let said = words::Collected {
            program: self.program,
            collective,
            source,
            read_by: self.read_by(index, collective),
            is_received: source.is_none() && self.is_received(collective.input),
        };
        let again = self.pass.is_some_and(|pass| pass != Pass::Forward) && said.is_of_the_forward_pass();
        let reason = said.reason();
        if again { format!("again, since the forward pass has not kept it: {reason}") } else { reason }
    }

    fn storage(&self, value: ValueId) -> StorageId {
        self.program.value(value).storage
    }

    /// What made a value, before what only moves its numbers: packing, slices, other collectives. `None`: it comes from outside
    /// the section, as parameters, gradients of earlier passes and messages do.
    fn source(&self, index: usize, value: ValueId) -> Option<&'a Op> {
        let mut wanted = self.storage(value);
        for op in self.section.ops[..index].iter().rev() {
            if !op.operation.operands().writes().iter().any(|written| self.storage(*written) == wanted) {
                continue;
            }
            match &op.operation {
                // What it issued is found at its issue, further up.
                Operation::Wait(collective) if matches!(collective.members, Members::All) => {
                    wanted = self.storage(collective.input);
                }
                Operation::Issue(_) | Operation::Wait(_) => {}
                Operation::Pack(kind::Pack { input, .. })
                | Operation::Unpack(kind::Unpack { input, .. })
                | Operation::SliceRows(kind::SliceRows { input, .. })
                | Operation::SliceColumns(kind::SliceColumns { input, .. })
                | Operation::PackKeysValues(kind::PackKeysValues { input, .. })
                | Operation::CopyPanel(kind::CopyPanel { input, .. }) => wanted = self.storage(*input),
                _ => return Some(op),
            }
        }
        None
    }

    /// What first reads what a collective gives, behind what only moves its numbers.
    fn read_by(&self, index: usize, collective: &Collective) -> Option<&'a Operation> {
        let mut wanted = self.storage(collective.output);
        for op in &self.section.ops[index + 1..] {
            if !op.operation.operands().reads().iter().any(|read| self.storage(*read) == wanted) {
                continue;
            }
            match &op.operation {
                Operation::Wait(_) | Operation::Hold(_) => {}
                Operation::Issue(next) => wanted = self.storage(next.output),
                Operation::Pack(kind::Pack { output, .. })
                | Operation::Unpack(kind::Unpack { output, .. })
                | Operation::UnpackKeysValues(kind::UnpackKeysValues { output, .. }) => wanted = self.storage(*output),
                operation => return Some(operation),
            }
        }
        None
    }

    /// Whether a value came from another stage in parts: ranks that hold the same rows of the stream get a part of them each.
    fn is_received(&self, value: ValueId) -> bool {
        let storage = self.storage(value);
        !self.program.layout.scatters_rows()
            && self.section.receives.iter().any(|message| self.storage(message.value) == storage)
    }
}

/// Whether an operation is one of the forward pass, wherever it stands.
fn is_forward(operation: &Operation) -> bool {
    match operation {
        Operation::Gemm(gemm) => gemm.pass == GemmPass::Forward,
        Operation::Router(router) => router.pass == GemmPass::Forward,
        Operation::RowSums(_)
        | Operation::CenteredSquares(_)
        | Operation::RowSquares(_)
        | Operation::Embed(_)
        | Operation::Attention(_)
        | Operation::CountChoices(_)
        | Operation::CountLoads(_)
        | Operation::Dispatch(_) => true,
        _ => false,
    }
}
