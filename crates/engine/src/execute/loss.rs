//! Vocabulary-parallel cross-entropy, fused with its gradient.

use quadrille_step::{Operation, ValueId};
use quadrille_tensor as kernels;

use crate::{EngineError, RankEngine, Real};

impl<T: Real> RankEngine<'_, T> {
    pub(super) fn cross_entropy(&mut self, operation: &Operation) -> Result<usize, EngineError> {
        match *operation {
            Operation::CrossEntropyMax { logits, output } => self.write(output, |rank, maxima| {
                let ((rows, cols), (_, valid)) = (rank.dims(logits), rank.vocabulary(logits));
                let logits = rank.read(logits)?;
                kernels::cross_entropy_max(&rank.pool, rows, cols, valid, logits, maxima);
                Ok(logits.len())
            }),
            Operation::CrossEntropySums { logits, maxima, output } => self.write(output, |rank, sums| {
                let ((rows, cols), (start, valid)) = (rank.dims(logits), rank.vocabulary(logits));
                let targets = &rank.targets[rank.token_range(logits)];
                let (logits, maxima) = (rank.read(logits)?, rank.read(maxima)?);
                kernels::cross_entropy_sums(&rank.pool, rows, cols, valid, start, logits, maxima, targets, sums);
                Ok(logits.len())
            }),
            Operation::CrossEntropyGradient { maxima, sums, output, .. } => self.write(output, |rank, l| {
                let ((rows, cols), (start, valid)) = (rank.dims(output), rank.vocabulary(output));
                let targets = &rank.targets[rank.token_range(output)];
                let (maxima, sums) = (rank.read(maxima)?, rank.read(sums)?);
                // The only division in a step: by the global number of target tokens.
                let scale = T::from_f64(1.0 / rank.program.layout.tokens_per_step() as f64);
                rank.loss_sum += kernels::cross_entropy_gradient(
                    &rank.pool, rows, cols, valid, start, l, maxima, sums, targets, scale,
                );
                Ok(l.len())
            }),
            _ => Ok(0),
        }
    }

    /// The first token id of this rank's columns of the logits, and how many of them are no padding.
    fn vocabulary(&self, logits: ValueId) -> (usize, usize) {
        let (start, cols) = (self.first_col(logits), self.value(logits).local_cols);
        (start, self.program.model.vocab.saturating_sub(start).min(cols))
    }
}
