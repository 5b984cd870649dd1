//! The ranks that measure.

use quadrille_comm::{JobOptions, RankContext, run_job};
use quadrille_engine::EngineError;
use quadrille_spec::{Algorithm, Choice, Nodes, Routing};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::CalibrationSpec;
use crate::MeasureError;
use crate::timing::Fault;

/// Runs `body` as every rank, with collectives by `algorithm`, and gives what they return, by rank: plain numbers, which can
/// be sent. Ranks are threads or, where a launcher has started several, processes: nothing else of a measurement knows.
///
/// # Errors
/// The first rank's failure.
pub fn on_ranks<T: Send + Serialize + DeserializeOwned>(
    spec: &CalibrationSpec,
    algorithm: Algorithm,
    body: impl Fn(&RankContext) -> Result<T, Fault> + Sync,
) -> Result<Vec<T>, MeasureError> {
    let routing =
        Routing { nodes: Nodes::equal(spec.ranks, spec.per_node), choice: Choice::Always(algorithm), grid: None };
    let options = JobOptions { routing, world: spec.world.clone(), ..JobOptions::new(spec.ranks) };
    Ok(run_job(&options, body).map_err(EngineError::from)?)
}
