//! Timeline of a rank's step, in a form that leaves the process.

use std::borrow::Cow;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use quadrille_comm::Span;
use quadrille_spec::CollectiveKind;
use quadrille_step::schedule::Action;
use serde::{Deserialize, Serialize};

use super::operation_times::OperationSpan;

/// What a rank did in the last step, and when. Times are those of the system's clock, since 1970, so that ranks of several
/// processes can be set beside each other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RankTrace {
    /// Operations, on the rank's own thread; waits among them.
    pub operations: Vec<TracedOperation>,
    /// Collectives and messages.
    pub communication: Vec<TracedTransfer>,
}

/// An executed operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TracedOperation {
    /// Its name.
    pub name: Cow<'static, str>,
    /// The layer that it belongs to.
    pub layer: String,
    /// The pass over a microbatch that it was part of; `None`: the update.
    pub action: Option<Action>,
    /// When it began.
    pub start: Duration,
    /// When it ended.
    pub end: Duration,
}

/// A collective or message; see [`Span`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TracedTransfer {
    /// The group's name: an axis key such as `x` or `y+z+data`.
    pub group: String,
    /// The layer entered when the call was issued.
    pub layer: String,
    /// The kind of communication.
    pub kind: CollectiveKind,
    /// When work on it began.
    pub start: Duration,
    /// When it was done on this rank.
    pub end: Duration,
    /// The payload that the ledger counts for it.
    pub payload_bytes: u64,
}

impl RankTrace {
    pub(crate) fn new(operations: Vec<OperationSpan>, communication: Vec<Span>) -> Self {
        let now = Instant::now();
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let since_1970 = |at: Instant| clock.saturating_sub(now.saturating_duration_since(at));
        let operation = |span: OperationSpan| TracedOperation {
            name: span.name.into(),
            layer: span.layer.to_string(),
            action: span.action,
            start: since_1970(span.start),
            end: since_1970(span.end),
        };
        let transfer = |span: Span| TracedTransfer {
            group: span.group.to_string(),
            layer: span.layer.to_string(),
            kind: span.kind,
            start: since_1970(span.start),
            end: since_1970(span.end),
            payload_bytes: span.payload_bytes,
        };
        Self {
            operations: operations.into_iter().map(operation).collect(),
            communication: communication.into_iter().map(transfer).collect(),
        }
    }
}
