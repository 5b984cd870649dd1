//! A run's folder as a document, of which a page is made.
//!
//! [`Run::read`] reads the folder, [`Prediction::of`] prices a step of it, [`document`](fn@document) puts both together; the other
//! modules tell a part each.

mod breakdown;
mod contents;
mod curves;
mod document;
mod ledgers;
mod loads;
mod prediction;
mod rate;
mod read;

pub(crate) use document::command;
pub use document::document;
pub use prediction::{Prediction, StageTimes, Times};
pub use read::{Ledgers, Run, Stored, Summary};
