//! What the algorithms of collectives are written over: one rank's exchanges with others.
//!
//! A [`Transport`] joins the ranks of one job, and is a [`Carrier`] of what lies in the host's memory. Threads share memory;
//! other transports are crates of their own, which find here what they need: the [`Job`], its [groups](Shared), what an
//! exchange is, and [`run_rank`]. How a program gets ranks that are processes is its [`Peers`]. Memory of devices may have a
//! carrier of its own: its [mover](Mover::carrier) says so.

use std::any::Any;
use std::sync::Arc;

use crate::call::Call;
use crate::error::Aborted;
use crate::group::Group;
use crate::mover::{Memory, Mover};

pub use crate::call::MESSAGE_TAGS;
pub use crate::group::Shared;
pub use crate::job::Job;
pub use crate::parcel::Parcel;
pub use crate::run::run_rank;
pub use crate::traffic::Traffic;
pub use crate::transfer::Slices;
pub use crate::world::{Body, Peers};

/// Carries what the ranks of a job send each other. One rank's communication calls [`native`](Self::native) and
/// [`exchange`](Self::exchange) one at a time; what is moved is counted in the job's [`Traffic`].
pub trait Carrier: Send + Sync {
    /// Does a collective in the carrier's own way.
    ///
    /// # Errors
    /// As [`exchange`](Self::exchange).
    fn native(&self, job: &Arc<Job>, at: Occasion<'_>, slices: Slices<'_>) -> Result<(), Aborted>;

    /// Bytes that the member's part of a collective comes to in the carrier's own way: those that it tells
    /// [`Traffic::moved`] of.
    fn native_bytes(&self, group: &Group, call: &Call, slices: &Slices<'_>) -> u64;

    /// Posts one side of a message; `call.peer` is the other member.
    fn message(&self, job: &Arc<Job>, group: &Group, call: Call, parcel: Box<dyn Parcel>);

    /// Does one step; returns when what it sends has been read and what it receives has been taken care of. Every member
    /// does its steps in the same order as its partners do theirs.
    ///
    /// # Errors
    /// The job was aborted: also by this step, if the partner's does not fit or does not come within the job's timeout.
    fn exchange(&self, job: &Arc<Job>, at: Occasion<'_>, exchange: Exchange<'_>) -> Result<(), Aborted>;
}

/// How the ranks of a job reach each other.
pub trait Transport: Carrier {
    /// Whether ranks read and write each other's memory.
    fn shares_memory(&self) -> bool;

    /// What the transport keeps with a group of so many members: see [`Shared::state`]. Made for the first who asks.
    fn group(&self, members: usize) -> Box<dyn Any + Send + Sync> {
        let _ = members;
        Box::new(())
    }

    /// Whether an abort completes every call. Where it does not, because buffers may still be touched, waits end without;
    /// there operations also run on the rank's communication thread only.
    fn ends_calls(&self) -> bool;

    /// Lets the calling thread work on messages until `done`, where they need somebody to.
    fn drive(&self, done: &dyn Fn() -> bool);

    /// Tells other processes of the job's failure.
    fn announce(&self, aborted: &Aborted);

    /// After an abort: everybody who waits in one of the job's groups, or in an exchange, looks again.
    fn wake(&self, groups: &[Arc<Shared>]) {
        let _ = groups;
    }

    /// A rank has left: aborts the job if it is waited for. Where who waits finds out itself, nothing.
    fn find_departed(&self, job: &Job, groups: &[Arc<Shared>]) {
        let _ = (job, groups);
    }

    /// Aborts the job if a member has been waited for longer than the timeout. Where who waits finds out itself, nothing.
    fn find_stuck(&self, job: &Job, groups: &[Arc<Shared>]) {
        let _ = (job, groups);
    }

    /// Looks again and again, until what somebody else does for a call of this rank is done: `look` says whether it is, or
    /// what is wrong. The call is a collective, or one side of a message, whose number `at` has.
    ///
    /// # Errors
    /// The job was aborted: also by this, if the look fails or other ranks do not come within the job's timeout. From then
    /// on nobody looks.
    fn watch(&self, job: &Job, at: Occasion<'_>, look: &mut dyn FnMut() -> Result<bool, String>)
    -> Result<(), Aborted>;
}

/// Which collective an exchange belongs to: for matching and for reports. Exchanges of one collective between two members
/// match in their order; members number them differently.
#[derive(Clone, Copy)]
pub struct Occasion<'a> {
    /// The group.
    pub group: &'a Group,
    /// The member's call.
    pub call: &'a Call,
    /// The collective's number in its group, from 1.
    pub sequence: u64,
    /// Who reads and writes the member's buffers.
    pub mover: &'a dyn Mover,
}

/// One step of a rank: what it sends to one member and receives from another, both under way at once. Members by index.
pub struct Exchange<'a> {
    /// To whom, and what.
    pub send: Option<(usize, Memory<'a>)>,
    /// From whom, and what becomes of it.
    pub receive: Option<(usize, Receive<'a>)>,
}

/// What becomes of elements that arrive.
pub enum Receive<'a> {
    /// They are stored.
    Into(Memory<'a>),
    /// So many are handed over in order, in pieces, with the number of elements before each: the work on a piece runs
    /// while the next is under way.
    Pieces(usize, &'a mut dyn FnMut(usize, Memory<'_>)),
}

impl Receive<'_> {
    /// Elements that are to arrive.
    pub fn elements(&self) -> usize {
        match self {
            Self::Into(output) => output.elements(),
            Self::Pieces(elements, _) => *elements,
        }
    }
}
