//! What the algorithms of collectives are written over: one rank's exchanges with others.

use std::sync::Arc;

use crate::call::Call;
use crate::error::Aborted;
use crate::group::Group;
use crate::job::Job;
use crate::lanes::Lanes;
use crate::mover::{Memory, Mover};
#[cfg(feature = "mpi")]
use crate::mpi::Link;
use crate::parcel::Parcel;
use crate::run::JobOptions;
use crate::transfer::{self, Slices};

/// How the ranks of a job reach each other.
pub(crate) enum Transport {
    /// Ranks are threads of this process.
    Threads(Lanes),
    /// Ranks are processes.
    #[cfg(feature = "mpi")]
    Mpi(Link),
}

/// Which collective an exchange belongs to: for matching and for reports. Exchanges of one collective between two members
/// match in their order; members number them differently.
#[derive(Clone, Copy)]
pub(crate) struct Occasion<'a> {
    pub(crate) group: &'a Group,
    pub(crate) call: &'a Call,
    /// The collective's number in its group, from 1.
    pub(crate) sequence: u64,
    /// Who reads and writes the member's buffers.
    pub(crate) mover: &'a dyn Mover,
}

/// One step of a rank: what it sends to one member and receives from another, both under way at once. Members by index.
pub(crate) struct Exchange<'a> {
    pub(crate) send: Option<(usize, Memory<'a>)>,
    pub(crate) receive: Option<(usize, Receive<'a>)>,
}

/// What becomes of elements that arrive.
pub(crate) enum Receive<'a> {
    /// They are stored.
    Into(Memory<'a>),
    /// So many are handed over in order, in pieces, with the number of elements before each: the work on a piece runs
    /// while the next is under way.
    Pieces(usize, &'a mut dyn FnMut(usize, Memory<'_>)),
}

impl Receive<'_> {
    /// Elements that are to arrive.
    pub(crate) fn elements(&self) -> usize {
        match self {
            Self::Into(output) => output.elements(),
            Self::Pieces(elements, _) => *elements,
        }
    }
}

impl Transport {
    pub(crate) fn of(options: &JobOptions) -> Self {
        #[cfg(feature = "mpi")]
        if let Some(world) = &options.world {
            return Self::Mpi(Link::new(world.port()));
        }
        Self::Threads(Lanes::new(options.ranks))
    }

    #[cfg(feature = "mpi")]
    pub(crate) fn link(&self) -> Option<&Link> {
        match self {
            Self::Threads(_) => None,
            Self::Mpi(link) => Some(link),
        }
    }

    /// Whether an abort completes every call. Between processes it does not: the library may still touch the buffers, so
    /// waits end without. There operations also run on the rank's communication thread only.
    pub(crate) fn ends_calls(&self) -> bool {
        match self {
            Self::Threads(_) => true,
            #[cfg(feature = "mpi")]
            Self::Mpi(_) => false,
        }
    }

    /// Lets the calling thread work on messages until `done`, where they need somebody to.
    pub(crate) fn drive(&self, done: &dyn Fn() -> bool) {
        match self {
            Self::Threads(_) => _ = done,
            #[cfg(feature = "mpi")]
            Self::Mpi(link) => link.port.drive(done),
        }
    }

    /// Tells other processes of a failure.
    pub(crate) fn announce(&self, aborted: &Aborted) {
        match self {
            Self::Threads(_) => _ = aborted,
            #[cfg(feature = "mpi")]
            Self::Mpi(link) => link.port.announce(aborted),
        }
    }

    /// Does a collective in the transport's own way.
    ///
    /// # Errors
    /// As [`exchange`](Self::exchange).
    pub(crate) fn native(&self, job: &Job, at: Occasion<'_>, slices: Slices<'_>) -> Result<(), Aborted> {
        match self {
            Self::Threads(_) => transfer::exchange(job, at, slices),
            #[cfg(feature = "mpi")]
            Self::Mpi(link) => link.port.native(job, at, slices),
        }
    }

    /// Bytes that the member's part of a collective comes to in the transport's own way: see [`crate::traffic`].
    pub(crate) fn native_bytes(&self, group: &Group, call: &Call, slices: &Slices<'_>) -> u64 {
        match self {
            Self::Threads(_) => call.bytes(transfer::stored(call, slices, group.size(), group.index())),
            #[cfg(feature = "mpi")]
            Self::Mpi(_) => call.bytes(call.input),
        }
    }

    /// Posts one side of a message.
    pub(crate) fn message(&self, job: &Arc<Job>, group: &Group, call: Call, parcel: Box<dyn Parcel>) {
        match self {
            Self::Threads(_) => group.shared.mailbox.post(job, group, call, parcel),
            #[cfg(feature = "mpi")]
            Self::Mpi(link) => link.port.post(job, group, call, parcel),
        }
    }

    /// After an abort or a departure: everybody who waits in an exchange looks again.
    pub(crate) fn wake(&self) {
        match self {
            Self::Threads(lanes) => lanes.wake(),
            #[cfg(feature = "mpi")]
            Self::Mpi(_) => {} // who waits looks again by itself
        }
    }

    /// Does one step; returns when what it sends has been read and what it receives has been taken care of. Every member
    /// does its steps in the same order as its partners do theirs.
    ///
    /// # Errors
    /// The job was aborted: also by this step, if the partner's does not fit or does not come within the job's timeout.
    pub(crate) fn exchange(&self, job: &Job, at: Occasion<'_>, exchange: Exchange<'_>) -> Result<(), Aborted> {
        match self {
            Self::Threads(lanes) => lanes.exchange(job, at, exchange),
            #[cfg(feature = "mpi")]
            Self::Mpi(link) => link.port.exchange(job, at, exchange),
        }
    }
}
