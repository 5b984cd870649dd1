//! Carries out a plan on a member's buffers.

use std::sync::Arc;

use super::plan::{Action, Arrival, Piece, Plan, Space};
use crate::element::{ElementKind, Reduction};
use crate::error::Aborted;
use crate::job::Job;
use crate::mover::Memory;
use crate::transfer::Slices;
use crate::transport::{Exchange, Occasion, Receive};

/// Where the spaces of a plan begin on this rank, and how many elements they have.
struct Spaces {
    kind: ElementKind,
    input: (*const u8, usize),
    output: (*mut u8, usize),
    scratch: (*mut u8, usize),
}

impl Spaces {
    fn read(&self, piece: Piece) -> *const u8 {
        let (base, len) = match piece.space {
            Space::Input => self.input,
            Space::Output => (self.output.0.cast_const(), self.output.1),
            Space::Scratch => (self.scratch.0.cast_const(), self.scratch.1),
        };
        assert!(piece.start + piece.len <= len, "a plan stays within its buffers");
        base.wrapping_add(self.bytes(piece.start))
    }

    fn write(&self, piece: Piece) -> *mut u8 {
        let (base, len) = match piece.space {
            Space::Output => self.output,
            Space::Scratch => self.scratch,
            Space::Input => unreachable!("plans only read their input"),
        };
        assert!(piece.start + piece.len <= len, "a plan stays within its buffers");
        base.wrapping_add(self.bytes(piece.start))
    }

    fn bytes(&self, elements: usize) -> usize {
        elements * self.kind.bytes()
    }
}

/// Carries out `plan` for the call that `at` names.
///
/// # Errors
/// The job was aborted.
pub(crate) fn run(
    job: &Arc<Job>,
    at: Occasion<'_>,
    plan: &Plan,
    slices: Slices<'_>,
    room: &mut Vec<u64>,
) -> Result<(), Aborted> {
    let kind = slices.kind().filter(|kind| at.call.kind == Some(*kind)).expect("a call describes its own buffers");
    let (input, output) = slices.lengths(at.group.size());
    let addresses = slices.addresses(at.group.size(), at.group.index());
    let scratch = (at.mover.scratch(room, plan.scratch * kind.bytes()), plan.scratch);
    let spaces = Spaces { kind, input: (addresses.0, input), output: (addresses.1, output), scratch };
    for action in &plan.actions {
        match *action {
            Action::Copy { from, to } => {
                assert_eq!(from.len, to.len, "a copy keeps its length");
                let from = spaces.read(from);
                let into = spaces.write(to);
                if from != into.cast_const() {
                    // SAFETY: both lie within buffers that this function borrows. They may overlap where a caller's
                    // output is a chunk of its input.
                    unsafe { at.mover.copy(kind, from, into, to.len, false) };
                    at.mover.fence();
                }
            }
            Action::Exchange { send, receive } => exchange(job, at, &spaces, send, receive)?,
        }
    }
    Ok(())
}

fn exchange(
    job: &Arc<Job>,
    at: Occasion<'_>,
    spaces: &Spaces,
    send: Option<(usize, Piece)>,
    receive: Option<Arrival>,
) -> Result<(), Aborted> {
    let sent = send.map(|(to, piece)| (to, spaces.read(piece), piece.len));
    if let (Some((_, from, len)), Some(Arrival { into, .. })) = (sent, receive) {
        let written = spaces.write(into).cast_const();
        let apart =
            from.wrapping_add(spaces.bytes(len)) <= written || written.wrapping_add(spaces.bytes(into.len)) <= from;
        assert!(apart, "what is sent is not written meanwhile");
    }
    // SAFETY: within a buffer that the caller borrows; nothing writes there during the exchange, as was asserted, and who
    // sends only reads.
    let send = sent.map(|(to, from, len)| (to, unsafe { Memory::new(from.cast_mut(), len, spaces.kind) }));
    let Some(Arrival { from, into, with }) = receive else {
        return job.carrier(at.mover).exchange(job, at, Exchange { send, receive: None });
    };
    let output = spaces.write(into);
    let Some(with) = with else {
        // SAFETY: within a buffer that the caller borrows, apart from what is sent.
        let output = unsafe { Memory::new(output, into.len, spaces.kind) };
        return job.carrier(at.mover).exchange(
            job,
            at,
            Exchange { send, receive: Some((from, Receive::Into(output))) },
        );
    };
    assert_eq!(with.len, into.len, "what is combined has one length");
    let own = spaces.read(with);
    let how = at.call.reduction.unwrap_or(Reduction::Sum);
    let mut combine = |before: usize, arrived: Memory<'_>| {
        let count = arrived.elements();
        let within = before.checked_add(count).is_some_and(|end| end <= into.len);
        assert!(within && arrived.kind() == spaces.kind, "what was asked for arrives, and no more");
        // SAFETY: `before + count` was asserted to lie within `into` and `with`, which have one length and are the same or
        // apart; what has arrived lies elsewhere.
        unsafe {
            let own = own.add(spaces.bytes(before));
            let output = output.add(spaces.bytes(before));
            at.mover.reduce(how, spaces.kind, &[arrived.address().cast_const(), own], &[output], count, false);
        }
        at.mover.fence();
    };
    let receive = Some((from, Receive::Pieces(into.len, &mut combine)));
    job.carrier(at.mover).exchange(job, at, Exchange { send, receive })
}
