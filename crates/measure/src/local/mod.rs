//! Steps of many layouts, predicted by the native model and measured on the ranks of this machine or of several.
//!
//! [`GridsSpec::prepare`] takes all layouts of a number of ranks, or some; [`LocalCase::new`] predicts, [`LocalCase::measure`] runs every layout on random samples, and a [`Comparison`] says how
//! well the predictions tell the measurements (its statistics are those of [`quadrille_plan::local`]).

mod case;
mod comparison;
mod grids;

pub use case::{LocalCase, Predictable, check_steps};
pub use comparison::{Comparison, Row};
pub use grids::{GridsSpec, LocalGrids};
