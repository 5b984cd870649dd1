//! What the algorithms of collectives are written over: one rank's exchanges with others.

use crate::call::Call;
use crate::element::Element;
use crate::error::Aborted;
use crate::group::Group;
use crate::job::Job;
use crate::lanes::Lanes;

/// How the ranks of a job reach each other.
pub(crate) enum Transport {
    /// Ranks are threads of this process.
    Threads(Lanes),
}

/// Which collective an exchange belongs to: for matching and for reports. Exchanges of one collective between two members
/// match in their order; members number them differently.
#[derive(Clone, Copy)]
pub(crate) struct Occasion<'a> {
    pub(crate) group: &'a Group,
    pub(crate) call: &'a Call,
    /// The collective's number in its group, from 1.
    pub(crate) sequence: u64,
}

/// One step of a rank: what it sends to one member and receives from another, both under way at once. Members by index.
pub(crate) struct Exchange<'a, T> {
    pub(crate) send: Option<(usize, &'a [T])>,
    pub(crate) receive: Option<(usize, Receive<'a, T>)>,
}

/// What becomes of elements that arrive.
pub(crate) enum Receive<'a, T> {
    /// They are stored.
    Into(&'a mut [T]),
    /// So many are handed over in order, in pieces, with the number of elements before each: the work on a piece runs
    /// while the next is under way.
    Pieces(usize, &'a mut dyn FnMut(usize, &[T])),
}

impl<T> Receive<'_, T> {
    /// Elements that are to arrive.
    pub(crate) fn elements(&self) -> usize {
        match self {
            Self::Into(output) => output.len(),
            Self::Pieces(elements, _) => *elements,
        }
    }
}

impl Transport {
    /// After an abort or a departure: everybody who waits in an exchange looks again.
    pub(crate) fn wake(&self) {
        match self {
            Self::Threads(lanes) => lanes.wake(),
        }
    }

    /// Does one step; returns when what it sends has been read and what it receives has been taken care of. Every member
    /// does its steps in the same order as its partners do theirs.
    ///
    /// # Errors
    /// The job was aborted: also by this step, if the partner's does not fit or does not come within the job's timeout.
    pub(crate) fn exchange<T: Element>(
        &self,
        job: &Job,
        at: Occasion<'_>,
        exchange: Exchange<'_, T>,
    ) -> Result<(), Aborted> {
        match self {
            Self::Threads(lanes) => lanes.exchange(job, at, exchange),
        }
    }
}
