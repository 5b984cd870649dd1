//! A training run: its options, the loop over steps on every rank, checkpoints, and records.

pub(crate) mod divergence;
pub(crate) mod loop_state;
pub(crate) mod not_finite;
pub(crate) mod options;
pub(crate) mod rank_run;
pub(crate) mod records;
mod run_counts;
pub(crate) mod saving;
pub(crate) mod train;
