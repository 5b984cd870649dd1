//! The ledgers that a step may have: one, or, where an update is begun before the norm of the gradient is known, one for each
//! verdict.

use quadrille_spec::{Ledger, Routing};
use quadrille_step::{StepProgram, Verdict, predict_after};

/// The predicted ledgers of a program.
#[derive(Debug, Clone)]
pub struct Predictions(Vec<(Verdict, Ledger)>);

impl Predictions {
    /// Of all ranks, with collectives by the algorithms that `routing` chooses.
    pub fn new(program: &StepProgram, routing: &Routing) -> Self {
        let attempts = program.stages.iter().any(|stage| stage.attempts());
        let verdicts = Verdict::ALL.into_iter().filter(|verdict| attempts || *verdict == Verdict::Kept);
        Self(verdicts.map(|verdict| (verdict, predict_after(program, routing, verdict))).collect())
    }

    /// Of a step with this verdict, which means nothing where nobody waits for one.
    pub fn after(&self, verdict: Verdict) -> &Ledger {
        let (_, ledger) = self.0.iter().find(|(of, _)| *of == verdict).unwrap_or(&self.0[0]);
        ledger
    }
}
