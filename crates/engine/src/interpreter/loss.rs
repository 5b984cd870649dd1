//! Vocabulary-parallel cross-entropy, and squared error, fused with their gradients.

use quadrille_step::{ValueId, kind};
use quadrille_tensor::{LogitsShape, Shape};

use super::Interpreter;
use crate::backend::{View, ViewMut};
use crate::{Backend, EngineError};

type Swept = Result<usize, EngineError>;

impl<B: Backend> Interpreter<'_, B> {
    pub(super) fn cap_logits(&mut self, op: &kind::CapLogits) -> Swept {
        self.write(op.output, |this, logits| {
            if let Some(cap) = this.rank.program.model.logit_cap {
                this.backend.cap(logits, cap)?;
            }
            Ok(logits.elements())
        })
    }

    pub(super) fn cross_entropy_max(&mut self, op: &kind::CrossEntropyMax) -> Swept {
        self.write(op.output, |this, maxima| {
            let logits = this.read(op.logits)?;
            this.backend.cross_entropy_max(this.logits_shape(op.logits), logits, maxima)?;
            Ok(logits.elements())
        })
    }

    pub(super) fn cross_entropy_sums(&mut self, op: &kind::CrossEntropySums) -> Swept {
        self.write(op.output, |this, sums| {
            let shape = this.logits_shape(op.logits);
            let rows = this.rank.sample_rows(op.logits);
            let logits = this.read(op.logits)?;
            let maxima = this.read(op.maxima)?;
            this.backend.cross_entropy_sums(shape, &this.step.samples.loaded, rows, logits, maxima, sums)?;
            Ok(logits.elements())
        })
    }

    pub(super) fn cross_entropy_gradient(&mut self, op: &kind::CrossEntropyGradient) -> Swept {
        self.write(op.output, |this, l| {
            let shape = this.logits_shape(op.output);
            let rows = this.rank.sample_rows(op.output);
            let maxima = this.read(op.maxima)?;
            let sums = this.read(op.sums)?;
            let scale = this.optimizer.loss_factor();
            let cap = this.rank.program.model.logit_cap;
            this.backend.cross_entropy_gradient(shape, &this.step.samples.loaded, rows, l, maxima, sums, scale, cap)?;
            Ok(l.elements())
        })
    }

    pub(super) fn cross_entropy_loss(&mut self, op: &kind::CrossEntropyLoss) -> Swept {
        let sums = self.read(op.sums)?;
        let rows = self.rank.sample_rows(op.sums);
        self.backend.cross_entropy_loss(&self.step.samples.loaded, rows, sums)?;
        Ok(sums.elements())
    }

    pub(super) fn squared_error_loss(&mut self, op: &kind::SquaredErrorLoss) -> Swept {
        let value = op.predictions;
        let predictions = self.read(value)?;
        let numbers = self.rank.sample_numbers(value);
        // No number stands for an ignored target: what is predicted of missing sequences is left out here.
        let counted = self.step.counted_rows(value) * self.rank.value(value).local_cols;
        let numbers = numbers.start..numbers.start + counted;
        self.backend.squared_error_loss(&self.step.samples.loaded, numbers, predictions.part(0..counted))?;
        // Ledgers are of whole batches, with what fills them up.
        Ok(predictions.elements())
    }

    pub(super) fn squared_error(&mut self, op: &kind::SquaredError) -> Swept {
        let output = op.output;
        self.write(output, |this, predictions| {
            let numbers = this.rank.sample_numbers(output);
            let scale = this.optimizer.loss_factor();
            this.backend.squared_error(&this.step.samples.loaded, numbers, predictions, scale)?;
            Ok(predictions.elements())
        })
    }

    /// This rank's columns of the logits: the id of the first, and how many of them are no padding.
    fn logits_shape(&self, logits: ValueId) -> LogitsShape {
        let Shape { rows, cols } = self.step.shape(logits);
        let start = self.rank.first_col(logits);
        LogitsShape { rows, cols, valid: self.rank.program.model.vocab.saturating_sub(start).min(cols), start }
    }
}
