//! Dropout: elements are zeroed by their logical index, the others scaled up.

use quadrille_spec::{Model, RandomStream};

/// What, besides purpose and index, decides the dropout masks of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DropoutSeed {
    /// The run's seed.
    pub seed: u64,
    /// The training step.
    pub step: u64,
}

/// The factors of one dropout; all 1 where the model or the pass has none.
pub struct Mask(Option<(RandomStream, f64)>);

impl Mask {
    /// The factors of `purpose`: `embedding`, `block I attention`, `block I projection` or `block I down`.
    pub fn new(model: &Model, dropout: Option<DropoutSeed>, purpose: &str) -> Self {
        let of = |of: DropoutSeed| RandomStream::new(of.seed, &format!("dropout {purpose}")).substream(of.step);
        Self(dropout.filter(|_| model.dropout > 0.0).map(|seed| (of(seed), model.dropout)))
    }

    /// What the element at the logical `index` is multiplied with. It is zeroed where its word of the stream, a whole
    /// number below 2^32, is below `rate * 2^32` rounded down.
    pub fn factor(&self, index: usize) -> f64 {
        match self.0 {
            None => 1.0,
            Some((stream, rate)) if f64::from(stream.word(index as u64)) < (rate * 2.0_f64.powi(32)).floor() => 0.0,
            Some((_, rate)) => 1.0 / (1.0 - rate),
        }
    }

    /// Forward on `values[n, h]`, and backward on their gradient: the same product.
    pub(crate) fn apply(&self, values: &mut [f64]) {
        for (index, value) in values.iter_mut().enumerate() {
            *value *= self.factor(index);
        }
    }
}
