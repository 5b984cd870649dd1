//! Dropout: elements are zeroed by their logical index, the others scaled up.

use quadrille_spec::{Dropout, Model};

/// What, besides purpose and index, decides the dropout masks of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DropoutSeed {
    /// The run's seed.
    pub seed: u64,
    /// The training step.
    pub step: u64,
}

/// The factors of one dropout; all 1 where the model or the pass has none.
pub(crate) struct Mask(Option<Dropout>);

impl Mask {
    pub(crate) fn new(model: &Model, dropout: Option<DropoutSeed>, purpose: &str) -> Self {
        let dropout = dropout.filter(|_| model.dropout > 0.0);
        Self(dropout.map(|of| Dropout::new(of.seed, purpose, of.step, model.dropout)))
    }

    /// What the element at the logical `index` is multiplied with.
    pub(crate) fn factor(&self, index: usize) -> f64 {
        match &self.0 {
            None => 1.0,
            Some(dropout) if dropout.keeps(index as u64) => dropout.scale,
            Some(_) => 0.0,
        }
    }

    /// Forward on `values[n, h]`, and backward on their gradient: the same product.
    pub(crate) fn apply(&self, values: &mut [f64]) {
        for (index, value) in values.iter_mut().enumerate() {
            *value *= self.factor(index);
        }
    }
}
