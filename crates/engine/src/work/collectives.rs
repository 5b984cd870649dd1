//! Collectives of a group, on buffers of a device.

use quadrille_comm::{Aborted, Element, Group, Payload, RankContext, Reduction};
use quadrille_spec::CollectiveKind;

use super::Prepared;
use super::operands::{Operand, seen};
use crate::EngineError;
use crate::backend::{Backend, Kind};

/// Elements of a collective's second buffer, beside a whole one and a member's part of it: what is gathered or left of a sum is
/// in it, or what all others sent.
pub fn second_elements(kind: CollectiveKind, full: usize, part: usize) -> usize {
    match kind {
        CollectiveKind::AllGather | CollectiveKind::ReduceScatter => part,
        CollectiveKind::AllToAll => full,
        _ => 0,
    }
}

/// Runs a collective once, on a whole buffer and a second one: sums the first on all members, gathers the second ones of all in it,
/// leaves a share of its sum in the second, gives all the first member's, or sends every member its part of the first into the
/// second. A message goes from the first of two members to the other and back.
///
/// # Errors
/// Another rank's, or that kinds or sizes differ between members.
///
/// # Panics
/// Of a kind that is none of these, and of a message in a group that has not two members.
pub fn exchange<T: Element, P: Payload<T>>(
    context: &RankContext,
    group: &Group,
    kind: CollectiveKind,
    [full, second]: [P; 2],
) -> Result<[P; 2], Aborted> {
    Ok(match kind {
        CollectiveKind::AllGather => {
            let (part, full) = context.all_gather(group, second, full).wait()?;
            [full, part]
        }
        CollectiveKind::ReduceScatter => context.reduce_scatter(group, full, second).wait()?.into(),
        CollectiveKind::AllToAll => context.all_to_all(group, full, second).wait()?.into(),
        CollectiveKind::Broadcast => [context.broadcast(group, 0, full).wait()?, second],
        CollectiveKind::Send => [there_and_back(context, group, full)?, second],
        CollectiveKind::AllReduce => [context.all_reduce(group, Reduction::Sum, full).wait()?, second],
        _ => panic!("a {} is not among the collectives that are measured", kind.name()),
    })
}

/// A message to the second of two members, and one back.
fn there_and_back<T: Element, P: Payload<T>>(context: &RankContext, group: &Group, buffer: P) -> Result<P, Aborted> {
    assert_eq!(group.size(), 2, "a message goes between two");
    let other = 1 - group.index();
    if group.index() == 0 {
        let buffer = context.send(group, other, 0, buffer).wait()?;
        context.receive(group, other, 1, buffer).wait()
    } else {
        let buffer = context.receive(group, other, 0, buffer).wait()?;
        context.send(group, other, 1, buffer).wait()
    }
}

/// A collective of values, with a whole buffer of so many bytes as far as its elements divide into equal parts.
pub fn collective<'b, B: Backend>(
    backend: &'b B,
    context: &'b RankContext,
    kind: CollectiveKind,
    group: &Group,
    bytes: usize,
) -> Result<Box<dyn Prepared + 'b>, EngineError> {
    let part = bytes / size_of::<B::Stored>() / group.size();
    let full = part * group.size();
    let second = second_elements(kind, full, part);
    let result = match kind {
        CollectiveKind::ReduceScatter | CollectiveKind::AllToAll => (1, second),
        _ => (0, full),
    };
    // Each rank has other numbers; sums of them grow, to infinity, and never become so small that arithmetic slows down.
    let operand = |elements| {
        let operand = Operand::all(backend, Kind::Stored, elements, 1.0 + context.rank() as f64);
        operand.map(Operand::into_buffer)
    };
    // Memory of no bytes is none.
    let buffers = Some([operand(full)?, operand(second.max(1))?]);
    Ok(Box::new(Exchanged { backend, context, group: group.clone(), kind, buffers, result }))
}

/// A collective and its buffers.
struct Exchanged<'b, B: Backend> {
    backend: &'b B,
    context: &'b RankContext,
    group: Group,
    kind: CollectiveKind,
    /// Not there while it runs, nor after it has failed.
    buffers: Option<[B::Buffer; 2]>,
    /// Which of the buffers has the result, and its elements.
    result: (usize, usize),
}

/// The ranks of a job end with the first that fails.
const FAILED: &str = "a collective that has failed is not looked at";

impl<B: Backend> Prepared for Exchanged<'_, B> {
    fn repeat(&mut self, times: usize) -> Result<(), EngineError> {
        for _ in 0..times {
            let buffers = self.buffers.take().expect(FAILED);
            self.buffers = Some(exchange::<B::Stored, _>(self.context, &self.group, self.kind, buffers)?);
        }
        self.backend.settle()
    }

    fn result(&self) -> Result<Vec<f64>, EngineError> {
        let (which, elements) = self.result;
        let buffers = self.buffers.as_ref().expect(FAILED);
        seen(self.backend, B::view(&buffers[which], Kind::Stored, 0..elements))
    }
}
