//! A run's folder as one page, which loads nothing from elsewhere.
//!
//! [`Run::read`] reads the folder, [`Prediction::of`] prices a step of it, [`page`] puts both together; the other modules write
//! a part of the page each.

mod breakdown;
mod chart;
mod curves;
mod ledgers;
mod loads;
mod page;
mod prediction;
mod read;

pub use page::page;
pub use prediction::{Prediction, StageTimes, Times};
pub use read::{Ledgers, Run, Stored, Summary};
