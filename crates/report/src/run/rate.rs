//! FLOP/s that a run reached.

use quadrille_cost::native::Problem;
use quadrille_step::StepProgram;

use super::read::Run;

impl Run {
    /// TFLOP/s of a rank in the median step, the first aside where there are others, by the run's convention of counting FLOPs;
    /// `None` of a run without steps.
    pub fn tflops_per_device(&self) -> Option<f64> {
        let StepProgram { model, layout, .. } = &self.program;
        let sequence = || Problem::model_flops(model, 1, layout.seq_len) / layout.seq_len as f64;
        let padded = layout.padded_vocab(model);
        let of_token = self.flops_convention.of_token(model, layout.seq_len, padded).unwrap_or_else(sequence);
        let steps = self.steps.get(1..).filter(|steps| !steps.is_empty()).unwrap_or(&self.steps);
        let mut rates: Vec<f64> = steps.iter().map(|step| step.tokens_per_second).collect();
        rates.sort_by(f64::total_cmp);
        let median = rates.get(rates.len() / 2)?;
        Some(median * of_token / (layout.grid.ranks() as f64 * 1e12))
    }
}
