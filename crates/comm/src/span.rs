//! Spans: when a rank communicated, for traces.

use std::mem::take;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use quadrille_spec::CollectiveKind;

use crate::activity::Label;
use crate::call::Call;
use crate::job::lock;

/// One executed collective or message of a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The group's name: an axis key such as `x` or `y+z+data`.
    pub group: Arc<str>,
    /// The layer entered when the call was issued.
    pub layer: Label,
    /// The kind of communication.
    pub kind: CollectiveKind,
    /// A collective: when the rank's communication began to work on it. A message: when this side was posted.
    pub start: Instant,
    /// When it was done on this rank; for a delayed message, when it arrived.
    pub end: Instant,
    /// The payload that the ledger counts for it.
    pub payload_bytes: u64,
}

/// A rank's finished spans, while recording is on.
#[derive(Default)]
pub(crate) struct Recorder {
    on: AtomicBool,
    finished: Arc<Mutex<Vec<Span>>>,
}

impl Recorder {
    pub(crate) fn switch(&self, on: bool) {
        self.on.store(on, Ordering::Relaxed);
    }

    /// The finished spans, in the order of their starts; none are left.
    pub(crate) fn take(&self) -> Vec<Span> {
        let mut spans = take(&mut *lock(&self.finished));
        spans.sort_by_key(|span| span.start);
        spans
    }

    /// A span for a call of the group that is being issued; `None` while recording is off.
    pub(crate) fn open(&self, group: &Arc<str>, call: &Call) -> Option<OpenSpan> {
        self.on.load(Ordering::Relaxed).then(|| {
            let now = Instant::now();
            let span = Span {
                group: group.clone(),
                layer: call.activity.layer,
                kind: call.operation,
                start: now,
                end: now,
                payload_bytes: call.payload_bytes(),
            };
            OpenSpan { finished: self.finished.clone(), span }
        })
    }
}

/// A span of a call that is not done; it is recorded when it ends, and forgotten when it is dropped.
pub(crate) struct OpenSpan {
    finished: Arc<Mutex<Vec<Span>>>,
    span: Span,
}

impl OpenSpan {
    /// The work begins now.
    pub(crate) fn begin(&mut self) {
        self.span.start = Instant::now();
    }

    /// The work ends now, or at `arrival` if that is later.
    pub(crate) fn end(mut self, arrival: Option<Instant>) {
        let now = Instant::now();
        self.span.end = arrival.map_or(now, |arrival| arrival.max(now));
        lock(&self.finished).push(self.span);
    }
}
