//! Vocabulary-parallel cross-entropy, and squared error, fused with their gradients.

use quadrille_spec::IGNORED;
use quadrille_step::{ValueId, kind};
use quadrille_tensor as kernels;

use crate::{EngineError, RankEngine, Real};

/// Kernels and everyone else mean the same targets.
const _: () = assert!(kernels::IGNORED == IGNORED);

type Swept = Result<usize, EngineError>;

impl<T: Real> RankEngine<'_, T> {
    pub(super) fn cross_entropy_max(&mut self, op: &kind::CrossEntropyMax) -> Swept {
        self.write(op.output, |rank, maxima| {
            let ((rows, cols), (_, valid)) = (rank.dims(op.logits), rank.vocabulary(op.logits));
            let logits = rank.read(op.logits)?;
            kernels::cross_entropy_max(&rank.pool, rows, cols, valid, logits, maxima);
            Ok(logits.len())
        })
    }

    pub(super) fn cross_entropy_sums(&mut self, op: &kind::CrossEntropySums) -> Swept {
        self.write(op.output, |rank, sums| {
            let ((rows, cols), (start, valid)) = (rank.dims(op.logits), rank.vocabulary(op.logits));
            let targets = &rank.samples.tokens[1][rank.sample_rows(op.logits)];
            let (logits, maxima) = (rank.read(op.logits)?, rank.read(op.maxima)?);
            kernels::cross_entropy_sums(&rank.pool, rows, cols, valid, start, logits, maxima, targets, sums);
            Ok(logits.len())
        })
    }

    #[rustfmt::skip]
    pub(super) fn cross_entropy_gradient(&mut self, op: &kind::CrossEntropyGradient) -> Swept {
        self.write(op.output, |rank, l| {
            let ((rows, cols), (start, valid)) = (rank.dims(op.output), rank.vocabulary(op.output));
            let targets = &rank.samples.tokens[1][rank.sample_rows(op.output)];
            let (maxima, sums) = (rank.read(op.maxima)?, rank.read(op.sums)?);
            let scale = rank.loss_scale();
            let counted = counted(targets);
            rank.loss_sum += kernels::cross_entropy_gradient(
                &rank.pool, rows, cols, valid, start, l, maxima, sums, targets, scale,
            );
            rank.targets += counted;
            Ok(l.len())
        })
    }

    pub(super) fn cross_entropy_loss(&mut self, op: &kind::CrossEntropyLoss) -> Swept {
        let targets = &self.samples.tokens[1][self.sample_rows(op.sums)];
        let sums = self.read(op.sums)?;
        let (loss, counted, swept) = (kernels::cross_entropy_loss(sums, targets), counted(targets), sums.len());
        self.loss_sum += loss;
        self.targets += counted;
        Ok(swept)
    }

    pub(super) fn squared_error_loss(&mut self, op: &kind::SquaredErrorLoss) -> Swept {
        let value = op.predictions;
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

    pub(super) fn squared_error(&mut self, op: &kind::SquaredError) -> Swept {
        let output = op.output;
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

/// Targets that are not ignored.
fn counted(targets: &[u32]) -> u64 {
    targets.iter().filter(|target| **target != IGNORED).count() as u64
}
