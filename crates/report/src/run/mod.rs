//! The reports of a run's folder, and of its page.
//!
//! [`Run::read`] reads the folder, [`Prediction::of`] prices a step of it, [`RunPage`] puts both together; the other modules have a
//! part each.

mod breakdown;
mod contents;
mod curves;
mod document;
mod ledgers;
mod loads;
mod prediction;
mod rate;
mod read;

pub use breakdown::{GroupSeconds, KindSeconds, StepBreakdown, StepSides};
pub use contents::{RunLedgers, RunReport};
pub use curves::{MarkedStep, RouterCurves, RunCurves};
pub(crate) use document::command;
pub use document::{RunPage, RunPageEvent};
pub use ledgers::{ByteCounts, CountPair, FlopCounts, LedgerTables, TransferCounts};
pub use prediction::{Prediction, StageTimes, Times};
pub use read::{Ledgers, Run, Stored, Summary};
