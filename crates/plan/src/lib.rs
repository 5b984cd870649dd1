//! Searches layouts of a model on a cluster, and explains and exports what it finds.
//!
//! [`native`] searches every layout that the rules of layouts allow and ranks them by the seconds of a step in the native
//! model ([`quadrille_cost::native`]), with memory, fronts, and why a layout is as fast as it is. [`published`] holds that
//! model against runs that others have measured, [`local`] against runs of this machine. [`export`] writes layouts as other frameworks' flags and configurations.
//!
//! [`best`] chooses the grid of a run that leaves it open, by the same prices. Two published searches: [`axonn`] ranks the
//! grids of a number of ranks by AxoNN's communication model, [`lbnl`] searches the configurations of LBNL's performance
//! model. [`reproduce`] holds the published models against the figures printed in their works.

pub mod axonn;
mod best;
pub mod export;
pub mod lbnl;
pub mod local;
mod memory;
pub mod native;
pub mod published;
pub mod reproduce;
pub mod statistics;

pub use best::best;
