//! The ranks that measure.

use std::error::Error;

use quadrille_comm::{JobOptions, RankContext, run_ranks};
use quadrille_engine::EngineError;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::failure::Failure;

/// Runs `body` as each of `ranks` ranks and gives what they return, by rank: plain numbers, which can be sent. Nothing else
/// of a calibration knows where ranks are.
///
/// # Errors
/// The first rank's failure.
pub fn on_ranks<T: Send + Serialize + DeserializeOwned>(
    ranks: usize,
    body: impl Fn(&RankContext) -> Result<T, Box<dyn Error + Send + Sync>> + Sync,
) -> Result<Vec<T>, Failure> {
    Ok(run_ranks(&JobOptions::new(ranks), body).map_err(EngineError::from)?)
}
