//! Carries out a plan on a member's buffers.

use std::mem::size_of;

use super::plan::{Action, Arrival, Piece, Plan, Space};
use crate::element::{Element, Reduction};
use crate::error::Aborted;
use crate::job::Job;
use crate::transfer::{Slices, reduce};
use crate::transport::{Exchange, Occasion, Receive};

/// Memory of the algorithms on one rank; it grows to what the largest plan has needed and is used again.
#[derive(Default)]
pub(crate) struct Scratch(Vec<u64>);

impl Scratch {
    fn elements<T: Element>(&mut self, elements: usize) -> *mut T {
        const { assert!(align_of::<T>() <= align_of::<u64>()) };
        let words = (elements * size_of::<T>()).div_ceil(size_of::<u64>());
        if self.0.len() < words {
            self.0.resize(words, 0);
        }
        self.0.as_mut_ptr().cast()
    }
}

/// Where the spaces of a plan begin on this rank, and their lengths.
struct Spaces<T> {
    input: (*const T, usize),
    output: (*mut T, usize),
    scratch: (*mut T, usize),
}

impl<T> Spaces<T> {
    fn read(&self, piece: Piece) -> *const T {
        let (base, len) = match piece.space {
            Space::Input => self.input,
            Space::Output => (self.output.0.cast_const(), self.output.1),
            Space::Scratch => (self.scratch.0.cast_const(), self.scratch.1),
        };
        assert!(piece.start + piece.len <= len, "a plan stays within its buffers");
        base.wrapping_add(piece.start)
    }

    fn write(&self, piece: Piece) -> *mut T {
        let (base, len) = match piece.space {
            Space::Output => self.output,
            Space::Scratch => self.scratch,
            Space::Input => unreachable!("plans only read their input"),
        };
        assert!(piece.start + piece.len <= len, "a plan stays within its buffers");
        base.wrapping_add(piece.start)
    }
}

/// Carries out `plan` for the call that `at` names.
///
/// # Errors
/// The job was aborted.
pub(crate) fn run<T: Element>(
    job: &Job,
    at: Occasion<'_>,
    plan: &Plan,
    mut slices: Slices<'_, T>,
    scratch: &mut Scratch,
) -> Result<(), Aborted> {
    let (input, output) = slices.lengths(at.group.size());
    let addresses = slices.addresses(at.group.size(), at.group.index());
    let scratch = (scratch.elements::<T>(plan.scratch), plan.scratch);
    let spaces = Spaces { input: (addresses.0, input), output: (addresses.1, output), scratch };
    for action in &plan.actions {
        match *action {
            Action::Copy { from, to } => {
                assert_eq!(from.len, to.len, "a copy keeps its length");
                let (from, into) = (spaces.read(from), spaces.write(to));
                if from != into.cast_const() {
                    // SAFETY: both lie within buffers that this function borrows. They may overlap where a caller's
                    // output is a chunk of its input, hence `copy`.
                    unsafe { std::ptr::copy(from, into, to.len) };
                }
            }
            Action::Exchange { send, receive } => exchange(job, at, &spaces, send, receive)?,
        }
    }
    Ok(())
}

fn exchange<T: Element>(
    job: &Job,
    at: Occasion<'_>,
    spaces: &Spaces<T>,
    send: Option<(usize, Piece)>,
    receive: Option<Arrival>,
) -> Result<(), Aborted> {
    let sent = send.map(|(to, piece)| (to, spaces.read(piece), piece.len));
    if let (Some((_, from, len)), Some(Arrival { into, .. })) = (sent, receive) {
        let written = spaces.write(into).cast_const();
        let apart = from.wrapping_add(len) <= written || written.wrapping_add(into.len) <= from;
        assert!(apart, "what is sent is not written meanwhile");
    }
    // SAFETY: within a buffer that the caller borrows; nothing writes there during the exchange, as was asserted.
    let send = sent.map(|(to, from, len)| (to, unsafe { std::slice::from_raw_parts(from, len) }));
    let Some(Arrival { from, into, with }) = receive else {
        return job.transport.exchange(job, at, Exchange { send, receive: None });
    };
    let output = spaces.write(into);
    let Some(with) = with else {
        // SAFETY: within a buffer that the caller borrows, apart from what is sent.
        let output = unsafe { std::slice::from_raw_parts_mut(output, into.len) };
        return job.transport.exchange(job, at, Exchange { send, receive: Some((from, Receive::Into(output))) });
    };
    assert_eq!(with.len, into.len, "what is combined has one length");
    let own = spaces.read(with);
    let how = at.call.reduction.or(Some(Reduction::Sum));
    let mut combine = |before: usize, arrived: &[T]| {
        assert!(before + arrived.len() <= into.len, "no more arrives than was asked for");
        // SAFETY: `before + len` was asserted to lie within `into` and `with`, which have one length and are the same or
        // apart; what has arrived lies elsewhere.
        unsafe {
            let (own, output) = (own.add(before), output.add(before));
            reduce(how, &[arrived.as_ptr(), own], &[output], arrived.len(), false);
        }
    };
    let receive = Some((from, Receive::Pieces(into.len, &mut combine)));
    job.transport.exchange(job, at, Exchange { send, receive })
}
