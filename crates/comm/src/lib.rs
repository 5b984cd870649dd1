//! Ranks, groups and asynchronous collectives.
//!
//! [`run_ranks`] starts one thread per rank and gives each a [`RankContext`]. Collectives take ownership
//! of their buffers, run in issue order beside the rank's own thread, and give the buffers back from
//! [`Pending::wait`]:
//!
//! ```
//! use quadrille_comm::{JobOptions, Label, Reduction, run_ranks};
//!
//! let sums = run_ranks(&JobOptions::new(4), |context| {
//!     let world = context.group("world", &[0, 1, 2, 3])?;
//!     context.enter(Label::indexed("block", 0), "sum of ranks")?;
//!     let pending = context.all_reduce(&world, Reduction::Sum, vec![context.rank() as f32]);
//!     Ok(pending.wait()?[0]) // other work may be done before the wait
//! })?;
//! assert_eq!(sums, [6.0; 4]);
//! # Ok::<(), quadrille_comm::JobFailure>(())
//! ```
//!
//! Ranks may also be processes, started by `mpirun` or another launcher: [`run_job`] with a [`World`], which a crate for a
//! [`transport`] between processes makes.
//!
//! Rules a program keeps: the members of a group issue the same collectives in the same order, with the
//! same sizes; groups that overlap are used in an order all their members share. A program that breaks
//! them, like one whose rank fails or stays away, ends with a [`JobFailure`] that names the rank, the
//! layer and the operation. Messages stand outside these orders: they match by sender, receiver and tag. Results are
//! bit-identical from run to run: in shared memory every element is reduced in ascending order of the member index, by the
//! algorithms in an order that the algorithm and the group fix; only in an MPI library's own collectives the order is the
//! library's.

mod activity;
mod algorithm;
mod call;
mod chunks;
mod collectives;
mod context;
mod delay;
mod element;
mod error;
mod group;
mod issue;
mod job;
mod lanes;
mod launcher;
mod ledger;
mod letter;
mod mailbox;
pub mod memory;
mod mover;
mod parcel;
mod pending;
mod queue;
mod rendezvous;
mod run;
mod span;
mod threads;
mod traffic;
mod transfer;
pub mod transport;
mod watch;
mod wire;
mod world;

use quadrille_panics as panics;

pub use activity::{Activity, Label};
pub use call::Call;
pub use context::RankContext;
pub use delay::{MessageDelay, MessageInfo};
pub use element::{Element, ElementKind, Reduction};
pub use error::{Aborted, Cause, CollectiveError, JobFailure, Late};
pub use group::Group;
pub use launcher::{Launched, processors};
pub use ledger::{Ledger, LedgerKey};
pub use mover::{Host, Memory, Mover, Payload};
pub use pending::Pending;
pub use run::{JobOptions, run_job, run_ranks};
pub use span::Span;
pub use world::{World, WorldError};
