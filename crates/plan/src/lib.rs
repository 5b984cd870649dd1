//! Enumerates the legal grids of a model on a number of ranks, prices their communication and ranks them.
//!
//! Ranking is by AxoNN's communication model ([`quadrille_cost::axonn`]): computation is not looked at. Of memory, the
//! states of training must fit into a device where the cluster says how much it has ([`state_bytes`]); activations are
//! not counted.

mod memory;
mod refusal;
mod search;

pub use memory::state_bytes;
pub use refusal::{PlanError, Refusals};
pub use search::{Candidate, Plan, best, plan};
