//! Enumerates the legal grids of a model on a number of ranks, prices their communication and ranks them.
//!
//! Ranking is by AxoNN's communication model ([`quadrille_cost::axonn`]): computation and memory are not looked at.

mod refusal;
mod search;

pub use refusal::{PlanError, Refusals};
pub use search::{Candidate, Plan, best, plan};
