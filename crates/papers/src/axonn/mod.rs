//! AxoNN's communication model of 4D parallelism (Singh et al., SC 2024), and the search over grids by it; the memory of
//! its hybrid of pipeline and data parallelism (Singh's dissertation, chapter 3).

mod hybrid;
mod memory;
mod model;
mod search;

pub use hybrid::{bucketed_bytes, data_parallel_bytes, kept_activations, kept_interval, mixed_precision_bytes};
pub use memory::state_bytes;
pub use model::{Cost, Equation, Linear, Price, Term, linears, price};
pub use search::{Candidate, Plan, plan};
