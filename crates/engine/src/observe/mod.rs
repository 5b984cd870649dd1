//! Observation of a run: counted and predicted ledgers, traces, routing, and complete tensors for comparisons.

pub(crate) mod choices;
pub(crate) mod ledger;
pub(crate) mod non_finite;
pub(crate) mod observed_run;
pub(crate) mod operation_times;
pub(crate) mod predictions;
pub(crate) mod readings;
pub(crate) mod routed;
pub(crate) mod state_times;
pub(crate) mod trace;

use quadrille_comm::RankContext;
use quadrille_step::StageProgram;

use crate::Chosen;
use ledger::LedgerCounts;
use non_finite::Scan;
use operation_times::OperationTimes;

/// Records of what a rank executes; none of them changes what it computes.
pub(crate) struct Observers {
    pub ledger: LedgerCounts,
    pub times: OperationTimes,
    /// Choices of tokens, while they are recorded.
    pub choices: Option<Vec<Chosen>>,
    /// The search for the first number that is not finite, while it runs.
    pub scan: Option<Scan>,
}

impl Observers {
    /// Counts and times; choices, spans and the scan are off.
    pub fn new(program: &StageProgram) -> Self {
        Self { ledger: LedgerCounts::new(program), times: OperationTimes::default(), choices: None, scan: None }
    }

    /// Starts or stops recording operations and the rank's communication.
    pub fn record_spans(&mut self, context: &RankContext, on: bool) {
        self.times.spans = on.then(Vec::new);
        context.record_spans(on);
    }

    /// Pauses or resumes the recording of communication, if spans are recorded.
    pub fn pause_spans(&self, context: &RankContext, pause: bool) {
        if self.times.spans.is_some() {
            context.record_spans(!pause);
        }
    }
}
