//! Shared-memory transfers: members read and write each other's buffers directly, without copies in between.
//!
//! The protocol that makes this sound, held by [`Meeting::meet`](crate::rendezvous::Meeting::meet):
//!
//! 1. `exchange` borrows a member's slices until it returns, and posts their addresses.
//! 2. The work on them starts only when every member has posted, with calls that agree in operation, element type and
//!    sizes, and each with sizes that fit the operation (`Call::broken_rule`).
//! 3. No member's `exchange` returns before all work of the round is done; an abort withdraws members only while
//!    the round has not started.
//! 4. Within a round, member `p`'s work alone touches what it writes: chunk `p` of every buffer (all-reduce), of the
//!    root's (reduce) or of its own (reduce-scatter in place), or its own output (all others; all-gather in place:
//!    without the chunk that is its input). What else it touches, no one writes.
//!
//! `n` elements, `g` members, `p` the member whose work is done.

pub(crate) mod kernels;
#[cfg(test)]
mod tests;

use quadrille_spec::CollectiveKind;

use crate::call::Call;
use crate::element::{ElementKind, Reduction};
use crate::error::Aborted;
use crate::job::Job;
use crate::mover::{Memory, Mover};
use crate::threads::Places;
use crate::transport::Occasion;
use crate::wire::chunk;

/// From this many bytes, all members together, buffers are taken to outgrow the caches, and copies bypass them: measured
/// 8-26% faster there with a last-level cache of 32 MiB, and slower below.
const STREAM_BYTES: usize = 24 << 20;

/// A member's buffers, borrowed for one collective.
#[derive(Clone, Copy)]
pub enum Slices<'a> {
    /// Input and output are the buffer.
    InPlace(Memory<'a>),
    /// The output is the buffer, the input the member's own chunk of it.
    InputWithin(Memory<'a>),
    /// The input is the buffer, the output the member's own chunk of it.
    OutputWithin(Memory<'a>),
    /// Input and output.
    Apart(Memory<'a>, Memory<'a>),
}

impl Slices<'_> {
    /// Elements of the input and of the output in a group of `ranks`.
    pub fn lengths(&self, ranks: usize) -> (usize, usize) {
        match self {
            Slices::InPlace(buffer) => (buffer.elements(), buffer.elements()),
            Slices::InputWithin(buffer) => (buffer.elements() / ranks, buffer.elements()),
            Slices::OutputWithin(buffer) => (buffer.elements(), buffer.elements() / ranks),
            Slices::Apart(input, output) => (input.elements(), output.elements()),
        }
    }

    /// Where the input and the output of the member with this index begin; its chunks must fit.
    pub fn addresses(&self, ranks: usize, index: usize) -> (*const u8, *mut u8) {
        let (input, output) = self.lengths(ranks);
        match self {
            Slices::InPlace(buffer) => (buffer.address().cast_const(), buffer.address()),
            Slices::InputWithin(buffer) => {
                (buffer.address().wrapping_add(index * input * buffer.kind().bytes()).cast_const(), buffer.address())
            }
            Slices::OutputWithin(buffer) => {
                (buffer.address().cast_const(), buffer.address().wrapping_add(index * output * buffer.kind().bytes()))
            }
            Slices::Apart(input, output) => (input.address().cast_const(), output.address()),
        }
    }

    /// What the elements of all buffers are; `None` if they differ.
    pub fn kind(&self) -> Option<ElementKind> {
        match self {
            Slices::InPlace(buffer) | Slices::InputWithin(buffer) | Slices::OutputWithin(buffer) => Some(buffer.kind()),
            Slices::Apart(input, output) => (input.kind() == output.kind()).then(|| input.kind()),
        }
    }
}

/// A member's call and the addresses of its buffers; their lengths and type are the call's.
#[derive(Clone, Copy)]
pub(crate) struct Posting {
    pub(crate) call: Call,
    input: *const u8,
    output: *mut u8,
    bytes: usize,
}

// SAFETY: the addresses are used only by `perform`, under the protocol above; elements are `Send + Sync`.
unsafe impl Send for Posting {}
// SAFETY: as above; a shared posting is only copied from.
unsafe impl Sync for Posting {}

impl Posting {
    /// Bytes that the member contributes or receives, whichever is more.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Takes part in a group's next collective with `slices`; the call has passed `Call::broken_rule`.
pub(crate) fn exchange(job: &Job, at: Occasion<'_>, slices: Slices<'_>) -> Result<(), Aborted> {
    let group = at.group;
    let call = *at.call;
    let lengths = slices.lengths(at.group.size());
    let described = slices.kind().is_some() && call.kind == slices.kind() && call.common_lengths() == Some(lengths);
    assert!(described, "a call describes its own buffers");
    assert_eq!(call.broken_rule(group.size(), group.index()), None, "only valid calls are exchanged");
    let (input, output) = slices.addresses(group.size(), group.index());
    let bytes = lengths.0.max(lengths.1) * call.element_bytes;
    Places::of(&group.shared).meeting.meet(job, group, Posting { call, input, output, bytes }, |postings, members| {
        for member in members {
            // SAFETY: `meet` calls this when all members have posted agreeing calls and returns from nobody's
            // `exchange` before all calls of this closure have ended; each member's work is done once.
            let stored = unsafe { perform(at.mover, postings, member) };
            job.traffic(group.members()[member]).moved(stored);
        }
    })
}

/// Elements that member `p`'s work of a round stores: what [`perform`] counts is held against it.
pub(crate) fn stored(call: &Call, slices: &Slices<'_>, g: usize, p: usize) -> usize {
    let n = call.input;
    let part = chunk(call.input, g, p).len();
    let own_is_there = matches!(slices, Slices::InputWithin(_));
    match call.operation {
        CollectiveKind::AllReduce => g * part,
        CollectiveKind::Reduce | CollectiveKind::ReduceScatter => part,
        CollectiveKind::AllGather => (g - usize::from(own_is_there)) * n,
        CollectiveKind::AllToAll => n,
        CollectiveKind::Broadcast if call.peer == Some(p) => 0,
        CollectiveKind::Broadcast => n,
        CollectiveKind::Barrier
        | CollectiveKind::Send
        | CollectiveKind::Receive
        | CollectiveKind::Fetch
        | CollectiveKind::Store => 0,
    }
}

/// Does member `p`'s work of the round; returns how many bytes it has stored.
///
/// # Safety
/// All postings point to live buffers of the lengths and element type that their calls state and `broken_rule`
/// admits, in the mover's memory; no one else writes what `p` writes or reads (see the protocol).
unsafe fn perform(mover: &dyn Mover, postings: &[Posting], p: usize) -> usize {
    let g = postings.len();
    let own = &postings[p];
    let n = own.call.input;
    let Some(kind) = own.call.kind else { unreachable!("calls of this process have a kind") };
    let how = own.call.reduction.unwrap_or(Reduction::Sum);
    let at = |offset: usize| offset * kind.bytes();
    let inputs = |offset: usize| -> Vec<*const u8> {
        // SAFETY: callers pass an offset within the inputs.
        postings.iter().map(|posting| unsafe { posting.input.add(at(offset)) }).collect()
    };
    let stream = postings.iter().map(Posting::bytes).sum::<usize>() >= STREAM_BYTES;
    let mut stored = 0;
    // SAFETY: in all arms offsets and lengths lie within the buffers by the rules of `Call::broken_rule`.
    unsafe {
        match own.call.operation {
            CollectiveKind::AllReduce => {
                let part = chunk(n, g, p);
                let outputs: Vec<_> = postings.iter().map(|q| q.output.add(at(part.start))).collect();
                // In cache: just read.
                stored += mover.reduce(how, kind, &inputs(part.start), &outputs, part.len(), false);
            }
            CollectiveKind::Reduce => {
                let part = chunk(n, g, p);
                let sum = postings[own.call.peer.unwrap_or(0)].output.add(at(part.start));
                stored += mover.reduce(how, kind, &inputs(part.start), &[sum], part.len(), false);
            }
            CollectiveKind::ReduceScatter => {
                let part = chunk(n, g, p);
                stored += mover.reduce(how, kind, &inputs(part.start), &[own.output], part.len(), stream);
            }
            CollectiveKind::AllGather => {
                for (q, input) in inputs(0).into_iter().enumerate() {
                    let chunk = own.output.add(at(q * n));
                    if input != chunk.cast_const() {
                        stored += mover.copy(kind, input, chunk, n, stream); // in place, the own chunk is there
                    }
                }
            }
            CollectiveKind::AllToAll => {
                let each = n / g;
                for (q, input) in inputs(p * each).into_iter().enumerate() {
                    stored += mover.copy(kind, input, own.output.add(at(q * each)), each, stream);
                }
            }
            CollectiveKind::Broadcast => {
                let root = own.call.peer.unwrap_or(0);
                if root != p {
                    stored += mover.copy(kind, inputs(0)[root], own.output, n, stream);
                }
            }
            CollectiveKind::Barrier
            | CollectiveKind::Send
            | CollectiveKind::Receive
            | CollectiveKind::Fetch
            | CollectiveKind::Store => {}
        }
    }
    mover.fence();
    stored
}
