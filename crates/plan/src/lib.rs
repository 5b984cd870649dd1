//! Searches layouts of a model on a cluster, and explains and exports what it finds.
//!
//! [`native`] searches every layout that the rules of layouts allow and ranks them by the seconds of a step in the native
//! model ([`quadrille_cost::native`]), with memory, fronts, and why a layout is as fast as it is. [`published`] holds that
//! model against runs that others have measured, [`local`] against runs of this machine. [`export`] writes layouts as other frameworks' flags and configurations.
//!
//! [`best`] chooses the grid of a run that leaves it open, by the same prices.

mod best;
pub mod export;
pub mod local;
pub mod native;
pub mod statistics;

pub use best::best;
