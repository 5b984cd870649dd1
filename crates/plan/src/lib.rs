//! Enumerates the legal grids of a model on a number of ranks, prices their communication and ranks them; and, in
//! [`lbnl`], searches the configurations of LBNL's performance model; and, in [`export`], writes layouts as other
//! frameworks' flags and configurations.
//!
//! Ranking is by AxoNN's communication model ([`quadrille_cost::axonn`]): computation is not looked at. Candidates whose
//! states of training do not fit into a device are marked where the cluster says how much it has ([`state_bytes`]);
//! activations are not counted.
//!
//! [`reproduce`] holds the published models against the figures printed in their works.

pub mod export;
pub mod lbnl;
mod memory;
pub mod native;
pub mod published;
mod refusal;
pub mod reproduce;
mod search;

pub use memory::state_bytes;
pub use refusal::{PlanError, Refusals};
pub use search::{Candidate, Plan, best, plan};
