//! Predicted steps beside steps measured on this machine, layout by layout: the statistics, from numbers alone.
//!
//! [`Predicted`] is what a price says of a step, [`Measured`] what ranks' clocks say of several; [`Summary`] says how well
//! the one tells the other, as AxoNN's evaluation does (SC24, section V-B): ten of a run's steps, the last eight counted,
//! and how many of the ten layouts that are predicted to be fastest are among the ten that are. [`choose`] picks layouts
//! where there are more than one wants to run. [`machine`] is what steps are predicted for where nobody has described it.

mod choose;
pub mod machine;
mod order;
mod summary;
mod times;

pub use choose::{choose, shuffled};
pub use order::{agreement, pearson_of_logs, places};
pub use summary::{Agreement, Summary};
pub use times::{Measured, Predicted, RankStep, WARM_UP_STEPS};
