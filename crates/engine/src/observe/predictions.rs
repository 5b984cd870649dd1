//! The ledgers that a step may have: one, or, where an update is begun before the norm of the gradient is known, one for each
//! verdict; and where experts drop nothing, one for all that tokens may choose.

use std::borrow::Cow;

use quadrille_spec::{Ledger, RankLedger, Routing};
use quadrille_step::{Loads, StepProgram, Verdict, predict_after, predict_rank_loaded};

/// The predicted ledgers of a program.
#[derive(Debug, Clone)]
pub struct Predictions<'p> {
    program: &'p StepProgram,
    routing: Routing,
    /// With equal loads.
    after: Vec<(Verdict, Ledger)>,
}

impl<'p> Predictions<'p> {
    /// Of all ranks, with collectives by the algorithms that `routing` chooses.
    pub fn new(program: &'p StepProgram, routing: &Routing) -> Self {
        let attempts = program.stages.iter().any(|stage| stage.attempts());
        let verdicts = Verdict::ALL.into_iter().filter(|verdict| attempts || *verdict == Verdict::Kept);
        let after = verdicts.map(|verdict| (verdict, predict_after(program, routing, verdict))).collect();
        Self { program, routing: routing.clone(), after }
    }

    /// Of a step with this verdict, which means nothing where nobody waits for one, and with equal loads of experts.
    pub fn after(&self, verdict: Verdict) -> &Ledger {
        let (_, ledger) = self.after.iter().find(|(of, _)| *of == verdict).unwrap_or(&self.after[0]);
        ledger
    }

    /// Of a rank in a step with this verdict and, where its experts drop nothing, these loads.
    pub fn of_rank(&self, rank: usize, verdict: Verdict, loads: &Loads) -> Cow<'_, RankLedger> {
        if loads.is_empty() {
            Cow::Borrowed(&self.after(verdict).ranks[rank])
        } else {
            Cow::Owned(predict_rank_loaded(self.program, rank, &self.routing, verdict, loads))
        }
    }
}
