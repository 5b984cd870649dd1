//! Vocabulary-parallel cross-entropy, and squared error, fused with their gradients.

use quadrille_step::{ValueId, kind};
use quadrille_tensor::{LogitsShape, Shape};

use crate::backend::{View, ViewMut};
use crate::{Backend, EngineError, RankEngine, UpdateRule};

type Swept = Result<usize, EngineError>;

impl<B: Backend> RankEngine<'_, B> {
    pub(super) fn cap_logits(&mut self, op: &kind::CapLogits) -> Swept {
        self.write(op.output, |rank, logits| {
            if let Some(cap) = rank.program.model.logit_cap {
                rank.backend.cap(logits, cap)?;
            }
            Ok(logits.elements())
        })
    }

    pub(super) fn cross_entropy_max(&mut self, op: &kind::CrossEntropyMax) -> Swept {
        self.write(op.output, |rank, maxima| {
            let logits = rank.read(op.logits)?;
            rank.backend.cross_entropy_max(rank.logits_shape(op.logits), logits, maxima)?;
            Ok(logits.elements())
        })
    }

    pub(super) fn cross_entropy_sums(&mut self, op: &kind::CrossEntropySums) -> Swept {
        self.write(op.output, |rank, sums| {
            let shape = rank.logits_shape(op.logits);
            let rows = rank.sample_rows(op.logits);
            let logits = rank.read(op.logits)?;
            let maxima = rank.read(op.maxima)?;
            rank.backend.cross_entropy_sums(shape, &rank.samples, rows, logits, maxima, sums)?;
            Ok(logits.elements())
        })
    }

    pub(super) fn cross_entropy_gradient(&mut self, op: &kind::CrossEntropyGradient) -> Swept {
        self.write(op.output, |rank, l| {
            let shape = rank.logits_shape(op.output);
            let rows = rank.sample_rows(op.output);
            let maxima = rank.read(op.maxima)?;
            let sums = rank.read(op.sums)?;
            let scale = rank.loss_scale();
            let cap = rank.program.model.logit_cap;
            rank.backend.cross_entropy_gradient(shape, &rank.samples, rows, l, maxima, sums, scale, cap)?;
            Ok(l.elements())
        })
    }

    pub(super) fn cross_entropy_loss(&mut self, op: &kind::CrossEntropyLoss) -> Swept {
        let sums = self.read(op.sums)?;
        let rows = self.sample_rows(op.sums);
        self.backend.cross_entropy_loss(&self.samples, rows, sums)?;
        Ok(sums.elements())
    }

    pub(super) fn squared_error_loss(&mut self, op: &kind::SquaredErrorLoss) -> Swept {
        let value = op.predictions;
        let predictions = self.read(value)?;
        let numbers = self.sample_numbers(value);
        // No number stands for an ignored target: what is predicted of missing sequences is left out here.
        let counted = self.counted_rows(value) * self.value(value).local_cols;
        let numbers = numbers.start..numbers.start + counted;
        self.backend.squared_error_loss(&self.samples, numbers, predictions.part(0..counted))?;
        // Ledgers are of whole batches, with what fills them up.
        Ok(predictions.elements())
    }

    pub(super) fn squared_error(&mut self, op: &kind::SquaredError) -> Swept {
        let output = op.output;
        self.write(output, |rank, predictions| {
            let numbers = rank.sample_numbers(output);
            let scale = rank.loss_scale();
            rank.backend.squared_error(&rank.samples, numbers, predictions, scale)?;
            Ok(predictions.elements())
        })
    }

    /// The only division of gradients in a step: by the global number of what is predicted. Where some of it is ignored,
    /// the optimizer corrects the number, which is known only after the passes, and takes the power of two away that keeps
    /// gradients within the range of their type ([`UpdateRule::gradient_factor`]).
    pub(super) fn loss_scale(&self) -> f64 {
        self.loss_scale / self.program.layout.targets_per_step(&self.program.model) as f64
    }

    /// How the totals of a step become its update.
    pub(crate) fn update_rule(&self) -> UpdateRule {
        UpdateRule {
            targets_per_step: self.program.layout.targets_per_step(&self.program.model),
            loss_scale: self.loss_scale,
            clip: self.hyper.clip,
            loss_limit: self.loss_limit,
        }
    }

    /// This rank's columns of the logits: the id of the first, and how many of them are no padding.
    fn logits_shape(&self, logits: ValueId) -> LogitsShape {
        let Shape { rows, cols } = self.shape(logits);
        let start = self.first_col(logits);
        LogitsShape { rows, cols, valid: self.program.model.vocab.saturating_sub(start).min(cols), start }
    }
}
