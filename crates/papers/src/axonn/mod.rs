//! AxoNN's communication model of 4D parallelism (Singh et al., SC 2024), and the search over grids by it.

mod memory;
mod model;
mod search;

pub use memory::state_bytes;
pub use model::{Cost, Equation, Linear, Price, Term, linears, price};
pub use search::{Candidate, Plan, plan};
