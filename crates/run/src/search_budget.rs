//! What is said of a whole training that a layout is searched for.

use quadrille_plan::goodput::{CheckpointTime, Failures};
use quadrille_plan::native::Budget;

use crate::searched::positive;
use crate::{Refusal, RunError};

/// A [`Budget`] as it is said.
#[derive(Debug, Clone, Default)]
pub struct BudgetSpec {
    /// What prices are in; US dollars where nothing is said.
    pub currency: Option<String>,
    /// After so many days the training is to be done.
    pub days: Option<f64>,
    /// Whether devices fail, as often as elsewhere unless `mtbf_hours` says how often.
    pub goodput: bool,
    /// Mean device-hours between failures of one device.
    pub mtbf_hours: Option<f64>,
    /// Bytes per second of a device at which checkpoints are written.
    pub checkpoint_bandwidth: Option<f64>,
    /// Seconds in which a checkpoint is written.
    pub checkpoint_seconds: Option<f64>,
    /// Seconds from a failure until training goes on.
    pub restart_seconds: Option<f64>,
}

impl BudgetSpec {
    /// The budget of a training whose tokens and price of a device may be known, and whose states lie on the device or not.
    ///
    /// # Errors
    /// Numbers that are not positive; what counts only with something that is not said.
    pub(crate) fn budget(&self, has_tokens: bool, has_price: bool, is_offloaded: bool) -> Result<Budget, RunError> {
        if let Some(currency) = self.currency.as_deref().filter(|_| !has_price) {
            let rule = "nothing has a price; give `search.price_per_hour`, or leave it out";
            return Err(Refusal::new(format!("`search.currency` {currency}: {rule}")).into());
        }
        let days = positive("`search.days`", self.days, "30")?;
        if let Some(days) = days.filter(|_| !has_tokens) {
            let rule = "how long the training takes depends on its tokens; give `search.tokens`, e.g. 300e9";
            return Err(Refusal::new(format!("`search.days` {days}: {rule}")).into());
        }
        let currency = self.currency.as_deref().map_or(Ok(Budget::default().currency), str::parse)?;
        Ok(Budget { currency, days, failures: self.failures(is_offloaded)? })
    }

    fn failures(&self, is_offloaded: bool) -> Result<Option<Failures>, Refusal> {
        let usual = Failures::MEASURED_ELSEWHERE;
        let mtbf = positive("`search.mtbf`", self.mtbf_hours, "50000")?;
        let said = [
            ("`search.checkpoint_bandwidth`", self.checkpoint_bandwidth, "1e9"),
            ("`search.checkpoint_seconds`", self.checkpoint_seconds, "30"),
            ("`search.restart_seconds`", self.restart_seconds, "600"),
        ];
        let [bandwidth, seconds, restart] = said;
        let said = |(key, value, example): (&str, Option<f64>, &str)| positive(key, value, example);
        if !self.goodput && mtbf.is_none() {
            let unused = [bandwidth, seconds, restart].into_iter().find_map(|(key, value, _)| Some((key, value?)));
            return match unused {
                None => Ok(None),
                Some((key, value)) => Err(Refusal::new(format!(
                    "{key} {value}: it counts where devices fail; give `search.goodput` or `search.mtbf`, or leave it out"
                ))),
            };
        }
        let checkpoint = match (said(bandwidth)?, said(seconds)?) {
            (Some(_), Some(seconds)) => {
                return Err(Refusal::new(format!(
                    "`search.checkpoint_seconds` {seconds} and `search.checkpoint_bandwidth` say the same; leave one of them out"
                )));
            }
            (_, Some(seconds)) => CheckpointTime::Seconds(seconds),
            (_, None) if is_offloaded => {
                return Err(Refusal::new(
                    "`search.goodput`: states in the host's memory are not among those whose checkpoint is reckoned; give \
                     `search.checkpoint_seconds`, e.g. 30",
                ));
            }
            (Some(bandwidth), None) => CheckpointTime::Bandwidth(bandwidth),
            (None, None) => usual.checkpoint,
        };
        let restart_seconds = said(restart)?.unwrap_or(usual.restart_seconds);
        Ok(Some(Failures { mtbf_hours: mtbf.unwrap_or(usual.mtbf_hours), checkpoint, restart_seconds }))
    }
}
