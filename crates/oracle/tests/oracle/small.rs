//! Models, parameters and batches small enough for finite differences.

use quadrille_oracle::{Batch, DropoutSeed, Samples, Tensors, loss_and_gradients, parameter_shapes};
use quadrille_spec::{Model, RandomStream};

/// A model with odd sizes that are all different; its epsilon keeps norms smooth where dropout empties a row.
pub fn model() -> Model {
    Model { ffn: 7, tied_head: false, norm_epsilon: 0.1, ..Model::gpt(2, 6, 2, 11, 5) }
}

/// Parameters far enough from zero that every path carries gradient.
pub fn parameters(model: &Model, seed: u64) -> Tensors {
    let values = |name: &str, count: usize| {
        let stream = RandomStream::new(seed, name);
        let centre = if name.ends_with("gamma") { 1.0 } else { 0.0 };
        (0..count as u64).map(|i| centre + 0.5 * stream.normal(i)).collect()
    };
    parameter_shapes(model).into_iter().map(|(name, [r, c])| (name.clone(), values(&name, r * c))).collect()
}

/// Token ids and targets that own their memory.
#[derive(Debug, Clone)]
pub struct Sample {
    pub tokens: Vec<u32>,
    pub targets: Vec<u32>,
    pub sequences: usize,
    pub seq_len: usize,
}

impl Sample {
    pub fn new(model: &Model, sequences: usize, seq_len: usize, seed: u64) -> Self {
        let ids = |what| {
            let stream = RandomStream::new(seed, what);
            let id = |i| stream.below(i, model.vocab as u64) as u32;
            (0..(sequences * seq_len) as u64).map(id).collect()
        };
        Self { tokens: ids("tokens"), targets: ids("targets"), sequences, seq_len }
    }

    pub fn batch(&self) -> Batch<'_> {
        let samples = Samples::Tokens { inputs: &self.tokens, targets: &self.targets };
        Batch { samples, sequences: self.sequences, seq_len: self.seq_len }
    }
}

/// Loss without gradients.
pub fn loss(model: &Model, parameters: &Tensors, sample: &Sample, dropout: Option<DropoutSeed>) -> f64 {
    loss_and_gradients(model, parameters, &sample.batch(), dropout).0
}

/// Gradients without dropout.
pub fn gradients(model: &Model, parameters: &Tensors, sample: &Sample) -> Tensors {
    loss_and_gradients(model, parameters, &sample.batch(), None).1
}

/// The largest magnitude.
pub fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |most, value| value.abs().max(most))
}
