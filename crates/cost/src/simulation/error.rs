//! Why a step cannot be simulated.

use quadrille_step::Layer;

/// A step that cannot be simulated.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SimulationError {
    /// The machine gave a time, or a factor of time, that is negative or not finite.
    #[error("{what} of {layer} on stage {stage} would take {seconds} s: a time is finite and not negative")]
    Price {
        /// The stage whose rank would spend the time.
        stage: usize,
        /// The layer that it would be spent on.
        layer: Layer,
        /// The operation, collective or message, or `slowdown` for the factor of a pass.
        what: &'static str,
        /// The time.
        seconds: f64,
    },
    /// Stages wait for each other for ever: the program's steps have a deadlock.
    #[error("every stage that has not finished waits for another one, the first of them stage {stage}")]
    Stuck {
        /// The first stage that waits.
        stage: usize,
    },
    /// Whoever asked does not wait any more.
    #[error("the simulation was stopped before its end")]
    Stopped,
    /// A wait for a collective that has not been issued.
    #[error("stage {stage} waits for a {what} of {layer} that it has not issued")]
    NotIssued {
        /// The stage.
        stage: usize,
        /// The layer of the wait.
        layer: Layer,
        /// The collective's kind.
        what: &'static str,
    },
}

impl SimulationError {
    /// The time if it is one.
    pub(super) fn check_seconds(stage: usize, layer: Layer, what: &'static str, seconds: f64) -> Result<f64, Self> {
        let is_time = seconds.is_finite() && seconds >= 0.0;
        if is_time { Ok(seconds) } else { Err(Self::Price { stage, layer, what, seconds }) }
    }
}
