//! Limits of the whole training, as a request states them.

use quadrille_spec::SpecError;

use super::PlanRequest;
use crate::goodput::{CheckpointTime, Failures};
use crate::native::Budget;

/// Checks that a number is positive and finite.
///
/// # Errors
/// Any other number.
pub fn positive(field: &str, value: Option<f64>, example: &str) -> Result<Option<f64>, SpecError> {
    match value {
        Some(value) if !(value.is_finite() && value > 0.0) => {
            let remedy = format!("give a positive number, e.g. {field} {example}");
            Err(SpecError::invalid(field, value, "it is above 0", remedy))
        }
        value => Ok(value),
    }
}

impl PlanRequest {
    /// Budget of the training, whose optimizer states are offloaded to the host or not.
    ///
    /// # Errors
    /// Numbers that are not positive; a field that counts only with another one.
    pub(super) fn budget(&self, is_offloaded: bool) -> Result<Budget, SpecError> {
        if let Some(currency) = self.currency.filter(|_| self.price_per_hour.is_none()) {
            let remedy = "give `search.price_per_hour`, or leave it out";
            return Err(SpecError::invalid("`search.currency`", currency, "nothing has a price", remedy));
        }
        if let Some(price) = self.price_per_hour.filter(|_| self.tokens.is_none()) {
            let remedy = "give `search.tokens`, e.g. 300e9, or leave it out";
            let rule = "the cost of a training follows from its tokens";
            return Err(SpecError::invalid("`search.price_per_hour`", price, rule, remedy));
        }
        let days = positive("`search.days`", self.days, "30")?;
        if let Some(days) = days.filter(|_| self.tokens.is_none()) {
            let rule = "the length of a training depends on its tokens";
            return Err(SpecError::invalid("`search.days`", days, rule, "give `search.tokens`, e.g. 300e9"));
        }
        Ok(Budget { currency: self.currency.unwrap_or_default(), days, failures: self.failures(is_offloaded)? })
    }

    fn failures(&self, is_offloaded: bool) -> Result<Option<Failures>, SpecError> {
        let usual = Failures::MEASURED_ELSEWHERE;
        let mtbf = positive("`search.mtbf`", self.mtbf, "50000")?;
        let bandwidth = positive("`search.checkpoint_bandwidth`", self.checkpoint_bandwidth, "1e9")?;
        let seconds = positive("`search.checkpoint_seconds`", self.checkpoint_seconds, "30")?;
        let restart = positive("`search.restart_seconds`", self.restart_seconds, "600")?;
        if !self.goodput && mtbf.is_none() {
            let unused = [
                ("`search.checkpoint_bandwidth`", bandwidth),
                ("`search.checkpoint_seconds`", seconds),
                ("`search.restart_seconds`", restart),
            ];
            return match unused.into_iter().find_map(|(field, value)| Some((field, value?))) {
                None => Ok(None),
                Some((field, value)) => Err(SpecError::invalid(
                    field,
                    value,
                    "it counts where devices fail",
                    "give `search.goodput` or `search.mtbf`, or leave it out",
                )),
            };
        }
        let checkpoint = match (bandwidth, seconds) {
            (Some(_), Some(seconds)) => {
                let rule = "it is the same as `search.checkpoint_bandwidth`";
                return Err(SpecError::invalid("`search.checkpoint_seconds`", seconds, rule, "leave one of them out"));
            }
            (_, Some(seconds)) => CheckpointTime::Seconds(seconds),
            (_, None) if is_offloaded => {
                let rule = "the size of checkpoints is known of states on devices, not of those in the host's memory";
                let remedy = "give `search.checkpoint_seconds`, e.g. 30";
                return Err(SpecError::invalid("`search.goodput`", self.goodput, rule, remedy));
            }
            (Some(bandwidth), None) => CheckpointTime::Bandwidth(bandwidth),
            (None, None) => usual.checkpoint,
        };
        Ok(Some(Failures {
            mtbf_hours: mtbf.unwrap_or(usual.mtbf_hours),
            checkpoint,
            restart_seconds: restart.unwrap_or(usual.restart_seconds),
        }))
    }
}
