//! The questions of the library, one file each.

mod error;
mod explain;
mod plan;
pub mod prelude;
mod report;
mod train;
mod verify;

pub use error::Error;
pub use explain::{Explanation, explain};
pub use plan::{Plan, PlanRequest, PlannedLayout, plan};
pub use report::report;
pub use train::{resume, train};
pub use verify::verify;
