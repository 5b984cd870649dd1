//! Seconds per operation kind, and when each operation was executed.

use std::collections::BTreeMap;
use std::time::Instant;

use quadrille_step::Layer;
use quadrille_step::schedule::Action;

/// When an operation was executed.
#[derive(Debug, Clone)]
pub(crate) struct OperationSpan {
    pub name: &'static str,
    pub layer: Layer,
    /// The pass over a microbatch that it was part of; `None`: the update.
    pub action: Option<Action>,
    pub start: Instant,
    pub end: Instant,
}

/// Times of a rank's operations.
#[derive(Debug, Default)]
pub(crate) struct OperationTimes {
    /// Seconds per operation kind since the last [`Self::take_breakdown`].
    breakdown: BTreeMap<&'static str, f64>,
    /// Executed operations, while they are recorded.
    pub spans: Option<Vec<OperationSpan>>,
}

impl OperationTimes {
    /// Adds an operation.
    pub fn add(&mut self, span: OperationSpan) {
        *self.breakdown.entry(span.name).or_default() += (span.end - span.start).as_secs_f64();
        if let Some(spans) = &mut self.spans {
            spans.push(span);
        }
    }

    /// Seconds per operation kind since the last call.
    pub fn take_breakdown(&mut self) -> BTreeMap<&'static str, f64> {
        std::mem::take(&mut self.breakdown)
    }

    /// Operations recorded since the last call.
    pub fn take_spans(&mut self) -> Vec<OperationSpan> {
        self.spans.as_mut().map(std::mem::take).unwrap_or_default()
    }
}
