//! Vocabulary-parallel cross-entropy, and squared error, fused with their gradients.

use quadrille_spec::IGNORED;
use quadrille_step::{Operation, ValueId};
use quadrille_tensor as kernels;

use crate::{EngineError, RankEngine, Real};

/// Kernels and everyone else mean the same targets.
const _: () = assert!(kernels::IGNORED == IGNORED);

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
                let targets = &rank.samples.tokens[1][rank.sample_rows(logits)];
                let (logits, maxima) = (rank.read(logits)?, rank.read(maxima)?);
                kernels::cross_entropy_sums(&rank.pool, rows, cols, valid, start, logits, maxima, targets, sums);
                Ok(logits.len())
            }),
            Operation::CrossEntropyGradient { maxima, sums, output, .. } => self.write(output, |rank, l| {
                let ((rows, cols), (start, valid)) = (rank.dims(output), rank.vocabulary(output));
                let targets = &rank.samples.tokens[1][rank.sample_rows(output)];
                let (maxima, sums) = (rank.read(maxima)?, rank.read(sums)?);
                let scale = rank.loss_scale();
                let counted = targets.iter().filter(|target| **target != IGNORED).count();
                rank.loss_sum += kernels::cross_entropy_gradient(
                    &rank.pool, rows, cols, valid, start, l, maxima, sums, targets, scale,
                );
                rank.targets += counted as u64;
                Ok(l.len())
            }),
            Operation::CrossEntropyLoss { sums } => {
                let targets = &self.samples.tokens[1][self.sample_rows(sums)];
                let elements = self.read(sums)?;
                let loss = kernels::cross_entropy_loss(elements, targets);
                let (counted, swept) = (targets.iter().filter(|target| **target != IGNORED).count(), elements.len());
                self.loss_sum += loss;
                self.targets += counted as u64;
                Ok(swept)
            }
            _ => Ok(0),
        }
    }

    pub(super) fn squared_error_loss(&mut self, value: ValueId) -> Result<usize, EngineError> {
        let ((_, values), rows) = (self.dims(value), self.sample_rows(value));
        let predictions = self.read(value)?;
        let targets = &self.samples.patches[1][rows.start * values..rows.end * values];
        // No number stands for an ignored target: what is predicted of missing sequences is left out here.
        let counted = self.counted_rows(value) * values;
        let loss = kernels::squared_error_loss(&self.pool, &predictions[..counted], &targets[..counted]);
        // Ledgers are of whole batches, with what fills them up.
        let swept = predictions.len();
        self.loss_sum += loss;
        self.targets += counted as u64;
        Ok(swept)
    }

    pub(super) fn squared_error(&mut self, output: ValueId) -> Result<usize, EngineError> {
        self.write(output, |rank, predictions| {
            let ((_, values), rows) = (rank.dims(output), rank.sample_rows(output));
            let targets = &rank.samples.patches[1][rows.start * values..rows.end * values];
            rank.targets += predictions.len() as u64;
            rank.loss_sum += kernels::squared_error(&rank.pool, predictions, targets, rank.loss_scale());
            Ok(predictions.len())
        })
    }

    /// The only division of gradients in a step: by the global number of what is predicted. Where some of it is ignored,
    /// the optimizer corrects the number ([`RankEngine::ignored_factor`]), which is known only after the passes.
    fn loss_scale(&self) -> T {
        T::from_f64(1.0 / self.program.layout.targets_per_step(&self.program.model) as f64)
    }

    /// By what loss and gradients are to be multiplied because targets were ignored; exactly 1 where none was.
    pub(crate) fn ignored_factor(&self) -> f64 {
        self.program.layout.targets_per_step(&self.program.model) as f64 / self.targets as f64
    }

    /// The first token id of this rank's columns of the logits, and how many of them are no padding.
    fn vocabulary(&self, logits: ValueId) -> (usize, usize) {
        let (start, cols) = (self.first_col(logits), self.value(logits).local_cols);
        (start, self.program.model.vocab.saturating_sub(start).min(cols))
    }
}
